//! The stored progress of a delivery.

use super::RecordError;
use serde::{Deserialize, Serialize};
use tavern_domain::Time;
use tavern_domain::delivery::{
    Batch, DeliveryOutcome, Last, Mark, Progress, Reason, Run, Shed, Trouble, Why,
};

#[derive(Serialize, Deserialize)]
struct Kept {
    sealed: Place,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shed: Option<(Place, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    batches: Vec<KeptBatch>,
    numbered: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trouble: Option<KeptTrouble>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disabled: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<(u64, String, String)>,
}

/// Number and position.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Place(u64, u64);

#[derive(Serialize, Deserialize)]
struct KeptBatch {
    number: u64,
    runs: Vec<KeptRun>,
    reason: String,
    accepted: u64,
    attempts: u32,
    refusals: u32,
    suspect: bool,
}

#[derive(Serialize, Deserialize)]
struct KeptRun {
    after: Place,
    first: u64,
    last: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gap: bool,
}

#[derive(Serialize, Deserialize)]
struct KeptTrouble {
    failing_since: Option<u64>,
    failures: u32,
    retry_at: u64,
}

pub fn write_progress(progress: &Progress) -> Vec<u8> {
    super::write(&Kept {
        sealed: place(progress.sealed),
        shed: progress.shed.map(|shed| (place(shed.through), shed.at.ms())),
        batches: progress.batches.iter().map(kept_batch).collect(),
        numbered: progress.numbered,
        trouble: progress.trouble.map(|trouble| KeptTrouble {
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
    let kept: Kept = super::read(bytes)?;
    let last = kept.last.map(|(at, reason, outcome)| {
        let reason = Reason::parse(&reason).ok_or(RecordError::Word)?;
        let outcome = DeliveryOutcome::parse(&outcome).ok_or(RecordError::Word)?;
        Ok::<_, RecordError>(Last { at: Time(at), reason, outcome })
    });
    Ok(Progress {
        sealed: mark(kept.sealed),
        shed: kept.shed.map(|(through, at)| Shed { through: mark(through), at: Time(at) }),
        batches: kept.batches.into_iter().map(batch).collect::<Result<_, _>>()?,
        numbered: kept.numbered,
        trouble: kept.trouble.map(|trouble| Trouble {
            failing_since: trouble.failing_since.map(Time),
            failures: trouble.failures,
            retry_at: Time(trouble.retry_at),
        }),
        disabled: kept.disabled.map(|why| Why::parse(&why).ok_or(RecordError::Word)).transpose()?,
        last: last.transpose()?,
    })
}

fn place(mark: Mark) -> Place {
    Place(mark.seq, mark.position)
}

fn mark(place: Place) -> Mark {
    Mark { seq: place.0, position: place.1 }
}

fn kept_batch(batch: &Batch) -> KeptBatch {
    let run = |run: &Run| KeptRun { after: place(run.after), first: run.first, last: run.last, gap: run.gap };
    KeptBatch {
        number: batch.number,
        runs: batch.runs.iter().map(run).collect(),
        reason: batch.reason.as_str().to_owned(),
        accepted: batch.accepted.ms(),
        attempts: batch.attempts,
        refusals: batch.refusals,
        suspect: batch.suspect,
    }
}

fn batch(kept: KeptBatch) -> Result<Batch, RecordError> {
    let run = |kept: KeptRun| {
        let run = Run { after: mark(kept.after), first: kept.first, last: kept.last, gap: kept.gap };
        (run.first <= run.last && run.after.seq < run.first).then_some(run).ok_or(RecordError::Run)
    };
    Ok(Batch {
        number: kept.number,
        runs: kept.runs.into_iter().map(run).collect::<Result<_, _>>()?,
        reason: Reason::parse(&kept.reason).ok_or(RecordError::Word)?,
        accepted: Time(kept.accepted),
        attempts: kept.attempts,
        refusals: kept.refusals,
        suspect: kept.suspect,
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
