//! Store and Bus: where facts are kept and how words travel between nodes. Engines decide nothing:
//! they order (versions) and arbitrate (conflicts).
//!
//! # The map
//!
//! | file | holds |
//! |---|---|
//! | `store` | the contract: `submit` work, answers arrive in the `Inbox`; `Commit`, `Read`, `StoreError` |
//! | `bounds` | what a commit may hold |
//! | `row`, `presence`, `social`, `lease` | the kinds of rows, their keys and versions |
//! | `log`, `letter` | what is appended: the log of topics, the inboxes of users |
//! | `body` | how a stored session carries its subscriptions, rights and mailbox |
//! | `commit/` | the one algorithm of a commit, over the tables of an engine |
//! | `bus`, `subject`, `interest` | the contract of the bus, the names it routes by, what a node asks to hear |
//! | `memory/`, `sqlite/`, `postgres/`, `redis/`, `local/` | the engines, with the same file names |
//! | `remote/`, `nats/`, `redis/` | what the buses on a server have in common, and what each of them adds |
//! | `conformance/` | what every engine must do, as cases that run against each of them |
//! | `open`, `blocking` | choosing an engine by address; waiting for one answer, for tools |
//! | `facts` | what an operator should know about the server behind an address |
//!
//! # A new kind of row
//!
//! Add a variant to `Row` and `RowKey`, a read to `Read` and `Found`, one file to each engine with its arm
//! in that engine's `store`, a migration for SQLite, and its cases. Nothing else changes: versions,
//! expectations, fencing, deadlines and errands work for every row.
//!
//! # What must hold
//!
//! A commit is all or nothing. A closed epoch never writes again. A version is never given twice to one key,
//! through deletion too. Time is the store's and never goes back. What was acknowledged is as durable as the
//! engine says. A difference between engines that a caller can see is a bug, or a named exclusion in the
//! conformance suite with its reason.
#![forbid(unsafe_code)]

pub mod blocking;
pub mod body;
mod bounds;
pub mod bus;
pub mod clock;
mod commit;
pub mod conformance;
mod facts;
mod intake;
mod interest;
pub mod lease;
pub mod letter;
pub mod limits;
pub mod local;
pub mod log;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod presence;
mod queue;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "remote")]
mod remote;
pub mod row;
pub mod social;
pub mod sqlite;
pub mod store;
pub mod subject;

pub use body::SessionBody;
pub use bus::{Bus, BusError, BusInbox, Counts, Lost, Parcel};
pub use clock::{Clock, ManualClock, SystemClock};
pub use facts::{Fact, Health, StoreFacts, bus_facts, store_facts};
pub use interest::Interest;
pub use lease::{Lease, Take};
pub use letter::{Freed, Letter, Letters, NewLetter};
pub use local::LogBounds;
pub use log::{Append, Appended, Entry, Log, Stretch, Topics, Trim};
pub use open::{Place, open, open_bus};
pub use presence::{Held, Hold, Presence, PresenceKey, Raise, Roster, Stray};
pub use row::{
    ApiKey, Deadline, Document, DocumentKey, Errand, ErrandId, NewErrand, Node, Page, Row, RowKey, RowKind,
    StoredSession, Versioned, Writer,
};
pub use social::{Edge, Follow, Person, Seen, User};
pub use store::{
    Answer, Commit, Expect, Found, Inbox, NodeChange, Proof, Read, Receipt, Store, StoreError, Ticket, Work,
};
pub use subject::{Subject, SubjectError};
