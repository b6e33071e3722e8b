//! The delivery of one subscription: which events make a batch, when it is sent, what becomes of it. It sees sizes and
//! numbers of events, never their content; where they are read, where the progress is kept and who posts is not known here.
//! Fairness between subscriptions is not either: it says what it could send, the hub says when.
//! Must hold: a batch is sent only after a save that holds it; with `concurrency` 1 a batch is sent when all before it are
//! settled; an event is settled when it was acknowledged or parked, and is never forgotten before; everything is bounded.

mod answer;
mod batch;
mod early;
mod exchange;
mod progress;
mod seal;
mod trouble;

pub use batch::{Batch, Mark, Run};
pub use early::GAP_BYTES;
pub use exchange::{Effect, Input, Item, Letter, Outcome, Rules, Sending, Want};
pub use progress::{Health, Last, Progress, Reason, Shed, Verdict, Why};
pub use trouble::{Patience, QUICK_MS, RETRY_AFTER_MAX_MS, Trouble};

use crate::time::Time;
use alloc::vec::Vec;
use early::Early;

/// A batch refused so often is split: an endpoint that has just been deployed wrongly gets some time.
pub const REFUSALS: u32 = 5;
/// How long a settled batch may wait for a save that it can share with the next batch: one save for each under load, and
/// few repeats after a crash.
pub const SETTLE_MS: u64 = 100;
/// An endpoint that takes longer has enough to do: nothing is read ahead for it.
pub const SLOW_MS: u64 = 1_000;
/// Dead letters that are tried again at once: each may make a batch of its own.
pub const LETTERS: usize = 1_000;

#[derive(Clone, Debug)]
pub struct Delivery {
    progress: Progress,
    rules: Rules,
    patience: Patience,
    early: Early,
    flights: Vec<Flight>,
    /// Batches numbered up to here are durable, if they still exist.
    durable: u64,
    /// A save is under way; what it makes durable.
    saving: Option<u64>,
    /// Something must be saved without waiting for company.
    urgent: bool,
    /// Since when something settled waits to be saved.
    settled: Option<Time>,
    parked: Vec<Run>,
    retried: Vec<u64>,
    stopping: bool,
    seen: Time,
}

/// An attempt under way. Its batch may be gone: a replay took it back, and its answer means nothing.
#[derive(Clone, Copy, Debug)]
struct Flight {
    batch: u64,
    reason: Reason,
    since: Time,
    /// Another attempt ended in vain since it began: one fault of the endpoint is counted once.
    stale: bool,
}

impl Delivery {
    /// As it was kept. What was sealed is sent again, as it is. Wake it once.
    pub fn new(now: Time, mut progress: Progress, rules: Rules, patience: Patience) -> Delivery {
        if let Some(trouble) = &mut progress.trouble {
            trouble.retry_at = trouble.retry_at.min(patience.latest(now));
        }
        Delivery {
            durable: progress.numbered,
            progress,
            rules,
            patience,
            early: Early::default(),
            flights: Vec::new(),
            saving: None,
            urgent: false,
            settled: None,
            parked: Vec::new(),
            retried: Vec::new(),
            stopping: false,
            seen: now,
        }
    }

