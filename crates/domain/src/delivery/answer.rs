//! What becomes of a batch when its endpoint has answered, and how the endpoint is treated then.
//! Must hold: an answer to an attempt that is not under way changes nothing; a failure never splits; a split keeps the
//! order; only one that was sent after the last attempt in vain shows that an endpoint is well again.

use super::batch::Batch;
use super::{Delivery, Effect, Last, Outcome, REFUSALS, Reason, Why};
use crate::time::Time;
use alloc::vec::Vec;

/// How soon to try again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Backoff,
    /// The search for a bad event among many takes a dozen attempts: they are refused for its sake, not the endpoint's.
    Quick,
}

impl Delivery {
    pub(super) fn answer(
        &mut self,
        now: Time,
        number: u64,
        outcome: Outcome,
        roll: u64,
        effects: &mut Vec<Effect>,
    ) {
        let Some(at) = self.flights.iter().position(|flight| flight.batch == number) else { return };
        let flight = self.flights.remove(at);
        let Some(at) = self.progress.find(number) else { return };
        let fresh = !flight.stale || self.progress.trouble.is_none();
        self.progress.last = Some(Last { at: now, reason: flight.reason, verdict: outcome.verdict() });
        match outcome {
            Outcome::Delivered => self.settle(now, at, fresh, effects),
            Outcome::Partly { failed } => self.keep(now, at, failed, fresh, roll, effects),
            Outcome::Gone => self.disable(Why::Gone, effects),
            Outcome::TooLarge if self.progress.batches[at].entries() > 1 => self.split(at, false),
            Outcome::TooLarge => self.park(now, at, fresh, roll, effects),
            Outcome::Throttled { after_ms } => self.throttle(now, after_ms, fresh, roll),
            Outcome::Refused => self.refuse(now, at, fresh, roll, effects),
            Outcome::Failed => self.fail(now, Pace::Backoff, fresh, roll, effects),
        }
    }

    fn settle(&mut self, now: Time, at: usize, fresh: bool, effects: &mut Vec<Effect>) {
        self.progress.batches.remove(at);
        self.settled.get_or_insert(now);
        match &mut self.progress.trouble {
            Some(_) if fresh => {
                self.progress.trouble = None;
                self.urgent = true;
                effects.push(Effect::Recovered);
            }
            // Sent before the trouble: it is no sign of its end, but not everything fails.
            Some(trouble) => trouble.failing_since = None,
            None => {}
        }
    }

    /// The endpoint has all but these entries.
    fn keep(
        &mut self,
        now: Time,
        at: usize,
        failed: Vec<u64>,
        fresh: bool,
        roll: u64,
        effects: &mut Vec<Effect>,
    ) {
        let batch = &self.progress.batches[at];
        let (entries, accepted, runs) = (batch.entries(), batch.accepted, batch.pick(failed));
        if runs.is_empty() {
            return self.settle(now, at, fresh, effects);
        }
        self.progress.batches[at] = self.cut(runs, Reason::Recut, accepted);
        let fewer = self.progress.batches[at].entries() < entries;
        if fewer && fresh {
            // It took something: the next retry is a first one.
            self.progress.trouble = None;
        }
        self.fail(now, Pace::Backoff, fresh, roll, effects);
    }

    fn throttle(&mut self, now: Time, after_ms: Option<u64>, fresh: bool, roll: u64) {
        self.urgent = true;
        let asked = after_ms.map(|ms| now + self.patience.throttle_ms(ms));
        let trouble = self.progress.trouble.get_or_insert_default();
        // It speaks, so it does not fail all the time.
        trouble.failing_since = None;
        if !fresh {
            trouble.retry_at = trouble.retry_at.max(asked.unwrap_or(Time::ZERO));
            return;
        }
        trouble.retry_at = asked.unwrap_or_else(|| {
            trouble.failures = trouble.failures.saturating_add(1);
            now + self.patience.backoff_ms(trouble.failures, roll)
        });
        self.flights.iter_mut().for_each(|flight| flight.stale = true);
    }

    fn refuse(&mut self, now: Time, at: usize, fresh: bool, roll: u64, effects: &mut Vec<Effect>) {
        let batch = &mut self.progress.batches[at];
        batch.refusals = batch.refusals.saturating_add(1);
        if !batch.suspect && batch.refusals < REFUSALS {
            self.fail(now, Pace::Backoff, fresh, roll, effects);
        } else if batch.entries() > 1 {
            self.split(at, true);
            self.fail(now, Pace::Quick, fresh, roll, effects);
        } else {
            self.park(now, at, fresh, roll, effects);
        }
    }

    /// Its only entry is a dead letter. What it was split from goes on quickly; an endpoint that takes nothing at all must not
    /// empty a queue into the dead letters at full speed.
    fn park(&mut self, now: Time, at: usize, fresh: bool, roll: u64, effects: &mut Vec<Effect>) {
        self.parked.extend(self.progress.batches.remove(at).runs);
        let next = self.progress.batches.first();
        let pace = if next.is_some_and(|batch| batch.suspect) { Pace::Quick } else { Pace::Backoff };
        self.fail(now, pace, fresh, roll, effects);
    }

    fn split(&mut self, at: usize, suspect: bool) {
        let batch = self.progress.batches.remove(at);
        let (front, back) = batch.halves();
        for (runs, at) in [(front, at), (back, at + 1)] {
            let half = self.cut(runs, Reason::Recut, batch.accepted);
            let half = Batch { suspect: suspect || batch.suspect, ..half };
            self.progress.batches.insert(at, half);
        }
    }

    fn fail(&mut self, now: Time, pace: Pace, fresh: bool, roll: u64, effects: &mut Vec<Effect>) {
        self.urgent = true;
        // One fault of the endpoint meets all that is under way.
        if !fresh {
            return;
        }
        let trouble = self.progress.trouble.get_or_insert_default();
        let since = *trouble.failing_since.get_or_insert(now);
        let wait_ms = match pace {
            Pace::Quick => self.patience.quick_ms(roll),
            Pace::Backoff => {
                trouble.failures = trouble.failures.saturating_add(1);
                self.patience.backoff_ms(trouble.failures, roll)
            }
        };
        trouble.retry_at = now + wait_ms;
        self.flights.iter_mut().for_each(|flight| flight.stale = true);
        if self.patience.gives_up(now, since) {
            self.disable(Why::Failing, effects);
        }
    }
}
