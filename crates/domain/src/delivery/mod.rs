//! The delivery of one subscription: which events form a batch, when it is sent, and what the outcome of an attempt
//! means. It sees the sizes and numbers of events, never their content; reading the log, storing the progress and
//! sending are done elsewhere. So is fairness between subscriptions: a delivery knows what it could send, the hub
//! decides when.
//! Must hold: a batch is sent only after a save that holds it; with `concurrency` 1 a batch is sent when all before it are
//! settled; an event is settled when it was acknowledged or parked, and is never forgotten before; everything is bounded.

mod attempts;
mod backoff;
mod batch;
mod cursor;
mod interface;
mod open_batch;
mod outcome;
mod progress;
mod reply;
mod saves;

pub use attempts::SLOW_MS;
pub use backoff::{EndpointFailure, QUICK_MS, REFUSED_IN_ROW, RETRY_AFTER_MAX_MS, RetryPolicy};
pub use batch::{Batch, EntryRange, LogMark};
pub use interface::{
    AttemptStart, DeliveryEffect, DeliveryInput, DeliveryRules, LogRequest, QueuedEvent, RetriedDeadLetter,
};
pub use open_batch::GAP_BYTES;
pub use progress::{
    AttemptError, BatchReason, DeliveryProgress, DisabledReason, DroppedEvents, LastAttempt,
    SubscriptionHealth,
};
pub use reply::{DeliveryOutcome, EndpointReply};
pub use saves::SETTLE_MS;

use crate::time::Time;
use alloc::vec::Vec;
use attempts::Attempts;
use open_batch::OpenBatch;
use saves::Saves;

/// A batch refused this often is split: an endpoint that was just deployed wrongly gets some time.
pub const REFUSALS: u32 = 5;
/// Dead letters that are retried at once: each may make a batch of its own.
pub const MAX_RETRIED_DEAD_LETTERS: usize = 1_000;

#[derive(Clone, Debug)]
pub struct Delivery {
    progress: DeliveryProgress,
    rules: DeliveryRules,
    policy: RetryPolicy,
    open_batch: OpenBatch,
    attempts: Attempts,
    saves: Saves,
    stopping: bool,
    /// The time of the last wake.
    woken_at: Time,
}

impl Delivery {
    /// Continues from stored progress. Sealed batches are sent again as they are. Call `wake` once.
    pub fn new(
        now: Time,
        mut progress: DeliveryProgress,
        rules: DeliveryRules,
        policy: RetryPolicy,
    ) -> Delivery {
        if let Some(failure) = &mut progress.failure {
            failure.retry_at = failure.retry_at.min(policy.latest(now));
        }
        Delivery {
            saves: Saves::new(progress.numbered),
            progress,
            rules,
            policy,
            open_batch: OpenBatch::default(),
            attempts: Attempts::default(),
            stopping: false,
            woken_at: now,
        }
    }

    pub fn handle(&mut self, now: Time, input: DeliveryInput, effects: &mut Vec<DeliveryEffect>) {
        match input {
            DeliveryInput::Items(items) => self.take(now, items),
            DeliveryInput::Saved => self.saves.confirm(),
            DeliveryInput::Answered { batch, reply, random } => {
                self.answer(now, batch, reply, random, effects)
            }
            DeliveryInput::Rules(rules) => self.rules = rules,
            DeliveryInput::Enable => self.enable(),
            DeliveryInput::Disable => self.disable(DisabledReason::Asked, effects),
            DeliveryInput::Rewind(to) => self.rewind(to),
            DeliveryInput::Shed { through } => self.shed(now, through, effects),
            DeliveryInput::Retry(dead) => self.retry(now, dead),
            DeliveryInput::Stop => {
                self.stopping = true;
                if !self.attempts.is_empty() {
                    // The next sender of these batches continues to count their attempts.
                    self.saves.make_urgent();
                }
            }
        }
        self.wake(now, effects);
    }

