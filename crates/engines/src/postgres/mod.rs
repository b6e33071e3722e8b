//! The Postgres engine: tables that an operator and other programs can read, in a schema of their own. Many nodes write at
//! once. Each store has one connection that writes and a few that read, on two threads of its own. Knows no bus.
//! Must hold: an answered commit is as durable as the server's `synchronous_commit`; a commit and what it is decided on
//! are locked in one order everywhere (`claim`), so writers wait for each other but never in a circle; a schema of another
//! version is not touched.

mod address;
mod change;
mod claim;
mod deadline;
mod document;
mod facts;
mod hold;
mod inbox;
mod key;
mod lease;
mod link;
mod log;
mod lot;
mod node;
mod presence;
mod reader;
mod roster;
mod schema;
mod session;
mod social;
mod store;
mod tables;
mod tls;
mod value;
mod way;
mod writer;

pub use facts::facts;
pub use store::PostgresStore;
