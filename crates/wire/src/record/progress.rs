//! The stored progress of a delivery.

use super::RecordError;
use serde::{Deserialize, Serialize};
use tavern_domain::Time;
use tavern_domain::delivery::{
    Batch, DeliveryOutcome, Last, Mark, Progress, Reason, Run, Shed, Trouble, Why,
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
    trouble: Option<StoredTrouble>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disabled: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<(u64, String, String)>,
}

/// Number and position.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct StoredMark(u64, u64);

#[derive(Serialize, Deserialize)]
struct StoredBatch {
    number: u64,
    runs: Vec<StoredRun>,
    reason: String,
    accepted: u64,
    attempts: u32,
    refusals: u32,
    suspect: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredRun {
    after: StoredMark,
    first: u64,
    last: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gap: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredTrouble {
    failing_since: Option<u64>,
    failures: u32,
    retry_at: u64,
}

pub fn write_progress(progress: &Progress) -> Vec<u8> {
    super::write(&StoredProgress {
        sealed: stored_mark(progress.sealed),
        shed: progress.shed.map(|shed| (stored_mark(shed.through), shed.at.ms())),
        batches: progress.batches.iter().map(stored_batch).collect(),
        numbered: progress.numbered,
        trouble: progress.trouble.map(|trouble| StoredTrouble {
            failing_since: trouble.failing_since.map(Time::ms),
            failures: trouble.failures,
            retry_at: trouble.retry_at.ms(),
        }),
        disabled: progress.disabled.map(|why| why.as_str().to_owned()),
        last: progress
            .last
            .map(|last| (last.at.ms(), last.reason.as_str().to_owned(), last.outcome.as_str().to_owned())),
    })
}

pub fn read_progress(bytes: &[u8]) -> Result<Progress, RecordError> {
    let stored: StoredProgress = super::read(bytes)?;
    let last = stored.last.map(|(at, reason, outcome)| {
        let reason = Reason::parse(&reason).ok_or(RecordError::Word)?;
        let outcome = DeliveryOutcome::parse(&outcome).ok_or(RecordError::Word)?;
        Ok::<_, RecordError>(Last { at: Time(at), reason, outcome })
    });
    Ok(Progress {
        sealed: mark(stored.sealed),
        shed: stored.shed.map(|(through, at)| Shed { through: mark(through), at: Time(at) }),
        batches: stored.batches.into_iter().map(batch).collect::<Result<_, _>>()?,
        numbered: stored.numbered,
        trouble: stored.trouble.map(|trouble| Trouble {
            failing_since: trouble.failing_since.map(Time),
            failures: trouble.failures,
            retry_at: Time(trouble.retry_at),
        }),
        disabled: stored.disabled.map(|why| Why::parse(&why).ok_or(RecordError::Word)).transpose()?,
        last: last.transpose()?,
    })
}

fn stored_mark(mark: Mark) -> StoredMark {
    StoredMark(mark.seq, mark.position)
}

fn mark(stored_mark: StoredMark) -> Mark {
    Mark { seq: stored_mark.0, position: stored_mark.1 }
}

fn stored_batch(batch: &Batch) -> StoredBatch {
    let run = |run: &Run| StoredRun {
        after: stored_mark(run.after),
        first: run.first,
        last: run.last,
        gap: run.gap,
    };
    StoredBatch {
        number: batch.number,
        runs: batch.runs.iter().map(run).collect(),
        reason: batch.reason.as_str().to_owned(),
        accepted: batch.accepted.ms(),
        attempts: batch.attempts,
        refusals: batch.refusals,
        suspect: batch.suspect,
    }
}

fn batch(stored: StoredBatch) -> Result<Batch, RecordError> {
    let run = |stored: StoredRun| {
        let run = Run { after: mark(stored.after), first: stored.first, last: stored.last, gap: stored.gap };
        (run.first <= run.last && run.after.seq < run.first).then_some(run).ok_or(RecordError::Run)
    };
    Ok(Batch {
        number: stored.number,
        runs: stored.runs.into_iter().map(run).collect::<Result<_, _>>()?,
        reason: Reason::parse(&stored.reason).ok_or(RecordError::Word)?,
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
        let bare = Progress::starting(Mark { seq: 3, position: 9 });
        assert_eq!(read_progress(&write_progress(&bare)).unwrap(), bare);
        let run = Run { after: Mark { seq: 3, position: 9 }, first: 4, last: 6, gap: false };
        let whole = Progress {
            shed: Some(Shed { through: Mark { seq: 9, position: 30 }, at: Time(7) }),
            batches: vec![Batch {
                number: 2,
                runs: vec![run, Run { first: 8, last: 8, gap: true, ..run }],
                reason: Reason::Bytes,
                accepted: Time(5),
                attempts: 3,
                refusals: 1,
                suspect: true,
            }],
            numbered: 2,
            trouble: Some(Trouble { failing_since: Some(Time(1)), failures: 4, retry_at: Time(8) }),
            disabled: Some(Why::Gone),
            last: Some(Last { at: Time(6), reason: Reason::Probe, outcome: DeliveryOutcome::Throttled }),
            ..bare
        };
        assert_eq!(read_progress(&write_progress(&whole)).unwrap(), whole);
    }

    #[test]
    fn invalid_progress_is_refused() {
        let text = String::from_utf8(write_progress(&Progress {
            disabled: Some(Why::Asked),
            ..Progress::default()
        }));
        let strange = text.unwrap().replace("asked", "tired");
        assert!(read_progress(strange.as_bytes()).is_err());
        assert!(read_progress(b"{}").is_err());
    }
}
