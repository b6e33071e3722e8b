//! The SQLite engine: `FOLDER/tavern.db`, tables that an operator can read, one writer thread with group commit and
//! one reader thread. Several processes may share the folder. Knows no bus.
//! Must hold: an answered commit is on the disk (WAL, `synchronous=FULL`); only the holder of the folder's lock file
//! opens, writes or closes, so SQLITE_BUSY does not occur; a database of another version is not touched.

mod deadline;
mod document;
mod facts;
mod folder;
mod history;
mod hold;
mod inbox;
mod key;
mod lease;
mod log;
mod node;
mod presence;
mod reader;
mod roster;
mod schema;
mod session;
mod social;
mod store;
mod tables;
mod value;
mod writer;

pub(crate) use facts::facts;
pub use store::SqliteStore;
