//! Watches for revoked API keys, on whichever node they were revoked, and ends what they opened on this node.
//! Must hold: a revoked key is known to this node at most `INTERVAL` and one read later, as long as the store answers.

use crate::store_client::{StoreClient, StoreClientError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tavern_hub::Node;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Found, Read};

const INTERVAL: Duration = Duration::from_secs(2);

pub async fn watch(store: Arc<StoreClient>, node: Arc<Node>) {
    loop {
        match revoked(&store).await {
            Ok(ids) => node.revoke_keys(ids),
            Err(error) => tracing::debug!(%error, "cannot read the API keys"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The ids of all revoked keys.
async fn revoked(store: &StoreClient) -> Result<BTreeSet<Arc<str>>, StoreClientError> {
    let (mut ids, mut after) = (BTreeSet::new(), None);
    loop {
        let Found::Keys(page) = store.read(Read::Keys { after, limit: PAGE_ROWS }).await? else {
            return Ok(ids);
        };
        after = page.rows.last().map(|key| key.row.id.clone());
        ids.extend(page.rows.into_iter().filter(|key| key.row.revoked_at.is_some()).map(|key| key.row.id));
        if !page.more {
            return Ok(ids);
        }
    }
}
