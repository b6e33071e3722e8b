//! The attempts of a queue that are not stored yet. They are stored with the next save of its progress, not in
//! commits of their own. Must hold: no more are buffered than are kept.

use super::post::AttemptAnswer;
use std::collections::VecDeque;
use tavern_domain::Time;
use tavern_domain::delivery::Batch;
use tavern_store::{Document, DocumentKey, Row};
use tavern_wire::record::{self, ATTEMPT, AttemptRecord, StoredRange};

#[derive(Default)]
pub(super) struct UnsavedAttempts(VecDeque<AttemptRecord>);

impl UnsavedAttempts {
    /// Adds an attempt that has just ended. `kept`: how many a subscription keeps.
    pub fn add(&mut self, attempt: AttemptRecord, kept: u64) {
        if kept > 0 {
            self.0.push_back(attempt);
        }
        while self.0.len() as u64 > kept {
            self.0.pop_front();
        }
    }

    /// The rows to store. Each replaces the oldest one that is kept.
    pub fn take(&mut self, name: &str, kept: u64) -> impl Iterator<Item = Row> {
        let kept = kept.max(1);
        self.0.drain(..).map(move |attempt| {
            let key = DocumentKey::new(ATTEMPT, &record::attempt_name(name, attempt.number % kept));
            Row::Document(Document { key, body: record::write(&attempt).into() })
        })
    }
}

/// The attempt that ended now.
pub(super) fn attempt(number: u64, now: Time, batch: &Batch, answer: &AttemptAnswer) -> AttemptRecord {
    let AttemptAnswer { reply, exchange } = answer;
    let mut record = exchange.record(now, reply);
    record.request.ranges = batch.ranges.iter().map(StoredRange::of).collect();
    AttemptRecord {
        number,
        batch: batch.number,
        attempt: batch.attempts,
        reason: batch.reason.as_str().into(),
        events: batch.entries(),
        first_seq: batch.first_seq(),
        last_seq: batch.last_seq(),
        ..record
    }
}
