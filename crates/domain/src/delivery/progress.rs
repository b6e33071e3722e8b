//! The stored part of a delivery: the cursor, the sealed batches, the state of the endpoint. Another worker can continue from
//! it. A subscription that is pulled has only the cursor.
//! Must hold: every event up to `sealed` is in a batch, settled or parked; what was shed follows `sealed` and becomes a gap.

use super::backoff::EndpointFailure;
use super::batch::{Batch, EntryRange, LogMark};
use super::reply::DeliveryOutcome;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryProgress {
    /// Everything up to here is in a batch or settled.
    pub sealed: LogMark,
    /// Events after `sealed` that were dropped: the next entry is a gap.
    pub dropped: Option<DroppedEvents>,
    /// Sealed and not settled, in the order in which they are sent.
    pub batches: Vec<Batch>,
    /// The number of the last batch.
    pub numbered: u64,
    pub failure: Option<EndpointFailure>,
    pub disabled: Option<DisabledReason>,
    pub last: Option<LastAttempt>,
    /// The error of the last failed attempt.
    pub last_error: Option<AttemptError>,
}

/// Events that were dropped before they were in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedEvents {
    pub through: LogMark,
    /// When it was dropped; the age of the gap counts from here.
    pub at: Time,
}

/// Why a subscription is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisabledReason {
    Asked,
    Gone,
    Failing,
}

impl DisabledReason {
    pub fn as_str(self) -> &'static str {
        match self {
            DisabledReason::Asked => "asked",
            DisabledReason::Gone => "gone",
            DisabledReason::Failing => "failing",
        }
    }

    pub fn parse(text: &str) -> Option<DisabledReason> {
        [DisabledReason::Asked, DisabledReason::Gone, DisabledReason::Failing]
            .into_iter()
            .find(|why| why.as_str() == text)
    }
}

/// Why a batch was sealed, or that it is sent as a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchReason {
    Full,
    Bytes,
    Age,
    /// Part of another batch: a half, or what the endpoint reported as failed.
    Recut,
    /// Dead letters that are retried.
    Retry,
    /// Sent alone, to an endpoint whose last attempt failed.
    Probe,
}

impl BatchReason {
    pub const ALL: [BatchReason; 6] = [
        BatchReason::Full,
        BatchReason::Bytes,
        BatchReason::Age,
        BatchReason::Recut,
        BatchReason::Retry,
        BatchReason::Probe,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            BatchReason::Full => "full",
            BatchReason::Bytes => "bytes",
            BatchReason::Age => "age",
            BatchReason::Recut => "recut",
            BatchReason::Retry => "retry",
            BatchReason::Probe => "probe",
        }
    }

    pub fn parse(text: &str) -> Option<BatchReason> {
        BatchReason::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// The last attempt that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAttempt {
    /// Attempts of a subscription are numbered from 1.
    pub number: u64,
    pub at: Time,
    pub reason: BatchReason,
    pub outcome: DeliveryOutcome,
}

/// Why an attempt failed, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptError {
    pub at: Time,
    pub text: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscriptionHealth {
    Healthy,
    Throttled,
    Failing,
    Disabled(DisabledReason),
}

impl DeliveryProgress {
    /// The progress of a subscription that begins after this mark.
    pub fn starting(after: LogMark) -> DeliveryProgress {
        DeliveryProgress { sealed: after, ..DeliveryProgress::default() }
    }

    /// The number of the last attempt; 0: there was none.
    pub fn attempted(&self) -> u64 {
        self.last.map_or(0, |last| last.number)
    }

    pub fn health(&self) -> SubscriptionHealth {
        match (self.disabled, self.failure) {
            (Some(why), _) => SubscriptionHealth::Disabled(why),
            (None, Some(EndpointFailure { failing_since: Some(_), .. })) => SubscriptionHealth::Failing,
            (None, Some(_)) => SubscriptionHealth::Throttled,
            (None, None) => SubscriptionHealth::Healthy,
        }
    }

    /// The end of what is sealed or shed.
    pub fn reached(&self) -> LogMark {
        self.dropped.map_or(self.sealed, |shed| shed.through)
    }

    /// How many entries are queued, if the subscription's last event has this seq.
    pub fn queued(&self, head_seq: u64) -> u64 {
        let sealed: u64 = self.batches.iter().map(Batch::entries).sum();
        sealed + u64::from(self.dropped.is_some()) + head_seq.saturating_sub(self.reached().seq)
    }

    /// A pulling client acknowledged everything up to here. False: it was already acknowledged.
    pub fn acknowledge(&mut self, through: LogMark) -> bool {
        if through.seq <= self.sealed.seq {
            return false;
        }
        self.sealed = through;
        self.dropped = self.dropped.filter(|shed| shed.through.seq > through.seq);
        true
    }

    /// Retention removed the log up to here. Returns the seqs of events that were not shed or sealed before.
    pub fn shed(&mut self, now: Time, through: LogMark) -> Option<(u64, u64)> {
        let first = self.reached().seq + 1;
        if through.seq < first {
            return None;
        }
        self.dropped = Some(DroppedEvents { through, at: self.dropped.map_or(now, |shed| shed.at) });
        Some((first, through.seq))
    }

    /// Replay: everything after this mark is sent again, in new batches. False: the cursor has not passed it. A batch
    /// with an event from before the mark stays; otherwise that event would be lost.
    pub fn rewind(&mut self, to: LogMark) -> bool {
        if to.seq >= self.sealed.seq {
            return false;
        }
        self.sealed = to;
        self.dropped = None;
        self.batches.retain(|batch| batch.ranges.iter().any(|run| run.first <= to.seq));
        true
    }

    /// Since when there is a gap to deliver.
    pub(super) fn gap_since(&self) -> Option<Time> {
        self.dropped.map(|shed| shed.at)
    }

    /// The gap entry for what was shed.
    pub(super) fn gap(&self) -> Option<EntryRange> {
        let shed = self.dropped?;
        Some(EntryRange { after: self.sealed, first: self.sealed.seq + 1, last: shed.through.seq, gap: true })
    }

    pub(super) fn holds(&self, seq: u64) -> bool {
        let mut runs = self.batches.iter().flat_map(|batch| &batch.ranges);
        runs.any(|run| (run.first..=run.last).contains(&seq))
    }

    pub(super) fn find(&self, number: u64) -> Option<usize> {
        self.batches.iter().position(|batch| batch.number == number)
    }
}
