//! The stored progress of a delivery.

use super::RecordError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{
    AttemptError, Batch, BatchReason, DeliveryOutcome, DeliveryProgress, DisabledReason, DroppedEvents,
    EndpointFailure, EntryRange, LastAttempt, LogMark,
};

#[derive(Serialize, Deserialize)]
struct StoredProgress {
    sealed: StoredMark,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shed: Option<(StoredMark, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    batches: Vec<StoredBatch>,
    numbered: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<StoredFailure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disabled: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<StoredAttempt>,
    /// When, and the words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<(u64, Arc<str>)>,
}

#[derive(Serialize, Deserialize)]
struct StoredAttempt {
    number: u64,
    at: u64,
    reason: String,
    outcome: String,
}

/// Number and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredMark(u64, u64);

#[derive(Serialize, Deserialize)]
struct StoredBatch {
    number: u64,
    runs: Vec<StoredRange>,
    reason: String,
    accepted: u64,
    attempts: u32,
    refusals: u32,
    suspect: bool,
}

/// A range of the entries of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRange {
    after: StoredMark,
    first: u64,
    last: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gap: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredFailure {
    failing_since: Option<u64>,
    failures: u32,
    retry_at: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    refused_in_row: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub fn write_progress(progress: &DeliveryProgress) -> Vec<u8> {
    super::write(&StoredProgress {
        sealed: stored_mark(progress.sealed),
        shed: progress.dropped.map(|shed| (stored_mark(shed.through), shed.at.ms())),
        batches: progress.batches.iter().map(stored_batch).collect(),
        numbered: progress.numbered,
        failure: progress.failure.map(|failure| StoredFailure {
            failing_since: failure.failing_since.map(Time::ms),
            failures: failure.failures,
            retry_at: failure.retry_at.ms(),
            refused_in_row: failure.refused_in_row,
        }),
        disabled: progress.disabled.map(|why| why.as_str().to_owned()),
        last: progress.last.map(|last| StoredAttempt {
            number: last.number,
            at: last.at.ms(),
            reason: last.reason.as_str().to_owned(),
            outcome: last.outcome.as_str().to_owned(),
        }),
        last_error: progress.last_error.as_ref().map(|error| (error.at.ms(), error.text.clone())),
    })
}

pub fn read_progress(bytes: &[u8]) -> Result<DeliveryProgress, RecordError> {
    let stored: StoredProgress = super::read(bytes)?;
    let last = stored.last.map(|last| {
        let reason = BatchReason::parse(&last.reason).ok_or(RecordError::Word)?;
        let outcome = DeliveryOutcome::parse(&last.outcome).ok_or(RecordError::Word)?;
        Ok::<_, RecordError>(LastAttempt { number: last.number, at: Time(last.at), reason, outcome })
    });
    Ok(DeliveryProgress {
        sealed: mark(stored.sealed),
        dropped: stored.shed.map(|(through, at)| DroppedEvents { through: mark(through), at: Time(at) }),
        batches: stored.batches.into_iter().map(batch).collect::<Result<_, _>>()?,
        numbered: stored.numbered,
        failure: stored.failure.map(|failure| EndpointFailure {
            failing_since: failure.failing_since.map(Time),
            failures: failure.failures,
            retry_at: Time(failure.retry_at),
            refused_in_row: failure.refused_in_row,
        }),
        disabled: stored
            .disabled
            .map(|why| DisabledReason::parse(&why).ok_or(RecordError::Word))
            .transpose()?,
        last: last.transpose()?,
        last_error: stored.last_error.map(|(at, text)| AttemptError { at: Time(at), text }),
    })
}

fn stored_mark(mark: LogMark) -> StoredMark {
    StoredMark(mark.seq, mark.position)
}

fn mark(stored_mark: StoredMark) -> LogMark {
    LogMark { seq: stored_mark.0, position: stored_mark.1 }
}

impl StoredRange {
    pub fn of(run: &EntryRange) -> StoredRange {
        StoredRange { after: stored_mark(run.after), first: run.first, last: run.last, gap: run.gap }
    }

    pub fn range(&self) -> Result<EntryRange, RecordError> {
        let run = EntryRange { after: mark(self.after), first: self.first, last: self.last, gap: self.gap };
        (run.first <= run.last && run.after.seq < run.first).then_some(run).ok_or(RecordError::Run)
    }
}

fn stored_batch(batch: &Batch) -> StoredBatch {
    StoredBatch {
        number: batch.number,
        runs: batch.ranges.iter().map(StoredRange::of).collect(),
        reason: batch.reason.as_str().to_owned(),
        accepted: batch.accepted.ms(),
        attempts: batch.attempts,
        refusals: batch.refusals,
        suspect: batch.suspect,
    }
}

fn batch(stored: StoredBatch) -> Result<Batch, RecordError> {
    Ok(Batch {
        number: stored.number,
        ranges: stored.runs.iter().map(StoredRange::range).collect::<Result<_, _>>()?,
        reason: BatchReason::parse(&stored.reason).ok_or(RecordError::Word)?,
        accepted: Time(stored.accepted),
        attempts: stored.attempts,
        refusals: stored.refusals,
        suspect: stored.suspect,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_back() {
        let bare = DeliveryProgress::starting(LogMark { seq: 3, position: 9 });
        assert_eq!(read_progress(&write_progress(&bare)).unwrap(), bare);
        let run = EntryRange { after: LogMark { seq: 3, position: 9 }, first: 4, last: 6, gap: false };
        let whole = DeliveryProgress {
            dropped: Some(DroppedEvents { through: LogMark { seq: 9, position: 30 }, at: Time(7) }),
            batches: vec![Batch {
                number: 2,
                ranges: vec![run, EntryRange { first: 8, last: 8, gap: true, ..run }],
                reason: BatchReason::Bytes,
                accepted: Time(5),
                attempts: 3,
                refusals: 1,
                suspect: true,
            }],
            numbered: 2,
            failure: Some(EndpointFailure {
                failing_since: Some(Time(1)),
                failures: 4,
                retry_at: Time(8),
                refused_in_row: 3,
            }),
            disabled: Some(DisabledReason::Gone),
            last: Some(LastAttempt {
                number: 3,
                at: Time(6),
                reason: BatchReason::Probe,
                outcome: DeliveryOutcome::Throttled,
            }),
            last_error: Some(AttemptError { at: Time(6), text: "503".into() }),
            ..bare
        };
        assert_eq!(read_progress(&write_progress(&whole)).unwrap(), whole);
    }

    #[test]
    fn invalid_progress_is_refused() {
        let text = String::from_utf8(write_progress(&DeliveryProgress {
            disabled: Some(DisabledReason::Asked),
            ..DeliveryProgress::default()
        }));
        let strange = text.unwrap().replace("asked", "tired");
        assert!(read_progress(strange.as_bytes()).is_err());
        assert!(read_progress(b"{}").is_err());
    }
}
