//! Runs decisions against the store. A decision is pure: it is given the facts that were loaded and answers what else it
//! needs, or what to commit. The driver loads everything that is asked for in one round trip, adds the versions that were
//! read to the commit, starts again on a conflict, and says when the outcome is unknown.
//! Must hold: every row that a decision has seen is expected by its commit; a transaction ends exactly once.

mod facts;

pub(crate) use facts::{Facts, Need};

use crate::core::{Core, Feature};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tavern_store::{Commit, Receipt, RowKey, StoreAnswer, StoreError, Ticket, Work};

/// Conflicts in a row after which a transaction gives up: as many writers would have to change the same rows meanwhile.
pub(crate) const TRIES: u8 = 32;

pub(crate) trait Decision {
    /// What the transaction means once it is committed.
    type Outcome;

    fn decide(&mut self, core: &Core, facts: &Facts) -> DecisionStep<Self::Outcome>;
}

pub(crate) enum DecisionStep<T> {
    /// Load these too, then ask again. Never empty.
    Need(Vec<Need>),
    Commit {
        commit: Commit,
        outcome: T,
    },
    /// There is nothing to write.
    Done(T),
    /// What was loaded does not belong together: load everything anew. Counts like a conflict.
    Again,
    /// It cannot be decided: what was loaded cannot be used.
    Fail(StoreAnswer),
    /// Something that is not in the store is missing. The feature resumes the transaction, which loads everything anew.
    Pause,
}

/// What became of a transaction.
#[expect(clippy::large_enum_variant, reason = "moved once or twice; a box each would cost more")]
pub(crate) enum TransactionProgress<D: Decision> {
    /// The store is asked.
    Waits,
    /// It must be resumed, by its number.
    Paused(u64),
    Ended(D, TransactionEnd<D::Outcome>),
}

pub(crate) enum TransactionEnd<T> {
    Committed(T, Receipt),
    Done(T),
    /// The store did not do what it must. `unknown`: the commit may have happened all the same, and would have meant this.
    Failed {
        answer: StoreAnswer,
        unknown: Option<T>,
    },
}

/// The transactions of one feature that are under way.
pub(crate) struct Transactions<D: Decision> {
    feature: Feature,
    numbers: u64,
    running: HashMap<u64, Box<RunningTransaction<D>>, RandomState>,
    asked: HashMap<Ticket, StoreRequest, RandomState>,
}

