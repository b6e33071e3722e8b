//! What of a delivery outlasts its worker: the cursor, the sealed batches, the state of the endpoint. The hub keeps it in a
//! document; another worker continues from it. A subscription that is pulled has nothing but the cursor.
//! Must hold: every event through `sealed` is in a batch, settled or parked; what was shed lies behind `sealed` and is told.

use super::batch::{Batch, Mark, Run};
use super::trouble::Trouble;
use crate::time::Time;
use alloc::vec::Vec;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Everything through here is in a batch or settled.
    pub sealed: Mark,
    /// What follows `sealed` was dropped, through here: a gap comes next.
    pub shed: Option<Shed>,
    /// Sealed and not settled, in the order in which they are sent.
    pub batches: Vec<Batch>,
    /// How many batches were ever cut: the number of the last one.
    pub numbered: u64,
    pub trouble: Option<Trouble>,
    pub disabled: Option<Why>,
    pub last: Option<Last>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed {
    pub through: Mark,
    /// When; the age of the gap counts from here.
    pub at: Time,
}

/// Why nothing is sent.
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

/// Why a batch left: how it was sealed, or that it is a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Full,
    Bytes,
    Age,
    /// Cut out of another batch: a half, or what its endpoint named as failed.
    Recut,
    /// Dead letters that are tried again.
    Retry,
    /// Sent alone, to an endpoint that did not take the last attempt. No batch is sealed for it.
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

/// What an endpoint made of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Delivered,
    Partly,
    Gone,
    TooLarge,
    Throttled,
    Refused,
    Failed,
}

impl Verdict {
    pub const ALL: [Verdict; 7] = [
        Verdict::Delivered,
        Verdict::Partly,
        Verdict::Gone,
        Verdict::TooLarge,
        Verdict::Throttled,
        Verdict::Refused,
        Verdict::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Delivered => "delivered",
            Verdict::Partly => "partly",
            Verdict::Gone => "gone",
            Verdict::TooLarge => "too_large",
            Verdict::Throttled => "throttled",
            Verdict::Refused => "refused",
            Verdict::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<Verdict> {
        Verdict::ALL.into_iter().find(|verdict| verdict.as_str() == text)
    }
}

/// The last attempt that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    pub at: Time,
    pub reason: Reason,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    Healthy,
    Throttled,
    Failing,
    Disabled(Why),
}

impl Progress {
    /// A subscription that begins after this mark.
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

    /// Where what is neither sealed nor shed begins.
    pub fn reached(&self) -> Mark {
        self.shed.map_or(self.sealed, |shed| shed.through)
    }

    /// How many entries wait, if the subscription's last event has this seq.
    pub fn queued(&self, head_seq: u64) -> u64 {
        let sealed: u64 = self.batches.iter().map(Batch::entries).sum();
        sealed + u64::from(self.shed.is_some()) + head_seq.saturating_sub(self.reached().seq)
    }

    /// Who pulls has everything through here. False: that was known.
    pub fn acknowledge(&mut self, through: Mark) -> bool {
        if through.seq <= self.sealed.seq {
            return false;
        }
        self.sealed = through;
        self.shed = self.shed.filter(|shed| shed.through.seq > through.seq);
        true
    }

    /// The log lost everything through here: gives the seqs of those that were not lost or sealed before.
    pub fn shed(&mut self, now: Time, through: Mark) -> Option<(u64, u64)> {
        let first = self.reached().seq + 1;
        if through.seq < first {
            return None;
        }
        self.shed = Some(Shed { through, at: self.shed.map_or(now, |shed| shed.at) });
        Some((first, through.seq))
    }

    /// Replay: everything after this mark comes again, in new batches. False: it did not come yet.
    /// A batch that holds anything from before the mark stays, or that would be lost.
    pub fn rewind(&mut self, to: Mark) -> bool {
        if to.seq >= self.sealed.seq {
            return false;
        }
        self.sealed = to;
        self.shed = None;
        self.batches.retain(|batch| batch.runs.iter().any(|run| run.first <= to.seq));
        true
    }

    /// The entry that stands for what was shed.
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
