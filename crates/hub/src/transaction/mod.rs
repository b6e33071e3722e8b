//! Runs decisions against the store. A decision is pure: it gets the loaded facts and returns what else it needs, or
//! what to commit. The driver loads everything it needs in one round trip, adds the versions that were read to the
//! commit, starts again on a conflict, and reports an unknown outcome.
//! Must hold: every row that a decision has seen is expected by its commit; an attempt knows nothing of the rows of an
//! earlier one; a transaction ends exactly once.

mod context;
mod facts;

pub(crate) use context::DecisionContext;
pub(crate) use facts::{Facts, Need};

use crate::core::{Core, Feature, row_cache};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tavern_domain::trace::TraceContext;
use tavern_store::{Commit, Found, Receipt, RowKey, StoreAnswer, StoreError, Ticket, Work, planted};

/// Conflicts in a row after which a transaction gives up: that many writers would have to change the same rows first.
pub(crate) const TRIES: u8 = 32;

pub(crate) trait Decision {
    /// The result of the transaction once it is committed.
    type Outcome;
    /// What it has worked out from the rows of this attempt. Each attempt begins without notes.
    type Notes: Default;

    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        notes: &mut Self::Notes,
    ) -> DecisionStep<Self::Outcome>;

    /// Whether its first attempt starts from cached rows. If one is stale, the commit conflicts and everything is
    /// loaded; a decision that does not commit is decided again on loaded rows.
    fn may_assume(&self) -> bool {
        false
    }
}

pub(crate) enum DecisionStep<T> {
    /// Load these too, then run the decision again. Never empty.
    Need(Vec<Need>),
    Commit {
        commit: Commit,
        outcome: T,
    },
    /// There is nothing to write.
    Done(T),
    /// The loaded rows are inconsistent: load everything again. Counts like a conflict.
    Again,
    /// It cannot be decided: a loaded row cannot be used.
    Fail(StoreAnswer),
    Pause(Pause),
}

/// What a paused decision waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// Something that is not in the store: the feature calls `supply`.
    Supply,
    /// Other rows: the feature calls `resume` later, and they are loaded again.
    Change,
}

/// The progress of a transaction.
#[expect(clippy::large_enum_variant, reason = "moved once or twice; a box each would cost more")]
pub(crate) enum TransactionProgress<D: Decision> {
    /// It waits for the store.
    Waits,
    /// It must be continued, by its number.
    Paused(u64, Pause),
    Ended(D, TransactionEnd<D::Outcome>),
}

pub(crate) enum TransactionEnd<T> {
    Committed(T, Receipt),
    Done(T),
    /// The store failed. `unknown`: the commit may have been applied anyway, with this result.
    Failed {
        answer: StoreAnswer,
        unknown: Option<T>,
    },
}

/// The transactions of one feature that are in progress.
pub(crate) struct Transactions<D: Decision> {
    feature: Feature,
    numbers: u64,
    running: HashMap<u64, Box<RunningTransaction<D>>, RandomState>,
    asked: HashMap<Ticket, StoreRequest, RandomState>,
}

struct RunningTransaction<D: Decision> {
    decision: D,
    facts: Facts,
    notes: D::Notes,
    /// Reads in flight.
    open: usize,
    failed: Option<StoreAnswer>,
    /// The result of the commit in progress.
    outcome: Option<D::Outcome>,
    tries: u8,
    /// The trace of the command that began it.
    trace: Option<TraceContext>,
}

enum StoreRequest {
    Read(u64, Need),
    Commit(u64),
}

impl<D: Decision> Transactions<D> {
    pub fn new(feature: Feature) -> Transactions<D> {
        Transactions { feature, numbers: 0, running: HashMap::default(), asked: HashMap::default() }
    }

    pub fn begin(&mut self, core: &mut Core, decision: D, facts: Facts) -> TransactionProgress<D> {
        self.numbers += 1;
        let trace = core.trace;
        let running = RunningTransaction {
            decision,
            facts,
            notes: D::Notes::default(),
            open: 0,
            failed: None,
            outcome: None,
            tries: 0,
            trace,
        };
        self.running.insert(self.numbers, Box::new(running));
        self.run(core, self.numbers)
    }

