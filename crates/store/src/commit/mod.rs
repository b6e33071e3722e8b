//! Commits: what they change (`change`), their limits (`check`), and the one algorithm that applies them (`apply`)
//! over the tables of an engine (`tables`).

mod apply;
mod change;
mod check;
mod history;
mod inbox;
mod lease;
mod log;
mod node;
mod tables;
mod version;

pub use apply::apply;
pub use change::{ChangedChannel, ChangedRow, CloseProof, Commit, Expect, NodeChange, Receipt};
pub use tables::{HistoryBounds, HistoryHead, InboxCounts, LeaseState, RemovedMessages, Tables};
pub use version::VersionClock;