struct RunningTransaction<D: Decision> {
    decision: D,
    facts: Facts,
    /// Reads that are not answered yet.
    open: usize,
    failed: Option<StoreAnswer>,
    /// What the commit under way means.
    outcome: Option<D::Outcome>,
    tries: u8,
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
        let running = RunningTransaction { decision, facts, open: 0, failed: None, outcome: None, tries: 0 };
        self.running.insert(self.numbers, Box::new(running));
        self.run(core, self.numbers)
    }

    /// Whether this ticket is one of these transactions'.
    pub fn owns(&self, ticket: Ticket) -> bool {
        self.asked.contains_key(&ticket)
    }

    pub fn get_mut(&mut self, number: u64) -> Option<&mut D> {
        self.running.get_mut(&number).map(|running| &mut running.decision)
    }

    /// Runs a paused transaction again, from what is in the store now.
    pub fn resume(&mut self, core: &mut Core, number: u64) -> TransactionProgress<D> {
        let Some(running) = self.running.get_mut(&number) else { return TransactionProgress::Waits };
        running.facts = Facts::default();
        self.run(core, number)
    }

    /// Ends a paused transaction because what it waits for cannot be had.
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
        let step = running.decision.decide(core, &running.facts);
        running.facts.forget_pages();
        match step {
            DecisionStep::Need(needs) => {
                assert!(!needs.is_empty(), "a decision that needs something says what");
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
                self.asked.insert(ticket, StoreRequest::Commit(number));
                TransactionProgress::Waits
            }
            DecisionStep::Done(outcome) => self.end(number, TransactionEnd::Done(outcome)),
            DecisionStep::Again if running.tries < TRIES => {
                running.tries += 1;
                self.resume(core, number)
            }
            DecisionStep::Again => {
                let answer = StoreAnswer::Failed(StoreError::timeout());
                self.end(number, TransactionEnd::Failed { answer, unknown: None })
            }
            DecisionStep::Fail(answer) => self.end(number, TransactionEnd::Failed { answer, unknown: None }),
            DecisionStep::Pause => TransactionProgress::Paused(number),
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
                    let what = "the store answered another question".to_owned();
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
            // A deadline that was set anew means something else: whoever set it looks after it.
            (StoreAnswer::Failed(StoreError::Conflict { key, .. }), _)
                if running.tries < TRIES && !matches!(key, RowKey::Deadline { .. }) =>
            {
                running.tries += 1;
                if self.feature == Feature::Party {
                    core.stats.party_conflicts.add(1);
                }
                self.resume(core, number)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Node, RandomSource, TokenVerifier};
    use crate::settings::Settings;
    use std::sync::Arc;
    use tavern_domain::{Identity, Time};
    use tavern_store::{Document, DocumentKey, Expect, Found, Read, Versioned};
    use tavern_wire::error::{Code, Refusal};

    struct NoTokens;

    impl TokenVerifier for NoTokens {
        fn verify(&self, _: &str, _: Time) -> Result<Identity, Refusal> {
            Err(Refusal::from(Code::Unauthenticated))
        }
    }

    struct Zeros;

    impl RandomSource for Zeros {
        fn next(&mut self) -> u128 {
            0
        }
    }

    /// Needs these documents, then commits; says how often it was asked with everything loaded.
    struct Count {
        keys: Vec<DocumentKey>,
        decided: u32,
        pauses: bool,
    }

    impl Decision for Count {
        type Outcome = u32;

        fn decide(&mut self, _: &Core, facts: &Facts) -> DecisionStep<u32> {
            let missing = self.keys.iter().filter(|key| facts.document(key).is_none());
            let missing: Vec<Need> = missing.cloned().map(Need::Document).collect();
            if !missing.is_empty() {
                return DecisionStep::Need(missing);
            }
            if std::mem::take(&mut self.pauses) {
                return DecisionStep::Pause;
            }
            self.decided += 1;
            DecisionStep::Commit { commit: Commit::default(), outcome: self.decided }
        }
    }

    struct Fixture {
        core: Core,
        transactions: Transactions<Count>,
    }

    fn key(name: &str) -> DocumentKey {
        DocumentKey::new("test", name)
    }

    fn row(name: &str, version: u64) -> StoreAnswer {
        let row = Document { key: key(name), body: Arc::from(*b"{}") };
        StoreAnswer::Read(Found::Document(Some(Versioned { version, row })))
    }

    fn conflict(key: RowKey) -> StoreAnswer {
        StoreAnswer::Failed(StoreError::Conflict { key, expected: 1, found: 2 })
    }

    impl Fixture {
        fn begin(names: &[&str], pauses: bool) -> Fixture {
            let node = Node::new(Settings::default(), Box::new(NoTokens));
            let mut core = Core::new(node, 0, Box::new(Zeros), Time(1_000));
            let mut transactions = Transactions::new(Feature::Party);
            let keys = names.iter().map(|name| key(name)).collect();
            let decision = Count { keys, decided: 0, pauses };
            assert!(matches!(
                transactions.begin(&mut core, decision, Facts::default()),
                TransactionProgress::Waits
            ));
            Fixture { core, transactions }
        }

        fn work(&mut self) -> Vec<(Ticket, Work)> {
            std::mem::take(&mut self.core.effects.work)
        }

        /// Answers the only work under way.
        fn answer(&mut self, answer: StoreAnswer) -> TransactionProgress<Count> {
            let work = self.work();
            assert_eq!(work.len(), 1);
            self.transactions.answered(&mut self.core, work[0].0, answer)
        }
    }

    #[test]
    fn everything_needed_is_loaded_in_one_round_trip_and_expected() {
        let mut fixture = Fixture::begin(&["a", "b"], false);
        let reads = fixture.work();
        assert_eq!(reads.len(), 2);
        let Fixture { core, transactions } = &mut fixture;
        assert!(matches!(transactions.answered(core, reads[0].0, row("a", 7)), TransactionProgress::Waits));
        let none = StoreAnswer::Read(Found::Document(None));
        assert!(matches!(transactions.answered(core, reads[1].0, none), TransactionProgress::Waits));
        let commits = fixture.work();
        let Work::Commit(commit) = &commits[0].1 else { panic!("it commits") };
        let expects = [("a", 7), ("b", 0)].map(|(name, version)| {
            let key = RowKey::Document(key(name));
            Expect { key, version }
        });
        assert_eq!(commit.expects, expects);
        let answer = StoreAnswer::Committed(Receipt::default());
        let progress = fixture.transactions.answered(&mut fixture.core, commits[0].0, answer);
        assert!(matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Committed(1, _))));
        assert!(!fixture.transactions.owns(commits[0].0));
    }

    #[test]
    fn conflict_loads_and_decides_anew_until_it_gives_up() {
        let mut fixture = Fixture::begin(&["a"], false);
        for _ in 0..TRIES {
            assert!(matches!(fixture.answer(row("a", 1)), TransactionProgress::Waits));
            let again = fixture.answer(conflict(RowKey::Document(key("a"))));
            assert!(matches!(again, TransactionProgress::Waits));
        }
        assert!(matches!(fixture.answer(row("a", 1)), TransactionProgress::Waits));
        let progress = fixture.answer(conflict(RowKey::Document(key("a"))));
        let TransactionProgress::Ended(decision, TransactionEnd::Failed { unknown: None, .. }) = progress
        else {
            panic!("it gives up, and nothing happened")
        };
        assert_eq!(decision.decided, u32::from(TRIES) + 1);
    }

    #[test]
    fn deadline_that_was_set_anew_ends_the_transaction() {
        let mut fixture = Fixture::begin(&["a"], false);
        fixture.answer(row("a", 1));
        let deadline = RowKey::Deadline { kind: "party".into(), name: "1".into() };
        assert!(matches!(
            fixture.answer(conflict(deadline)),
            TransactionProgress::Ended(_, TransactionEnd::Failed { .. })
        ));
    }

    #[test]
    fn lost_answer_to_a_commit_is_an_unknown_outcome() {
        let mut fixture = Fixture::begin(&["a"], false);
        fixture.answer(row("a", 1));
        let lost = StoreError::timeout();
        let progress = fixture.answer(StoreAnswer::Failed(lost));
        assert!(matches!(
            progress,
            TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: Some(1), .. })
        ));
    }

    #[test]
    fn failed_read_ends_the_transaction_once() {
        let mut fixture = Fixture::begin(&["a", "b"], false);
        let reads = fixture.work();
        let Fixture { core, transactions } = &mut fixture;
        let lost = StoreAnswer::Failed(StoreError::timeout());
        assert!(matches!(transactions.answered(core, reads[0].0, lost), TransactionProgress::Waits));
        let progress = transactions.answered(core, reads[1].0, row("b", 1));
        assert!(matches!(
            progress,
            TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: None, .. })
        ));
        assert!(matches!(transactions.answered(core, reads[1].0, row("b", 1)), TransactionProgress::Waits));
    }

    #[test]
    fn resumed_transaction_loads_anew() {
        let mut fixture = Fixture::begin(&["a"], true);
        let TransactionProgress::Paused(number) = fixture.answer(row("a", 1)) else { panic!("it pauses") };
        let progress = fixture.transactions.resume(&mut fixture.core, number);
        assert!(matches!(progress, TransactionProgress::Waits));
        assert!(matches!(fixture.answer(row("a", 2)), TransactionProgress::Waits));
        let commits = fixture.work();
        let Work::Commit(commit) = &commits[0].1 else { panic!("it commits") };
        assert_eq!(commit.expects[0].version, 2);
    }
    /// Reads the time twice, once as a page, then commits; `agains` times what it read does not fit together.
    struct Clocks {
        agains: u32,
        pages: u32,
    }

    impl Decision for Clocks {
        type Outcome = u32;

        fn decide(&mut self, _: &Core, facts: &Facts) -> DecisionStep<u32> {
            if facts.page(&Read::Time).is_some() {
                self.pages += 1;
                return DecisionStep::Need(vec![Need::Read(Read::Time)]);
            }
            if facts.read(&Read::Time).is_none() {
                return DecisionStep::Need(vec![Need::Page(Read::Time)]);
            }
            if self.agains > 0 {
                self.agains -= 1;
                return DecisionStep::Again;
            }
            DecisionStep::Commit { commit: Commit::default(), outcome: self.pages }
        }
    }

    fn run_clocks(agains: u32) -> (u32, Option<u32>) {
        let node = Node::new(Settings::default(), Box::new(NoTokens));
        let mut core = Core::new(node, 0, Box::new(Zeros), Time(1_000));
        let mut transactions = Transactions::new(Feature::Topics);
        let mut progress = transactions.begin(&mut core, Clocks { agains, pages: 0 }, Facts::default());
        loop {
            if let TransactionProgress::Ended(decision, ended) = progress {
                return match ended {
                    TransactionEnd::Committed(outcome, _) => (decision.pages, Some(outcome)),
                    _ => (decision.pages, None),
                };
            }
            let (ticket, work) = core.effects.work.remove(0);
            let answer = match work {
                Work::Read(_) => StoreAnswer::Read(Found::Time(Time(5))),
                Work::Commit(commit) => {
                    assert!(commit.expects.is_empty(), "reads are not expected");
                    StoreAnswer::Committed(Receipt::default())
                }
            };
            progress = transactions.answered(&mut core, ticket, answer);
        }
    }

    #[test]
    fn page_is_given_once_and_a_read_is_kept() {
        assert_eq!(run_clocks(0), (1, Some(1)));
    }

    #[test]
    fn what_does_not_fit_together_is_loaded_anew_until_it_gives_up() {
        assert_eq!(run_clocks(3), (4, Some(4)));
        let tries = u32::from(TRIES);
        assert_eq!(run_clocks(tries + 1), (tries + 1, None));
    }
}
