//! The contract of a store: one method takes commits and reads; answers go to a receiver. No async runtime, no rules.
//! Must hold: each submitted work gets exactly one answer, also after a failure; a commit is all or nothing.

use crate::commit::{Commit, Receipt};
use crate::error::StoreError;
use crate::read::{Found, Read};

/// Identifies one submitted work and its answer. Chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Implemented by an engine that stores rows. The example of this crate shows how it is used.
pub trait Store: Send + Sync {
    /// Takes independent works. Never blocks. Answers arrive in the receiver, one per work, in any order;
    /// a read submitted after a commit was answered sees that commit.
    fn submit(&self, work: Vec<(Ticket, Work)>);

    fn name(&self) -> &'static str;

    /// Whether its time comes from a server that all nodes share, and not from the clock it was opened with.
    fn has_shared_clock(&self) -> bool;

    /// Grows with every new connection to a server that may have restarted, failed over or lost writes since.
    fn reconnects(&self) -> u64 {
        0
    }

    /// After a crash or a failover its server may lack writes that were acknowledged.
    fn may_lose_writes(&self) -> bool {
        false
    }

    /// Finishes what was submitted, then joins the threads. Later work is answered `Unavailable`. Must not be called
    /// by the receiver.
    fn stop(&self);
}

/// Given to an engine when it is opened. Must be quick and must not wait for the engine.
pub trait AnswerReceiver: Send + Sync {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>);
}

/// One piece of work for a store.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most works are commits: a box each would cost more than it saves"
)]
pub enum Work {
    Commit(Commit),
    Read(Read),
}

impl Work {
    /// Its size in a queue that is bounded by bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Work::Commit(commit) => commit.bytes(),
            Work::Read(_) => 64,
        }
    }
}

/// The answer to one work.
#[derive(Clone, Debug)]
pub enum StoreAnswer {
    Committed(Receipt),
    Read(Found),
    Failed(StoreError),
}
