//! Writes down when API keys were used last, so that an operator finds those that are no longer used.
//! Must hold: at most one write for each key and interval, however often it is used.

use crate::auth::Authenticator;
use crate::clock::NodeClock;
use crate::store_client::{StoreClient, StoreClientError};
use std::sync::Arc;
use std::time::Duration;
use tavern_store::{ApiKey, Clock, Commit, Expect, Found, Read, Row, Versioned};

const INTERVAL: Duration = Duration::from_secs(5);
/// A use is not written if the last one that was is younger.
const PRECISION_MS: u64 = 60_000;

pub async fn record(store: Arc<StoreClient>, authenticator: Arc<Authenticator>, clock: Arc<NodeClock>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        for hash in authenticator.keyring().take_used() {
            // Another node may write it at the same time: either is right.
            if let Err(error) = write(&store, &clock, hash).await {
                tracing::debug!(%error, "cannot write the last use of an API key");
            }
        }
    }
}

async fn write(store: &StoreClient, clock: &NodeClock, hash: [u8; 32]) -> Result<(), StoreClientError> {
    let Found::Key(Some(Versioned { version, row })) = store.read(Read::KeyByHash(hash)).await? else {
        return Ok(());
    };
    let now = clock.now();
    if row.last_used_at.is_some_and(|last| now.since(last) < PRECISION_MS) {
        return Ok(());
    }
    let row = Row::Key(ApiKey { last_used_at: Some(now), ..row });
    let expects = vec![Expect { key: row.key(), version }];
    store.commit(Commit { expects, puts: vec![row], ..Commit::default() }).await.map(drop)
}
