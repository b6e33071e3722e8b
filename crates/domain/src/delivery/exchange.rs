//! What the hub and a delivery tell each other. Nothing here decides.

use super::batch::{Mark, Run};
use super::progress::{Reason, Verdict, Why};
use crate::time::Time;
use alloc::vec::Vec;

/// The subscription's own settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub timeout_ms: u64,
    pub max_events: u32,
    /// Of a whole body.
    pub max_bytes: u64,
    /// At most so many bytes of a body are not entries.
    pub envelope_bytes: u32,
    pub concurrency: u32,
}

impl Rules {
    /// For the entries of a body.
    pub(super) fn room(&self) -> u64 {
        self.max_bytes.saturating_sub(u64::from(self.envelope_bytes))
    }

    pub(super) fn entries(&self) -> u64 {
        u64::from(self.max_events.max(1))
    }

    pub(super) fn lanes(&self) -> usize {
        usize::try_from(self.concurrency.max(1)).unwrap_or(usize::MAX)
    }
}

/// An event as read from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub seq: u64,
    pub position: u64,
    /// Encoded, with its separator.
    pub bytes: u32,
    pub accepted: Time,
}

/// A dead letter, as it was parked, with its encoded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    pub run: Run,
    pub bytes: u32,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// Events from the log, in order. What does not follow the events that are here is ignored: `want` tells.
    Items(Vec<Item>),
    /// What the last `Save` asked for is durable.
    Saved,
    /// An attempt has ended. Each that was started must, or be forgotten with the whole machine.
    Answered {
        batch: u64,
        outcome: Outcome,
        roll: u64,
    },
    Rules(Rules),
    /// Sends again, and at once, whatever the endpoint did before.
    Enable,
    Disable,
    /// Replay: everything after this mark comes again.
    Rewind(Mark),
    /// The log, or the subscription's share of it, ends here: whatever is in no batch becomes a gap.
    Shed {
        through: Mark,
    },
    Retry(Vec<Letter>),
    /// The node stops: nothing new begins. It may let go when at rest, or any time.
    Stop,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Any 2xx.
    Delivered,
    /// A 2xx that names entries to send again, by their seq.
    Partly { failed: Vec<u64> },
    /// 410.
    Gone,
    /// 413.
    TooLarge,
    /// 429 and 503, with the `Retry-After` if there was one.
    Throttled { after_ms: Option<u64> },
    /// Any other 4xx.
    Refused,
    /// Everything else: 5xx, 3xx, no answer, no connection.
    Failed,
}

impl Outcome {
    pub fn verdict(&self) -> Verdict {
        match self {
            Outcome::Delivered => Verdict::Delivered,
            Outcome::Partly { .. } => Verdict::Partly,
            Outcome::Gone => Verdict::Gone,
            Outcome::TooLarge => Verdict::TooLarge,
            Outcome::Throttled { .. } => Verdict::Throttled,
            Outcome::Refused => Verdict::Refused,
            Outcome::Failed => Verdict::Failed,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `progress()` as it is now must become durable, in one commit with these dead letters, parked anew or taken back
    /// (by seq). There is no other until `Saved`.
    Save {
        parked: Vec<Run>,
        retried: Vec<u64>,
    },
    Disabled(Why),
    /// The endpoint took an attempt after some that were in vain.
    Recovered,
    /// These will never be delivered; a gap will tell.
    Lost {
        first: u64,
        last: u64,
    },
}

/// What to read from the log: the events after a mark, at least one if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    pub after: Mark,
    pub events: u32,
    /// Enough, once this much is reached.
    pub bytes: u64,
}

/// An attempt that the hub carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    pub batch: u64,
    /// From 1.
    pub attempt: u32,
    pub reason: Reason,
}
