//! Keeps the bans of the store in the memory of this node, where every hello is checked. The bus announces a change at once;
//! this finds what it lost. Must hold: they are known before the first client connects, and a change is known at most
//! `INTERVAL` and one reading later, as long as the store answers.

use crate::store_client::{StoreClient, StoreClientError};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tavern_hub::Node;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{DocumentKey, Found, Read, Row, RowKey, RowKind};
use tavern_wire::bus::control::Ban;
use tavern_wire::record::{BAN, BANS, BANS_ALL, read_ban};

const INTERVAL: Duration = Duration::from_secs(2);

/// Reads them once. Gives the version of the list.
pub async fn load(store: &StoreClient, node: &Node) -> Result<u64, StoreClientError> {
    // The version first: what changes while the list is read is found the next time.
    let version = version(store).await?;
    node.blocks.set_bans(if version == 0 { HashMap::new() } else { read(store).await? });
    Ok(version)
}

pub async fn watch(store: Arc<StoreClient>, node: Arc<Node>, mut loaded: u64) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let changed = match version(&store).await {
            Ok(version) if version == loaded => continue,
            Ok(_) => load(&store, &node).await,
            Err(error) => Err(error),
        };
        match changed {
            Ok(version) => loaded = version,
            Err(error) => tracing::debug!(%error, "cannot read the bans"),
        }
    }
}

/// 0: there was never a ban.
async fn version(store: &StoreClient) -> Result<u64, StoreClientError> {
    match store.read(Read::Document(DocumentKey::new(BANS, BANS_ALL))).await? {
        Found::Document(Some(found)) => Ok(found.version),
        _ => Ok(0),
    }
}

async fn read(store: &StoreClient) -> Result<HashMap<Arc<str>, Ban>, StoreClientError> {
    let mut bans = HashMap::new();
    let mut after = RowKey::Document(DocumentKey::new(BAN, ""));
    loop {
        let rows = Read::Rows { kind: RowKind::Document, after: Some(after), limit: PAGE_ROWS };
        let Found::Rows(page) = store.read(rows).await? else { return Ok(bans) };
        let Some(last) = page.rows.last().map(|found| found.row.key()) else { return Ok(bans) };
        for found in page.rows {
            let Row::Document(document) = found.row else { continue };
            if document.key.kind() != BAN {
                return Ok(bans);
            }
            match read_ban(&document.body) {
                Ok(ban) => drop(bans.insert(document.key.name().into(), ban)),
                Err(error) => tracing::error!(%error, user = document.key.name(), "a ban cannot be read"),
            }
        }
        if !page.more {
            return Ok(bans);
        }
        after = last;
    }
}