    /// Whether this ticket belongs to one of these transactions.
    pub fn owns(&self, ticket: Ticket) -> bool {
        self.asked.contains_key(&ticket)
    }

    /// Continues a paused transaction with the loaded rows: it gets what it waited for.
    pub fn supply(
        &mut self,
        core: &mut Core,
        number: u64,
        give: impl FnOnce(&mut D),
    ) -> TransactionProgress<D> {
        let Some(running) = self.running.get_mut(&number) else { return TransactionProgress::Waits };
        give(&mut running.decision);
        self.run(core, number)
    }

    /// Restarts a paused transaction from what is in the store now.
    pub fn resume(&mut self, core: &mut Core, number: u64) -> TransactionProgress<D> {
        let Some(running) = self.running.get_mut(&number) else { return TransactionProgress::Waits };
        running.facts.count_resumption();
        running.start_again(None);
        self.run(core, number)
    }

    /// Ends a paused transaction because what it waits for cannot be obtained.
    pub fn fail(&mut self, number: u64, answer: StoreAnswer) -> TransactionProgress<D> {
        match self.running.remove(&number) {
            Some(running) => {
                TransactionProgress::Ended(running.decision, TransactionEnd::Failed { answer, unknown: None })
            }
            None => TransactionProgress::Waits,
        }
    }

    pub fn answered(
        &mut self,
        core: &mut Core,
        ticket: Ticket,
        answer: StoreAnswer,
    ) -> TransactionProgress<D> {
        match self.asked.remove(&ticket) {
            Some(StoreRequest::Read(number, need)) => self.loaded(core, number, need, answer),
            Some(StoreRequest::Commit(number)) => self.committed(core, number, answer),
            None => TransactionProgress::Waits,
        }
    }

    fn run(&mut self, core: &mut Core, number: u64) -> TransactionProgress<D> {
        let Some(running) = self.running.get_mut(&number) else { return TransactionProgress::Waits };
        match running.decide(core) {
            DecisionStep::Need(needs) => {
                running.open = needs.len();
                for need in needs {
                    let ticket = core.submit(self.feature, Work::Read(need.read()));
                    self.asked.insert(ticket, StoreRequest::Read(number, need));
                }
                TransactionProgress::Waits
            }
            DecisionStep::Commit { mut commit, outcome } => {
                commit.expects.extend(running.facts.expects());
                running.outcome = Some(outcome);
                let ticket = core.submit(self.feature, Work::Commit(commit));
                core.effects.commit_traces.extend(running.trace.map(|trace| (ticket, trace)));
                self.asked.insert(ticket, StoreRequest::Commit(number));
                TransactionProgress::Waits
            }
            DecisionStep::Done(outcome) => self.end(number, TransactionEnd::Done(outcome)),
            DecisionStep::Again if running.tries < TRIES => {
                running.tries += 1;
                running.start_again(None);
                self.run(core, number)
            }
            DecisionStep::Again => {
                let answer = StoreAnswer::Failed(StoreError::timeout());
                self.end(number, TransactionEnd::Failed { answer, unknown: None })
            }
            DecisionStep::Fail(answer) => self.end(number, TransactionEnd::Failed { answer, unknown: None }),
            DecisionStep::Pause(pause) => TransactionProgress::Paused(number, pause),
        }
    }

    fn loaded(
        &mut self,
        core: &mut Core,
        number: u64,
        need: Need,
        answer: StoreAnswer,
    ) -> TransactionProgress<D> {
        let Some(running) = self.running.get_mut(&number) else { return TransactionProgress::Waits };
        running.open -= 1;
        match answer {
            StoreAnswer::Read(found) => {
                if !running.facts.add(need, found) {
                    let what = "the store returned an unexpected answer".to_owned();
                    running.failed = Some(StoreAnswer::Failed(StoreError::Corrupt { what, source: None }));
                }
            }
            answer => running.failed = Some(answer),
        }
        if running.open > 0 {
            return TransactionProgress::Waits;
        }
        match running.failed.take() {
            Some(answer) => self.end(number, TransactionEnd::Failed { answer, unknown: None }),
            None => self.run(core, number),
        }
    }