    /// Seals what is ready by now and saves what must be saved.
    pub fn wake(&mut self, now: Time, effects: &mut Vec<DeliveryEffect>) {
        self.woken_at = now;
        self.seal(now);
        let at_once = self.stopping || self.progress.batches.is_empty() && self.open_batch.is_empty();
        if self.saves.is_due(now, at_once) {
            let (parked, retried) = self.saves.begin(self.progress.numbered);
            effects.push(DeliveryEffect::Save { parked, retried });
        }
    }

    /// When to call `wake` again: the open batch reaches its age, a retry is due, a save has waited long enough.
    pub fn next_wake(&self) -> Option<Time> {
        let gap = self.progress.gap_since();
        let age = if self.may_seal() { self.open_batch.deadline(&self.rules, gap) } else { None };
        let retry = self.progress.failure.map(|failure| failure.retry_at).filter(|&at| self.could_start(at));
        // A retry that is due by now makes `is_ready` true already, and waits for the hub.
        [age, self.saves.next_wake(), retry.filter(|&at| at > self.woken_at)].into_iter().flatten().min()
    }

    /// What to read from the log, if it can be used. Nothing is read ahead for an endpoint that fails or is slow: every event
    /// of its topics would cost a read, and none of them could be sent.
    pub fn want(&self, now: Time) -> Option<LogRequest> {
        let slow = self.attempts.has_slow(now);
        if self.is_idle() || ((slow || self.progress.failure.is_some()) && !self.may_seal()) {
            return None;
        }
        let (events, bytes) = self.open_batch.room(&self.rules, self.progress.dropped.is_some())?;
        Some(LogRequest { after: self.held(), events, bytes })
    }

    /// Whether there is something to send.
    pub fn is_ready(&self, now: Time) -> bool {
        self.next_up(now).is_some()
    }

    /// Starts an attempt, if there is something to send.
    pub fn start(&mut self, now: Time) -> Option<AttemptStart> {
        let at = self.next_up(now)?;
        let batch = &mut self.progress.batches[at];
        batch.attempts = batch.attempts.saturating_add(1);
        let reason = if self.progress.failure.is_some() { BatchReason::Probe } else { batch.reason };
        self.attempts.begin(now, batch.number, reason);
        Some(AttemptStart { batch: batch.number, attempt: batch.attempts, reason })
    }

    pub fn progress(&self) -> &DeliveryProgress {
        &self.progress
    }

    /// A batch that is not settled.
    pub fn batch(&self, number: u64) -> Option<&Batch> {
        self.progress.find(number).map(|at| &self.progress.batches[at])
    }

    /// How many attempts are in flight.
    pub fn in_flight(&self) -> usize {
        self.attempts.len()
    }

    /// When the oldest event held here was accepted.
    pub fn oldest(&self) -> Option<Time> {
        let sealed = self.progress.batches.iter().map(|batch| batch.accepted).min();
        sealed.into_iter().chain(self.open_since()).min()
    }

    /// No attempt is in flight and everything is saved.
    pub fn is_at_rest(&self) -> bool {
        self.attempts.is_empty() && self.saves.is_at_rest()
    }

    /// Nothing new may start.
    fn is_idle(&self) -> bool {
        self.stopping || self.progress.disabled.is_some()
    }

    /// The batch to send next: the oldest that is durable and not in flight; alone while the endpoint fails.
    fn next_up(&self, now: Time) -> Option<usize> {
        let is_waiting = |batch: &Batch| !self.attempts.has(batch.number);
        self.could_start(now).then(|| self.progress.batches.iter().position(is_waiting))?
    }

    fn could_start(&self, now: Time) -> bool {
        let lanes = match self.progress.failure {
            Some(failure) if now < failure.retry_at => return false,
            Some(_) => 1,
            None => self.rules.lanes(),
        };
        let next = self.progress.batches.iter().find(|batch| !self.attempts.has(batch.number));
        !self.is_idle()
            && self.attempts.len() < lanes
            && next.is_some_and(|batch| self.saves.is_durable(batch.number))
    }
}

#[cfg(test)]
mod tests;
