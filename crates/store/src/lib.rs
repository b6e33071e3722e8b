//! The contract of a store and a bus, the in-memory engine and the conformance suite.
//! Engines decide nothing: they order (versions) and arbitrate (conflicts).
//!
//! | module | holds |
//! |---|---|
//! | `store` | the contract: `submit` work, answers arrive in a receiver |
//! | `commit/` | `Commit` and `Receipt`, their bounds, and the one algorithm that applies a commit |
//! | `read`, `error` | typed reads, and what can go wrong |
//! | `row` | all kinds of rows and their keys |
//! | `key`, `session`, `document`, `presence`, `social`, `lease`, `deadline`, `node` | the rows |
//! | `log`, `inbox`, `history` | what is appended: the log of topics, the inboxes of users, the history of channels |
//! | `page`, `limits` | versions and pages of lists; bounds |
//! | `body` | how a stored session encodes its subscriptions, rights and mailbox |
//! | `bus`, `subject`, `interest` | the contract of the bus, the names it routes by, what a node listens to |
//! | `memory/` | the in-memory store and bus, with fault injection |
//! | `conformance/` | what every engine must do, as cases that run against each of them |
//! | `planted` | faults that the tests must find, in builds with the feature `planted-faults` |
//! | `blocking` | waits for single answers, for tools and tests |
//!
//! The drivers are in `tavern-engines`.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tavern_store::blocking::BlockingStore;
//! use tavern_store::memory::MemoryEngine;
//! use tavern_store::{Commit, Document, DocumentKey, Expect, Found, Read, Row, RowKey, StoreError, SystemClock};
//!
//! let engine = MemoryEngine::new(Arc::new(SystemClock));
//! let store = BlockingStore::with(Duration::from_secs(1), |answers| Ok(engine.store("n1", answers)))?;
//!
//! let key = DocumentKey::new("thing", "a");
//! let row = Row::Document(Document { key: key.clone(), body: Arc::from(*b"hello") });
//! let receipt = store.commit(Commit { puts: vec![row.clone()], ..Commit::default() })?;
//!
//! // A commit that expects a version is refused when the row has another.
//! let expects = vec![Expect { key: RowKey::Document(key.clone()), version: receipt.put[0].version + 1 }];
//! let refused = store.commit(Commit { expects, puts: vec![row], ..Commit::default() });
//! assert!(matches!(refused, Err(StoreError::Conflict { .. })));
//!
//! let Found::Document(Some(found)) = store.read(Read::Document(key))? else { panic!("it was put") };
//! assert_eq!((found.version, &*found.row.body), (receipt.put[0].version, &b"hello"[..]));
//! # Ok::<(), StoreError>(())
//! ```
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
//! engine promises. A difference between engines that a caller can see is a bug, or a named exclusion in the
//! conformance suite with its reason.
#![forbid(unsafe_code)]

pub mod blocking;
pub mod body;
pub mod bus;
pub mod clock;
pub mod commit;
pub mod conformance;
pub mod deadline;
pub mod document;
pub mod error;
pub mod history;
pub mod inbox;
pub mod interest;
pub mod key;
pub mod lease;
pub mod limits;
pub mod log;
pub mod memory;
pub mod node;
pub mod page;
pub mod planted;
pub mod presence;
pub mod read;
pub mod row;
pub mod session;
pub mod social;
pub mod store;
pub mod subject;
pub mod totals;

pub use body::SessionBody;
pub use bus::{Bus, BusCounts, BusError, BusLoss, BusPacket, BusReceiver};
pub use clock::{Clock, ManualClock, StillClock, SystemClock};
pub use commit::{ChangedChannel, ChangedRow, CloseProof, Commit, Expect, NodeChange, Receipt};
pub use deadline::Deadline;
pub use document::{Document, DocumentKey};
pub use error::StoreError;
pub use history::{
    HistoryAppended, HistoryClear, HistoryLimits, HistoryList, HistoryMessage, HistoryPage, HistoryPosition,
    HistorySender, HistorySummary, NewHistoryMessage,
};
pub use inbox::{FreedMessages, InboxMessage, InboxPage, NewInboxMessage};
pub use interest::Interest;
pub use key::ApiKey;
pub use lease::{Lease, TakeLease};
pub use log::{Append, Appended, LogEnds, LogEntry, LogPage, TopicPage, Trim};
pub use node::{NodeRow, Writer};
pub use page::{Page, Versioned};
pub use planted::{planted, planted_every};
pub use presence::{
    ChannelVersionBump, HeldPresence, PresenceHold, PresenceKey, PresencePage, PresenceRow, StalePresence,
};
pub use read::{Found, Read};
pub use row::{Row, RowKey, RowKind};
pub use session::StoredSession;
pub use social::{Follow, FollowRow, LastSeenUpdate, UserRow, UserSnapshot};
pub use store::{AnswerReceiver, Store, StoreAnswer, Ticket, Work};
pub use subject::{Subject, SubjectError};
pub use totals::StoreTotals;
