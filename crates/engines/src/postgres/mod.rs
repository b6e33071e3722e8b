//! The Postgres engine: tables that an operator and other programs can read, in a schema of their own. Many nodes write at
//! once. Each store has one connection that writes and a few that read, on two threads of its own. `bus/` is the bus on a database.
//! Must hold: an answered commit is as durable as the server's `synchronous_commit`; a commit locks everything it depends on
//! in one global order (`locks`), so writers wait for each other but never deadlock; a schema of another version is not
//! touched.

mod address;
mod bus;
mod calls;
mod change;
mod connection;
mod deadline;
mod document;
mod error;
mod facts;
mod history;
mod hold;
mod inbox;
mod key;
mod lease;
mod locks;
mod log;
mod node;
mod pooler;
mod presence;
mod read_batch;
mod reader;
mod reconnect;
mod roster;
mod schema;
mod session;
mod social;
mod statements;
mod store;
mod tables;
mod tls;
mod value;
mod writer;

pub(crate) use bus::open as open_bus;
pub use calls::{SqlCall, SqlCalls, SqlEvent};
pub use facts::{bus_facts, facts};
pub use store::PostgresStore;
