//! The contract of a store and a bus, the in-memory engine and the conformance suite.
//! Engines decide nothing: they order (versions) and arbitrate (conflicts).
//!
//! | file | holds |
//! |---|---|
//! | `store` | the contract: `submit` work, answers arrive in the `Inbox`; `Commit`, `Read`, `StoreError` |
//! | `bounds`, `limits` | what a commit may hold |
//! | `row`, `presence`, `social`, `lease` | the kinds of rows, their keys and versions |
//! | `log`, `letter` | what is appended: the log of topics, the inboxes of users |
//! | `body` | how a stored session carries its subscriptions, rights and mailbox |
//! | `commit/` | the one algorithm of a commit, over the tables of an embedded engine |
//! | `bus`, `subject`, `interest` | the contract of the bus, the names it routes by, what a node asks to hear |
//! | `memory/` | the in-memory store and bus, with fault injection |
//! | `conformance/` | what every engine must do, as cases that run against each of them |
//! | `blocking` | waits for single answers, for tools and tests |
//!
//! The drivers are in `tavern-engines`.
//!
//! # A new kind of row
//!
//! Add a variant to `Row` and `RowKey`, a read to `Read` and `Found`, one file to each engine with its arm
//! in that engine's `store`, a table for each SQL engine, and its cases. Nothing else changes: versions,
//! expectations, fencing and deadlines work for every row.
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
pub mod commit;
pub mod conformance;
pub mod interest;
pub mod lease;
pub mod letter;
pub mod limits;
pub mod log;
pub mod memory;
pub mod presence;
pub mod row;
pub mod social;
pub mod store;
pub mod subject;

pub use body::SessionBody;
pub use bus::{Bus, BusError, BusInbox, Counts, Lost, Parcel};
pub use clock::{Clock, ManualClock, SystemClock};
pub use interest::Interest;
pub use lease::{Lease, Take};
pub use letter::{Freed, Letter, Letters, NewLetter};
pub use log::{Append, Appended, Entry, Log, Stretch, Topics, Trim};
pub use presence::{Held, Hold, Presence, PresenceKey, Raise, Roster, Stray};
pub use row::{
    ApiKey, Deadline, Document, DocumentKey, Node, Page, Row, RowKey, RowKind, StoredSession, Versioned,
    Writer,
};
pub use social::{Edge, Follow, Person, Seen, User};
pub use store::{
    Answer, Commit, Expect, Found, Inbox, NodeChange, Proof, Read, Receipt, Store, StoreError, Ticket, Work,
};
pub use subject::{Subject, SubjectError};
