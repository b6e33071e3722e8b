//! Chooses an engine by its address. Nothing else outside the engines names one.
//! Errors never repeat the address: it may hold a password.

use crate::local::{LocalBus, LogBounds};
use crate::sqlite::SqliteStore;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tavern_store::blocking::Client;
use tavern_store::bus::{Bus, BusError, BusReceiver};
use tavern_store::clock::Clock;
use tavern_store::error::StoreError;
use tavern_store::memory::MemoryEngine;
use tavern_store::store::{AnswerReceiver, Store};

#[cfg(feature = "redis")]
const REDIS: [&str; 6] =
    ["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

/// `memory:` keeps facts as long as the process lives; `sqlite:FOLDER` in that folder; `postgres://…` in a database and
/// `redis://…` on a Redis server, whose clock is then the store's.
pub fn open(
    url: &str,
    clock: Arc<dyn Clock>,
    inbox: Arc<dyn AnswerReceiver>,
) -> Result<Arc<dyn Store>, StoreError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(MemoryEngine::new(clock).store("alone", inbox)),
        Some(("sqlite", folder)) if !folder.is_empty() => {
            Ok(Arc::new(SqliteStore::open(Path::new(folder), clock, inbox)?))
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
            Ok(Arc::new(crate::postgres::PostgresStore::open(url, inbox)?))
        }
        #[cfg(feature = "redis")]
        Some((scheme, rest)) if REDIS.contains(&scheme) && rest.starts_with("//") => {
            Ok(Arc::new(crate::redis::RedisStore::open(url, inbox)?))
        }
        _ => Err(StoreError::Address { kind: kind(url) }),
    }
}

/// A client of that store that waits for each answer, for tools.
pub fn open_client(url: &str, clock: Arc<dyn Clock>, timeout: Duration) -> Result<Client, StoreError> {
    Client::with(timeout, |inbox| open(url, clock, inbox))
}

/// A node as a bus must know it.
pub struct Place<'a> {
    pub node: &'a str,
    /// In front of every subject, so that two clusters can share a server.
    pub prefix: &'a str,
    /// The folder of what this machine keeps.
    pub folder: &'a Path,
    pub bounds: LogBounds,
}

/// `local` reaches the processes that use the same folder; `memory:` reaches nobody: the bus of a node that is alone.
/// `nats:`, `tls:`, `redis:` and its like reach whoever uses the same server; their modules tell the addresses.
pub fn open_bus(
    url: &str,
    place: &Place<'_>,
    clock: Arc<dyn Clock>,
    inbox: Arc<dyn BusReceiver>,
) -> Result<Arc<dyn Bus>, BusError> {
    match url {
        "local" => Ok(Arc::new(LocalBus::open(place, inbox)?)),
        "memory:" => Ok(MemoryEngine::new(clock).bus(place.node, inbox)),
        #[cfg(feature = "nats")]
        _ if ["nats", "tls"].contains(&&*kind(url)) => Ok(Arc::new(crate::nats::open(url, place, inbox)?)),
        #[cfg(feature = "redis")]
        _ if REDIS.contains(&&*kind(url)) => Ok(Arc::new(crate::redis::open(url, place, inbox)?)),
        _ => Err(BusError::Address { kind: kind(url) }),
    }
}

fn kind(url: &str) -> String {
    url.split(':').next().unwrap_or("").chars().take(32).collect()
}
