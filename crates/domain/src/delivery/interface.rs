//! The inputs and effects of a delivery, and its settings.

use super::batch::{EntryRange, LogMark};
use super::progress::{BatchReason, DisabledReason};
use super::reply::EndpointReply;
use crate::time::Time;
use alloc::vec::Vec;

/// The settings of one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryRules {
    /// How long an event may wait for its batch to fill.
    pub timeout_ms: u64,
    pub max_events: u32,
    /// Bytes of a whole body.
    pub max_bytes: u64,
    /// Bytes of a body that are not entries, at most.
    pub envelope_bytes: u32,
    /// Batches in flight at once.
    pub concurrency: u32,
}

impl DeliveryRules {
    /// Bytes for the entries of a body.
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
pub struct QueuedEvent {
    pub seq: u64,
    pub position: u64,
    /// Encoded, with its separator.
    pub bytes: u32,
    pub accepted: Time,
}

/// A dead letter to retry, with its encoded size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetriedDeadLetter {
    pub run: EntryRange,
    pub bytes: u32,
}

#[derive(Clone, Debug)]
pub enum DeliveryInput {
    /// Events from the log, in order. Those that do not follow the events held here are ignored: see `want`.
    Items(Vec<QueuedEvent>),
    /// The last `Save` is durable.
    Saved,
    /// An attempt has ended. Every attempt that was started must end.
    Answered {
        batch: u64,
        reply: EndpointReply<u64>,
        random: u64,
    },
    Rules(DeliveryRules),
    /// Send again at once, regardless of earlier failures.
    Enable,
    Disable,
    /// Replay: send everything after this mark again.
    Rewind(LogMark),
    /// Retention removed the log up to here: events that are in no batch become a gap.
    Shed {
        through: LogMark,
    },
    Retry(Vec<RetriedDeadLetter>),
    /// The node stops: nothing new is started.
    Stop,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryEffect {
    /// Store `progress()` as it is now, in one commit with these dead letters: newly parked, or taken back (by seq). There
    /// is no other save until `Saved`.
    Save {
        parked: Vec<EntryRange>,
        retried: Vec<u64>,
    },
    Disabled(DisabledReason),
    /// The endpoint works again.
    Recovered,
    /// These will never be delivered; a gap entry reports them.
    Lost {
        first: u64,
        last: u64,
    },
}

/// What to read from the log: the events after a mark, at least one if there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRequest {
    pub after: LogMark,
    pub events: u32,
    /// Stop reading once this many bytes are reached.
    pub bytes: u64,
}

/// An attempt for the hub to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptStart {
    pub batch: u64,
    /// From 1.
    pub attempt: u32,
    pub reason: BatchReason,
}
