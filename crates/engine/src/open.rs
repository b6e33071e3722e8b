//! Chooses an engine by its address. Nothing else outside the engines names one.
//! Errors never repeat the address: it may hold a password.

use crate::bus::{Bus, BusError, BusInbox};
use crate::clock::Clock;
use crate::memory::Hall;
use crate::sqlite::SqliteStore;
use crate::store::{Inbox, Store, StoreError};
use std::path::Path;
use std::sync::Arc;

/// `memory:` keeps facts as long as the process lives; `sqlite:FOLDER` in that folder.
pub fn open(url: &str, clock: Arc<dyn Clock>, inbox: Arc<dyn Inbox>) -> Result<Arc<dyn Store>, StoreError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(Hall::new(clock).store("alone", inbox)),
        Some(("sqlite", folder)) if !folder.is_empty() => {
            Ok(Arc::new(SqliteStore::open(Path::new(folder), clock, inbox)?))
        }
        _ => Err(StoreError::Address { kind: kind(url) }),
    }
}

/// `memory:` reaches nobody else: the bus of a node that is alone.
pub fn open_bus(
    url: &str,
    node: &str,
    clock: Arc<dyn Clock>,
    inbox: Arc<dyn BusInbox>,
) -> Result<Arc<dyn Bus>, BusError> {
    match url {
        "memory:" => Ok(Hall::new(clock).bus(node, inbox)),
        _ => Err(BusError::Address { kind: kind(url) }),
    }
}

fn kind(url: &str) -> String {
    url.split(':').next().unwrap_or("").chars().take(32).collect()
}
