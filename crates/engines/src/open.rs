//! Chooses an engine by its address. Nothing outside this crate names one. Errors never repeat the address: it may
//! contain a password.

use crate::fact::{CheckResult, StoreFacts};
use crate::local::LocalBus;
use crate::options::BusOptions;
use crate::sqlite::SqliteStore;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tavern_store::blocking::BlockingStore;
use tavern_store::memory::MemoryEngine;
use tavern_store::{AnswerReceiver, Bus, BusError, BusReceiver, Clock, Store, StoreError};

const REDIS: [&str; 6] =
    ["redis", "rediss", "redis-sentinel", "rediss-sentinel", "redis-cluster", "rediss-cluster"];

/// `memory:` stores rows as long as the process lives; `sqlite:FOLDER` in that folder; `postgres://…` in a database and
/// `redis://…` on a Redis server, whose clock is then the store's, up to `Clock::latest`.
pub fn open(
    url: &str,
    clock: Arc<dyn Clock>,
    receiver: Arc<dyn AnswerReceiver>,
) -> Result<Arc<dyn Store>, StoreError> {
    match url.split_once(':') {
        Some(("memory", "")) => Ok(MemoryEngine::new(clock).store("node", receiver)),
        Some(("sqlite", folder)) if !folder.is_empty() => {
            Ok(Arc::new(SqliteStore::open(Path::new(folder), clock, receiver)?))
        }
        Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
            Ok(Arc::new(crate::postgres::PostgresStore::open(url, clock, receiver)?))
        }
        Some((scheme, rest)) if REDIS.contains(&scheme) && rest.starts_with("//") => {
            Ok(Arc::new(crate::redis::RedisStore::open(url, clock, receiver)?))
        }
        _ => Err(StoreError::Address { kind: kind(url) }),
    }
}

/// A blocking client of that store, for tools.
pub fn open_client(url: &str, clock: Arc<dyn Clock>, timeout: Duration) -> Result<BlockingStore, StoreError> {
    BlockingStore::with(timeout, |receiver| open(url, clock, receiver))
}

/// `local` reaches the processes that use the same folder; `memory:` reaches no other node. `nats:`, `tls:`, `redis:` and
/// its variants, and `postgres:` reach the nodes that use the same server; their modules describe the addresses.
pub fn open_bus(
    url: &str,
    options: &BusOptions<'_>,
    clock: Arc<dyn Clock>,
    receiver: Arc<dyn BusReceiver>,
) -> Result<Arc<dyn Bus>, BusError> {
    match url {
        "local" => Ok(Arc::new(LocalBus::open(options, receiver)?)),
        "memory:" => Ok(MemoryEngine::new(clock).bus(options.node, receiver)),
        _ if ["nats", "tls"].contains(&&*kind(url)) => {
            Ok(Arc::new(crate::nats::open(url, options, receiver)?))
        }
        _ if REDIS.contains(&&*kind(url)) => Ok(Arc::new(crate::redis::open(url, options, receiver)?)),
        _ if ["postgres", "postgresql"].contains(&&*kind(url)) => {
            Ok(Arc::new(crate::postgres::open_bus(url, options, receiver)?))
        }
        _ => Err(BusError::Address { kind: kind(url) }),
    }
}

fn kind(url: &str) -> String {
    url.split(':').next().unwrap_or("").chars().take(32).collect()
}

/// Checks the server or the folder behind a store.
pub fn store_facts(url: &str) -> Result<StoreFacts, StoreError> {
    match &*kind(url) {
        "sqlite" => crate::sqlite::facts(Path::new(url.split_once(':').map_or("", |(_, folder)| folder))),
        "postgres" | "postgresql" => crate::postgres::facts(url),
        "redis" | "rediss" => {
            let facts = crate::redis::facts(url, crate::redis::RedisRole::Store).map_err(of_store)?;
            Ok(StoreFacts { facts, is_made: true })
        }
        _ => Ok(StoreFacts { facts: Vec::new(), is_made: true }),
    }
}

/// Checks the server behind a bus.
pub fn bus_facts(url: &str) -> Result<Vec<CheckResult>, BusError> {
    match &*kind(url) {
        "nats" | "tls" => crate::nats::facts(url),
        "redis" | "rediss" => crate::redis::facts(url, crate::redis::RedisRole::Bus),
        "postgres" | "postgresql" => crate::postgres::bus_facts(url),
        _ => Ok(Vec::new()),
    }
}

/// The same server, used as a store.
fn of_store(error: BusError) -> StoreError {
    match error {
        BusError::Unavailable { retry_after_ms, source } => {
            StoreError::Unavailable { retry_after_ms, source }
        }
        BusError::Address { kind } => StoreError::Address { kind },
        BusError::Malformed { what } => StoreError::Malformed { what },
    }
}
