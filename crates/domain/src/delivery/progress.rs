//! The stored part of a delivery: the cursor, the sealed batches, the state of the endpoint. Another worker can continue from
//! it. A subscription that is pulled has only the cursor.
//! Must hold: every event up to `sealed` is in a batch, settled or parked; what was shed follows `sealed` and becomes a gap.

use super::backoff::Trouble;
use super::batch::{Batch, Mark, Run};
use super::reply::DeliveryOutcome;
use crate::time::Time;
use alloc::vec::Vec;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Everything up to here is in a batch or settled.
    pub sealed: Mark,
    /// What follows `sealed` was dropped, up to here: a gap comes next.
    pub shed: Option<Shed>,
    /// Sealed and not settled, in the order in which they are sent.
    pub batches: Vec<Batch>,
    /// The number of the last batch that was made.
    pub numbered: u64,
    pub trouble: Option<Trouble>,
    pub disabled: Option<Why>,
    pub last: Option<Last>,
}

/// Events that were dropped before they were in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    pub through: Mark,
    /// When it was dropped; the age of the gap counts from here.
    pub at: Time,
}

/// Why a subscription is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Asked,
    Gone,
    Failing,
}

impl Why {
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Asked => "asked",
            Why::Gone => "gone",
            Why::Failing => "failing",
        }
    }

    pub fn parse(text: &str) -> Option<Why> {
        [Why::Asked, Why::Gone, Why::Failing].into_iter().find(|why| why.as_str() == text)
    }
}

/// Why a batch was sealed, or that it is sent as a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
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

impl Reason {
    pub const ALL: [Reason; 6] =
        [Reason::Full, Reason::Bytes, Reason::Age, Reason::Recut, Reason::Retry, Reason::Probe];

    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Full => "full",
            Reason::Bytes => "bytes",
            Reason::Age => "age",
            Reason::Recut => "recut",
            Reason::Retry => "retry",
            Reason::Probe => "probe",
        }
    }

    pub fn parse(text: &str) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.as_str() == text)
    }
}

/// The last attempt that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    pub at: Time,
    pub reason: Reason,
    pub outcome: DeliveryOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Healthy,
    Throttled,
    Failing,
    Disabled(Why),
}

impl Progress {
    /// The progress of a subscription that begins after this mark.
    pub fn starting(after: Mark) -> Progress {
        Progress { sealed: after, ..Progress::default() }
    }

    pub fn health(&self) -> Health {
        match (self.disabled, self.trouble) {
            (Some(why), _) => Health::Disabled(why),
            (None, Some(Trouble { failing_since: Some(_), .. })) => Health::Failing,
            (None, Some(_)) => Health::Throttled,
            (None, None) => Health::Healthy,
        }
    }

    /// The end of what is sealed or shed.
    pub fn reached(&self) -> Mark {
        self.shed.map_or(self.sealed, |shed| shed.through)
    }

    /// How many entries are queued, if the subscription's last event has this seq.
    pub fn queued(&self, head_seq: u64) -> u64 {
        let sealed: u64 = self.batches.iter().map(Batch::entries).sum();
        sealed + u64::from(self.shed.is_some()) + head_seq.saturating_sub(self.reached().seq)
    }

    /// A pulling client acknowledged everything up to here. False: it had before.
    pub fn acknowledge(&mut self, through: Mark) -> bool {
        if through.seq <= self.sealed.seq {
            return false;
        }
        self.sealed = through;
        self.shed = self.shed.filter(|shed| shed.through.seq > through.seq);
        true
    }

    /// Retention removed the log up to here. Returns the seqs of events that were not shed or sealed before.
    pub fn shed(&mut self, now: Time, through: Mark) -> Option<(u64, u64)> {
        let first = self.reached().seq + 1;
        if through.seq < first {
            return None;
        }
        self.shed = Some(Shed { through, at: self.shed.map_or(now, |shed| shed.at) });
        Some((first, through.seq))
    }

    /// Replay: everything after this mark comes again, in new batches. False: the cursor is not past it.
    /// A batch that holds an event from before the mark stays, or that event would be lost.
    pub fn rewind(&mut self, to: Mark) -> bool {
        if to.seq >= self.sealed.seq {
            return false;
        }
        self.sealed = to;
        self.shed = None;
        self.batches.retain(|batch| batch.runs.iter().any(|run| run.first <= to.seq));
        true
    }

    /// Since when there is a gap to deliver.
    pub(super) fn gap_since(&self) -> Option<Time> {
        self.shed.map(|shed| shed.at)
    }

    /// The gap entry for what was shed.
    pub(super) fn gap(&self) -> Option<Run> {
        let shed = self.shed?;
        Some(Run { after: self.sealed, first: self.sealed.seq + 1, last: shed.through.seq, gap: true })
    }

    pub(super) fn holds(&self, seq: u64) -> bool {
        let mut runs = self.batches.iter().flat_map(|batch| &batch.runs);
        runs.any(|run| (run.first..=run.last).contains(&seq))
    }

    pub(super) fn find(&self, number: u64) -> Option<usize> {
        self.batches.iter().position(|batch| batch.number == number)
    }
}
