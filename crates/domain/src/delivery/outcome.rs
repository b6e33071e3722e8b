//! What the outcome of an attempt means for its batch, and for the endpoint.
//! Must hold: an outcome of an attempt that is not in flight changes nothing; a failure never splits a batch; a split keeps
//! the order; a bad event is alone after a bounded number of attempts, and does not slow down those behind it; an endpoint that
//! refuses everything gets no more dead letters; only an attempt that began after the last failure can show that an endpoint has recovered.

use super::backoff::Pace;
use super::batch::Batch;
use super::{
    AttemptError, BatchReason, Delivery, DeliveryEffect, DeliveryOutcome, DisabledReason, EndpointReply,
    LastAttempt, REFUSALS,
};
use crate::time::Time;
use alloc::vec::Vec;

/// How an attempt ended.
#[derive(Clone, Copy)]
struct EndedAttempt {
    now: Time,
    /// It started after the last failure, so its outcome says something about the endpoint.
    fresh: bool,
    /// A random number for the backoff.
    random: u64,
}

impl Delivery {
    pub(super) fn answer(
        &mut self,
        now: Time,
        number: u64,
        reply: EndpointReply<u64>,
        random: u64,
        effects: &mut Vec<DeliveryEffect>,
    ) {
        let Some(attempt) = self.attempts.end(number) else { return };
        let Some(at) = self.progress.find(number) else { return };
        let ended = EndedAttempt { now, fresh: !attempt.stale || self.progress.failure.is_none(), random };
        let (number, outcome) = (self.progress.attempted() + 1, reply.outcome);
        self.progress.last = Some(LastAttempt { number, at: now, reason: attempt.reason, outcome });
        if outcome != DeliveryOutcome::Delivered {
            let text = reply.error.unwrap_or_else(|| outcome.as_str().into());
            self.progress.last_error = Some(AttemptError { at: now, text });
        }
        match reply.outcome {
            DeliveryOutcome::Delivered => self.settle(ended, at, effects),
            DeliveryOutcome::Partly => self.keep(ended, at, reply.failed, effects),
            DeliveryOutcome::Gone => self.disable(DisabledReason::Gone, effects),
            DeliveryOutcome::TooLarge if self.progress.batches[at].entries() > 1 => self.split(at, false),
            DeliveryOutcome::TooLarge if self.is_broken() => self.fail(ended, Pace::Backoff, effects),
            DeliveryOutcome::TooLarge => self.park(ended, at, effects),
            DeliveryOutcome::Throttled => self.throttle(ended, reply.retry_after_ms),
            DeliveryOutcome::Refused => self.refuse(ended, at, effects),
            DeliveryOutcome::Failed => self.fail(ended, Pace::Backoff, effects),
        }
    }

    fn settle(&mut self, ended: EndedAttempt, at: usize, effects: &mut Vec<DeliveryEffect>) {
        self.progress.batches.remove(at);
        self.saves.settle(ended.now);
        match &mut self.progress.failure {
            Some(_) if ended.fresh => {
                self.progress.failure = None;
                self.saves.make_urgent();
                effects.push(DeliveryEffect::Recovered);
            }
            // It started before the failure: the endpoint has not recovered, but not every attempt fails.
            Some(failure) => failure.failing_since = None,
            None => {}
        }
    }

    /// The endpoint acknowledged all but these entries.
    fn keep(&mut self, ended: EndedAttempt, at: usize, failed: Vec<u64>, effects: &mut Vec<DeliveryEffect>) {
        let batch = &self.progress.batches[at];
        let (entries, accepted, runs) = (batch.entries(), batch.accepted, batch.pick(failed));
        if runs.is_empty() {
            return self.settle(ended, at, effects);
        }
        self.progress.batches[at] = self.new_batch(runs, BatchReason::Recut, accepted);
        let fewer = self.progress.batches[at].entries() < entries;
        if fewer && ended.fresh {
            // It accepted some: the backoff starts again.
            self.progress.failure = None;
        }
        self.fail(ended, Pace::Backoff, effects);
    }

    fn throttle(&mut self, ended: EndedAttempt, after_ms: Option<u64>) {
        self.saves.make_urgent();
        let failure = self.progress.failure.get_or_insert_default();
        failure.throttle(ended.now, &self.policy, after_ms, ended.fresh, ended.random);
        if ended.fresh {
            self.attempts.mark_stale();
        }
    }

    /// The endpoint refuses everything.
    fn is_broken(&self) -> bool {
        self.progress.failure.is_some_and(|failure| failure.refuses_everything())
    }

    fn refuse(&mut self, ended: EndedAttempt, at: usize, effects: &mut Vec<DeliveryEffect>) {
        let is_broken = self.is_broken();
        let batch = &mut self.progress.batches[at];
        batch.refusals = batch.refusals.saturating_add(1);
        if is_broken || (!batch.suspect && batch.refusals < REFUSALS) {
            self.fail(ended, Pace::Backoff, effects);
        } else if batch.entries() > 1 {
            self.split(at, true);
            self.fail(ended, Pace::Quick, effects);
        } else {
            self.park(ended, at, effects);
        }
    }

    /// The only entry of a batch becomes a dead letter. What is behind it is retried quickly, as if nothing had failed before;
    /// but an endpoint that refuses everything must not turn a queue into dead letters.
    fn park(&mut self, ended: EndedAttempt, at: usize, effects: &mut Vec<DeliveryEffect>) {
        let batch = self.progress.batches.remove(at);
        self.saves.park(batch.ranges);
        let failure = self.progress.failure.get_or_insert_default();
        (failure.failures, failure.refused_in_row) = (0, failure.refused_in_row.saturating_add(1));
        let pace = if failure.refuses_everything() { Pace::Backoff } else { Pace::Quick };
        self.fail(ended, pace, effects);
    }

    fn split(&mut self, at: usize, suspect: bool) {
        let batch = self.progress.batches.remove(at);
        let (front, back) = batch.halves();
        for (runs, at) in [(front, at), (back, at + 1)] {
            let half = self.new_batch(runs, BatchReason::Recut, batch.accepted);
            let half = Batch { suspect: suspect || batch.suspect, ..half };
            self.progress.batches.insert(at, half);
        }
    }

    fn fail(&mut self, ended: EndedAttempt, pace: Pace, effects: &mut Vec<DeliveryEffect>) {
        self.saves.make_urgent();
        // One fault of the endpoint fails every attempt in flight, and is counted once.
        if !ended.fresh {
            return;
        }
        let failure = self.progress.failure.get_or_insert_default();
        let since = failure.fail(ended.now, &self.policy, pace, ended.random);
        self.attempts.mark_stale();
        if self.policy.gives_up(ended.now, since) {
            self.disable(DisabledReason::Failing, effects);
        }
    }
}
