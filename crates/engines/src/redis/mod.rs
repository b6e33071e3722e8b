//! Redis: the bus, and the store. The store keeps rows as readable JSON in a fixed set of keys, described in
//! `docs/deploy/redis.md`; one script inside the server applies commits (`scripts/commit`), so writers never wait for
//! each other's round trips. Must hold: an answered commit was applied by the primary, and confirmed by replicas or
//! the disk if the address requests it (`address`).

mod address;
mod bus;
mod clock;
mod commit;
mod connection;
mod deadline;
mod document;
mod encoder;
mod error;
mod facts;
mod history;
mod hold;
mod inbox;
mod key;
mod lease;
mod log;
mod node;
mod pages;
mod pool;
mod presence;
mod reader;
mod receipt;
mod roster;
mod rows;
mod schema;
mod script;
mod session;
mod social;
mod socket;
mod store;
mod value;
mod writer;

pub use bus::open;
pub use facts::{RedisRole, facts};
pub use store::RedisStore;
