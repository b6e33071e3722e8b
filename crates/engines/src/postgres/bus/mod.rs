//! The bus on a database: nodes that share only Postgres hear each other through notifications. What fits travels in the
//! notification itself; a longer batch is a row of the ring (`bus.sql`), and the notification names it.
//!
//! `NOTIFY` takes a lock that all commits with notifications share until they are on disk. So no transaction of the store
//! notifies: the bus has a connection of its own, which does not wait for the disk, and sends what was queued meanwhile in
//! one transaction.
//!
//! The server wakes every listening connection of the database and sends a notification to those that listen to its channel.
//! Subjects are spread over a fixed number of channels, the lanes, by hash, so that a node hears little that it does not need.
//!
//! | module | holds |
//! |---|---|
//! | `lane` | which lane a subject is on, and which lanes the node listens to |
//! | `notice` | the text of a notification |
//! | `batch` | messages as bytes |
//! | `ring` | the statements of the ring |
//! | `received` | notifications that wait, what they brought, and what has been seen of each stream |
//! | `link` | the connection: sends the outbox, delivers what arrives |

mod batch;
mod lane;
mod link;
mod notice;
mod received;
mod ring;

use super::address::PostgresAddress;
use super::tls::PostgresTls;
use crate::options::BusOptions;
use crate::remote::RemoteBus;
use link::PostgresLink;
use std::sync::Arc;
use tavern_store::error::Cause;
use tavern_store::{BusError, BusReceiver, StoreError, limits};

pub(super) use received::{Notices, ReceivedNotice};

/// Opens the bus on a database; creates the tables when there are none.
pub fn open(
    url: &str,
    options: &BusOptions<'_>,
    receiver: Arc<dyn BusReceiver>,
) -> Result<RemoteBus, BusError> {
    let address = PostgresAddress::parse(url).map_err(of_store)?;
    let tls = PostgresTls::new(&address).map_err(|error| unavailable(Arc::new(error)))?;
    RemoteBus::open(PostgresLink::new(address, tls), options, receiver)
}

/// The same server, used as a bus.
pub(crate) fn of_store(error: StoreError) -> BusError {
    match error {
        StoreError::Malformed { what } => BusError::Malformed { what },
        StoreError::Address { kind } => BusError::Address { kind },
        StoreError::Unavailable { retry_after_ms, source } => {
            BusError::Unavailable { retry_after_ms, source }
        }
        other => unavailable(Arc::new(other)),
    }
}

fn unavailable(source: Cause) -> BusError {
    BusError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source }
}
