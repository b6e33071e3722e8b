//! Faults in stepped mode. The simulator and its seed decide them; the engine injects them.

use crate::bus::BusPacket;
use crate::store::Work;

/// Called once for each work, each recipient of a message and each subscribe. The default is no fault.
pub trait Faults: Send {
    fn work(&mut self, _node: &str, _work: &Work) -> WorkFault {
        WorkFault::NONE
    }

    fn message(&mut self, _from: &str, _to: &str, _message: &BusPacket) -> MessageFault {
        MessageFault::once()
    }

    /// How many milliseconds until it is confirmed; `None`: it is refused.
    fn subscribe(&mut self, _node: &str) -> Option<u64> {
        Some(0)
    }
}

/// No faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Faults for NoFaults {}

/// What happens to one submitted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkFault {
    /// How long the work is in flight, and how long its answer is.
    pub before_ms: u64,
    pub outcome: WorkOutcome,
    pub after_ms: u64,
}

/// Whether a work is done, and whether its caller gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOutcome {
    Perform,
    /// The work is not done, and the caller gets `Unavailable`.
    FailBefore,
    /// The work is done, but the caller gets `Unavailable`.
    FailAfter,
}

/// One entry for each copy that arrives, with its delay: none is a loss, two a duplicate, unequal delays of two
/// messages a reordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageFault {
    pub copies: Vec<u64>,
    /// The loss is reported to the recipient.
    pub reported: bool,
}

impl WorkFault {
    /// Done and answered at once.
    pub const NONE: WorkFault = WorkFault { before_ms: 0, outcome: WorkOutcome::Perform, after_ms: 0 };
}

impl MessageFault {
    /// Delivered once, at once.
    pub fn once() -> MessageFault {
        MessageFault { copies: vec![0], reported: false }
    }

    /// Lost, and not reported.
    pub fn lost() -> MessageFault {
        MessageFault { copies: Vec::new(), reported: false }
    }
}
