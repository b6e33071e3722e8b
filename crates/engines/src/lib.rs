//! The drivers of the contract in `tavern-store`: where facts are kept, and what carries messages between nodes.
//!
//! | file | holds |
//! |---|---|
//! | `sqlite/`, `postgres/`, `redis/` | the stores, with the same file names |
//! | `local/` | the bus of one machine, on a folder |
//! | `remote/`, `nats/`, `redis/` | what the buses on a server have in common, and what each of them adds |
//! | `open` | chooses an engine by address |
//! | `facts` | what an operator should know about the server behind an address |
//! | `header` | the header of a bus message |
//! | `queue`, `intake` | the bounded queue in front of a store's threads and tasks |
//!
//! Must hold: what `tavern-store` says of every engine; its conformance suite runs against each of them here.
#![forbid(unsafe_code)]

mod facts;
mod header;
mod intake;
pub mod local;
#[cfg(feature = "nats")]
pub mod nats;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queue;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "remote")]
mod remote;
pub mod sqlite;

pub use facts::{Fact, Health, StoreFacts, bus_facts, store_facts};
pub use local::LogBounds;
pub use open::{Place, open, open_bus, open_client};
