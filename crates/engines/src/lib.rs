//! The drivers of the contract in `tavern-store`: they store rows, and deliver messages between nodes.
//!
//! | module | holds |
//! |---|---|
//! | `sqlite/`, `postgres/`, `redis/` | the stores, with the same file names |
//! | `local/` | the bus of one machine, on a folder |
//! | `remote/`, `nats/`, `redis/`, `postgres/bus/` | what the buses on a server share, and what each of them adds |
//! | `open` | chooses an engine by address |
//! | `options` | the options of a bus |
//! | `fact` | what an operator should know about the server behind an address |
//! | `header` | the header of a bus message |
//! | `worker`, `queue`, `reconnects` | the threads of a store, the bounded queues in front of them, lost connections |
//!
//! Must hold: the contract of `tavern-store`; its conformance suite runs against each of them here.
#![forbid(unsafe_code)]

mod fact;
mod header;
pub mod local;
pub mod nats;
mod open;
mod options;
pub mod postgres;
mod queue;
mod reconnects;
pub mod redis;
mod remote;
pub mod sqlite;
mod worker;

pub use fact::{CheckHealth, CheckResult, StoreFacts};
pub use open::{bus_facts, open, open_bus, open_client, store_facts};
pub use options::{BusOptions, LogBounds};
pub use postgres::{SqlCall, SqlCalls};
