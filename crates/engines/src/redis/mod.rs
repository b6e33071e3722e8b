//! What lives on a Redis server: the bus, and the store. The store keeps rows as readable JSON in a fixed set of keys that
//! `docs/redis.md` tells; commits are carried out by one script inside the server (`scripts/commit`), so writers never
//! wait for each other's round trips. Must hold: an answered commit was applied by the primary, and by as much more as the
//! address asks for (`door`).

mod bus;
mod deadline;
mod document;
mod door;
mod facts;
mod hold;
mod inbox;
mod key;
mod lease;
mod link;
mod log;
mod node;
mod presence;
mod reader;
mod roster;
mod rows;
mod script;
mod session;
mod sheet;
mod social;
mod socket;
mod store;
mod table;
mod value;
mod way;
mod writer;

pub use bus::open;
pub use facts::{Duty, facts};
pub use store::RedisStore;