    pub fn handle(&mut self, now: Time, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Items(items) => self.take(now, items),
            Input::Saved => self.durable = self.saving.take().unwrap_or(self.durable),
            Input::Answered { batch, outcome, roll } => self.answer(now, batch, outcome, roll, effects),
            Input::Rules(rules) => self.rules = rules,
            Input::Enable => self.enable(),
            Input::Disable => self.disable(Why::Asked, effects),
            Input::Rewind(to) => self.rewind(to),
            Input::Shed { through } => self.shed(now, through, effects),
            Input::Retry(letters) => self.retry(now, letters),
            Input::Stop => self.stopping = true,
        }
        self.wake(now, effects);
    }

    /// Time has passed: seals what is ready, saves what must be.
    pub fn wake(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.seen = now;
        self.seal(now);
        if self.must_save(now) {
            self.saving = Some(self.progress.numbered);
            (self.urgent, self.settled) = (false, None);
            let (parked, retried) = (core::mem::take(&mut self.parked), core::mem::take(&mut self.retried));
            effects.push(Effect::Save { parked, retried });
        }
    }

    /// When to be asked again: a batch comes of age, a retry is due, a settled one has waited long enough.
    pub fn next_wake(&self) -> Option<Time> {
        let age = if self.may_seal() { self.early.deadline(&self.rules, self.gap_since()) } else { None };
        let settled = self.settled.filter(|_| self.saving.is_none()).map(|at| at + SETTLE_MS);
        let retry = self.progress.trouble.map(|trouble| trouble.retry_at).filter(|&at| self.could_start(at));
        // What is due by now is `ready` already, and waits for the hub.
        [age, settled, retry.filter(|&at| at > self.seen)].into_iter().flatten().min()
    }

    /// What to read from the log, if anything can be made of it. Nothing is read ahead for an endpoint that is in trouble, or that
    /// keeps an attempt waiting: every event of its topics would cost a read, and none of them could be sent.
    pub fn want(&self, now: Time) -> Option<Want> {
        let slow = self.flights.iter().any(|flight| now.since(flight.since) >= SLOW_MS);
        if self.is_idle() || ((slow || self.progress.trouble.is_some()) && !self.may_seal()) {
            return None;
        }
        let (events, bytes) = self.early.room(&self.rules, self.progress.shed.is_some())?;
        Some(Want { after: self.held(), events, bytes })
    }

    /// There is something to send.
    pub fn is_ready(&self, now: Time) -> bool {
        self.next_up(now).is_some()
    }

    /// Begins an attempt, if there is something to send.
    pub fn start(&mut self, now: Time) -> Option<Sending> {
        let at = self.next_up(now)?;
        let batch = &mut self.progress.batches[at];
        batch.attempts = batch.attempts.saturating_add(1);
        let reason = if self.progress.trouble.is_some() { Reason::Probe } else { batch.reason };
        self.flights.push(Flight { batch: batch.number, reason, since: now, stale: false });
        Some(Sending { batch: batch.number, attempt: batch.attempts, reason })
    }

    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// A batch that is not settled.
    pub fn batch(&self, number: u64) -> Option<&Batch> {
        self.progress.find(number).map(|at| &self.progress.batches[at])
    }

    /// How many attempts are under way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// When the oldest of what is here was accepted.
    pub fn oldest(&self) -> Option<Time> {
        let sealed = self.progress.batches.iter().map(|batch| batch.accepted).min();
        let early = self.gap_since().or_else(|| self.early.first().map(|item| item.accepted));
        sealed.into_iter().chain(early).min()
    }

    /// Nothing is under way and everything is saved.
    pub fn is_at_rest(&self) -> bool {
        self.flights.is_empty() && self.saving.is_none() && !self.urgent && self.settled.is_none()
    }

    /// Nothing new begins.
    fn is_idle(&self) -> bool {
        self.stopping || self.progress.disabled.is_some()
    }

    /// The batch to be sent next: the oldest that is durable and not under way; the oldest of all, alone, while in trouble.
    fn next_up(&self, now: Time) -> Option<usize> {
        self.could_start(now).then(|| self.progress.batches.iter().position(|batch| !self.flies(batch)))?
    }

    fn could_start(&self, now: Time) -> bool {
        let lanes = match self.progress.trouble {
            Some(trouble) if now < trouble.retry_at => return false,
            Some(_) => 1,
            None => self.rules.lanes(),
        };
        let next = self.progress.batches.iter().find(|batch| !self.flies(batch));
        !self.is_idle()
            && self.flights.len() < lanes
            && next.is_some_and(|batch| batch.number <= self.durable)
    }

    fn flies(&self, batch: &Batch) -> bool {
        self.flights.iter().any(|flight| flight.batch == batch.number)
    }
}

#[cfg(test)]
mod tests;