    fn committed(&mut self, core: &mut Core, number: u64, answer: StoreAnswer) -> TransactionProgress<D> {
        let Some(running) = self.running.get_mut(&number) else { return TransactionProgress::Waits };
        let outcome = running.outcome.take();
        match (answer, outcome) {
            (StoreAnswer::Committed(receipt), Some(outcome)) => {
                self.end(number, TransactionEnd::Committed(outcome, receipt))
            }
            // A deadline that was set again is another deadline: the node that set it handles it.
            (StoreAnswer::Failed(StoreError::Conflict { key, found, .. }), _)
                if running.tries < TRIES
                    && !matches!(key, RowKey::Deadline { .. })
                    && !planted("hub-conflict") =>
            {
                running.tries += 1;
                row_cache::forget_stale(core, &key);
                running.start_again(Some((key, found)));
                if self.feature == Feature::Party {
                    core.stats.party_conflicts.add(1);
                }
                self.run(core, number)
            }
            (answer, outcome) => {
                let refused = matches!(&answer, StoreAnswer::Failed(error) if error.is_refusal());
                let unknown = outcome.filter(|_| !refused);
                self.end(number, TransactionEnd::Failed { answer, unknown })
            }
        }
    }

    fn end(&mut self, number: u64, ended: TransactionEnd<D::Outcome>) -> TransactionProgress<D> {
        match self.running.remove(&number) {
            Some(running) => TransactionProgress::Ended(running.decision, ended),
            None => TransactionProgress::Waits,
        }
    }
}

impl<D: Decision> RunningTransaction<D> {
    /// Decides on the loaded rows, and on cached ones as long as they are enough.
    fn decide(&mut self, core: &Core) -> DecisionStep<D::Outcome> {
        let context = DecisionContext::of(core);
        loop {
            let step = self.decision.decide(&context, &self.facts, &mut self.notes);
            self.facts.forget_pages();
            match step {
                // Only a commit detects that an assumed row is stale: what ends without one is decided on loaded rows.
                DecisionStep::Done(_) | DecisionStep::Fail(_) if self.facts.are_assumed() => {
                    self.start_again(None);
                }
                DecisionStep::Need(needs) => {
                    assert!(!needs.is_empty(), "a decision that needs rows names them");
                    let unknown = self.without_cached(core, needs);
                    if !unknown.is_empty() {
                        return DecisionStep::Need(unknown);
                    }
                }
                step => return step,
            }
        }
    }

    /// Adds the cached rows to the facts. Returns those that must be read.
    fn without_cached(&mut self, core: &Core, needs: Vec<Need>) -> Vec<Need> {
        if self.facts.is_retry() || !self.decision.may_assume() {
            return needs;
        }
        let mut unknown = Vec::new();
        for need in needs {
            match cached(core, &need) {
                Some(found) => self.facts.assume(need, found),
                None => unknown.push(need),
            }
        }
        unknown
    }

    /// The next attempt: it has the command and nothing else, and every row is read.
    fn start_again(&mut self, conflict: Option<(RowKey, u64)>) {
        (self.facts, self.notes) = (self.facts.next_attempt(conflict), D::Notes::default());
    }
}

/// A row of a local user, as a read would return it. None: it must be read.
fn cached(core: &Core, need: &Need) -> Option<Found> {
    match need {
        Need::Document(key) => core.cache.find_document(key),
        Need::Presence(key) => row_cache::find_presence(core, key).map(|known| Found::Presence(Some(known))),
        Need::NewPresence(key) => Some(Found::Presence(row_cache::find_presence(core, key))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
