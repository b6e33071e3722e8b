//! Runs decisions against the store. A decision is pure: it is given the facts that were loaded and answers what else it
//! needs, or what to commit. The driver loads everything that is asked for in one round trip, adds the versions that were
//! read to the commit, starts again on a conflict, and says when the outcome is unknown.
//! Must hold: every row that a decision has seen is expected by its commit; a transaction ends exactly once.

use crate::core::{Core, Feature};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_engine::{
    Answer, Commit, Document, DocumentKey, Expect, Found, Hold, Person, Presence, PresenceKey, Read, Receipt,
    RowKey, StoreError, Ticket, Versioned, Work,
};

/// Conflicts in a row after which a transaction gives up: as many writers would have to change the same rows meanwhile.
pub(crate) const TRIES: u8 = 32;

pub(crate) trait Decision {
    /// What the transaction means once it is committed.
    type Outcome;

    fn decide(&mut self, core: &Core, facts: &Facts) -> Step<Self::Outcome>;
}

pub(crate) enum Step<T> {
    /// Load these too, then ask again. Never empty.
    Need(Vec<Need>),
    Commit {
        commit: Commit,
        outcome: T,
    },
    /// There is nothing to write.
    Done(T),
    /// It cannot be decided: what was loaded cannot be used.
    Fail(Answer),
    /// Something that is not in the store is missing. The feature resumes the transaction, which loads everything anew.
    Pause,
}

/// A row that a decision needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    Document(DocumentKey),
    Presence(PresenceKey),
    Hold(PresenceKey),
    /// A user with all their presences. Not expected by the commit: the decision expects the rows it relies on.
    Person(Arc<str>),
}

/// What was loaded for one transaction. `None` outside: not loaded; inside: there is no such row. A transaction has few
/// rows, so lists are quicker than maps.
#[derive(Default)]
pub(crate) struct Facts {
    documents: Vec<(DocumentKey, Option<Versioned<Document>>)>,
    presences: Vec<(PresenceKey, Option<Versioned<Presence>>)>,
    holds: Vec<(PresenceKey, Option<Versioned<Hold>>)>,
    people: Vec<(Arc<str>, Person)>,
}

impl Facts {
    /// A presence that is known without reading it. If it is stale, the commit conflicts and it is read.
    pub fn assuming(key: PresenceKey, known: Option<Versioned<Presence>>) -> Facts {
        Facts { presences: vec![(key, known)], ..Facts::default() }
    }

    pub fn document(&self, key: &DocumentKey) -> Option<Option<&Versioned<Document>>> {
        find(&self.documents, key).map(Option::as_ref)
    }

    pub fn presence(&self, key: &PresenceKey) -> Option<Option<&Versioned<Presence>>> {
        find(&self.presences, key).map(Option::as_ref)
    }

    pub fn hold(&self, key: &PresenceKey) -> Option<Option<&Versioned<Hold>>> {
        find(&self.holds, key).map(Option::as_ref)
    }

    pub fn person(&self, user: &Arc<str>) -> Option<&Person> {
        find(&self.people, user)
    }

    /// Nothing was loaded yet, or all of it is loaded anew.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
            && self.presences.is_empty()
            && self.holds.is_empty()
            && self.people.is_empty()
    }

    fn add(&mut self, need: Need, found: Found) -> bool {
        match (need, found) {
            (Need::Document(key), Found::Document(row)) => self.documents.push((key, row)),
            (Need::Presence(key), Found::Presence(row)) => self.presences.push((key, row)),
            (Need::Hold(key), Found::Hold(row)) => self.holds.push((key, row)),
            (Need::Person(user), Found::People(people)) => {
                let Some(person) = people.into_iter().next() else { return false };
                self.people.push((user, person));
            }
            _ => return false,
        }
        true
    }

    fn expects(&self) -> impl Iterator<Item = Expect> {
        fn expect<T>(key: RowKey, row: &Option<Versioned<T>>) -> Expect {
            Expect { key, version: row.as_ref().map_or(0, |row| row.version) }
        }
        let documents = self.documents.iter().map(|(key, row)| expect(RowKey::Document(key.clone()), row));
        let presences = self.presences.iter().map(|(key, row)| expect(RowKey::Presence(key.clone()), row));
        let holds = self.holds.iter().map(|(key, row)| expect(RowKey::Hold(key.clone()), row));
        documents.chain(presences).chain(holds)
    }
}

fn find<'a, K: PartialEq, T>(rows: &'a [(K, T)], key: &K) -> Option<&'a T> {
    rows.iter().find(|(known, _)| known == key).map(|(_, row)| row)
}

/// What became of a transaction.
#[expect(clippy::large_enum_variant, reason = "moved once or twice; a box each would cost more")]
pub(crate) enum Progress<D: Decision> {
    /// The store is asked.
    Waits,
    /// It must be resumed, by its number.
    Paused(u64),
    Ended(D, Ended<D::Outcome>),
}

pub(crate) enum Ended<T> {
    Committed(T, Receipt),
    Done(T),
    /// The store did not do what it must. `unknown`: the commit may have happened all the same, and would have meant this.
    Failed {
        answer: Answer,
        unknown: Option<T>,
    },
}

/// The transactions of one feature that are under way.
pub(crate) struct Transactions<D: Decision> {
    feature: Feature,
    numbers: u64,
    running: HashMap<u64, Box<Running<D>>, RandomState>,
    asked: HashMap<Ticket, Asked, RandomState>,
}

struct Running<D: Decision> {
    decision: D,
    facts: Facts,
    /// Reads that are not answered yet.
    open: usize,
    failed: Option<Answer>,
    /// What the commit under way means.
    outcome: Option<D::Outcome>,
    tries: u8,
}

enum Asked {
    Read(u64, Need),
    Commit(u64),
}

impl<D: Decision> Transactions<D> {
    pub fn new(feature: Feature) -> Transactions<D> {
        Transactions { feature, numbers: 0, running: HashMap::default(), asked: HashMap::default() }
    }

    pub fn begin(&mut self, core: &mut Core, decision: D, facts: Facts) -> Progress<D> {
        self.numbers += 1;
        let running = Running { decision, facts, open: 0, failed: None, outcome: None, tries: 0 };
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
    pub fn resume(&mut self, core: &mut Core, number: u64) -> Progress<D> {
        let Some(running) = self.running.get_mut(&number) else { return Progress::Waits };
        running.facts = Facts::default();
        self.run(core, number)
    }

    /// Ends a paused transaction because what it waits for cannot be had.
    pub fn fail(&mut self, number: u64, answer: Answer) -> Progress<D> {
        match self.running.remove(&number) {
            Some(running) => Progress::Ended(running.decision, Ended::Failed { answer, unknown: None }),
            None => Progress::Waits,
        }
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: Answer) -> Progress<D> {
        match self.asked.remove(&ticket) {
            Some(Asked::Read(number, need)) => self.loaded(core, number, need, answer),
            Some(Asked::Commit(number)) => self.committed(core, number, answer),
            None => Progress::Waits,
        }
    }

    fn run(&mut self, core: &mut Core, number: u64) -> Progress<D> {
        let Some(running) = self.running.get_mut(&number) else { return Progress::Waits };
        match running.decision.decide(core, &running.facts) {
            Step::Need(needs) => {
                assert!(!needs.is_empty(), "a decision that needs something says what");
                running.open = needs.len();
                for need in needs {
                    let ticket = core.submit(self.feature, Work::Read(read_of(&need)));
                    self.asked.insert(ticket, Asked::Read(number, need));
                }
                Progress::Waits
            }
            Step::Commit { mut commit, outcome } => {
                commit.expects.extend(running.facts.expects());
                running.outcome = Some(outcome);
                let ticket = core.submit(self.feature, Work::Commit(commit));
                self.asked.insert(ticket, Asked::Commit(number));
                Progress::Waits
            }
            Step::Done(outcome) => self.end(number, Ended::Done(outcome)),
            Step::Fail(answer) => self.end(number, Ended::Failed { answer, unknown: None }),
            Step::Pause => Progress::Paused(number),
        }
    }

    fn loaded(&mut self, core: &mut Core, number: u64, need: Need, answer: Answer) -> Progress<D> {
        let Some(running) = self.running.get_mut(&number) else { return Progress::Waits };
        running.open -= 1;
        match answer {
            Answer::Read(found) => {
                if !running.facts.add(need, found) {
                    let what = "the store answered another question".to_owned();
                    running.failed = Some(Answer::Failed(StoreError::Corrupt { what, source: None }));
                }
            }
            answer => running.failed = Some(answer),
        }
        if running.open > 0 {
            return Progress::Waits;
        }
        match running.failed.take() {
            Some(answer) => self.end(number, Ended::Failed { answer, unknown: None }),
            None => self.run(core, number),
        }
    }

    fn committed(&mut self, core: &mut Core, number: u64, answer: Answer) -> Progress<D> {
        let Some(running) = self.running.get_mut(&number) else { return Progress::Waits };
        let outcome = running.outcome.take();
        match (answer, outcome) {
            (Answer::Committed(receipt), Some(outcome)) => {
                self.end(number, Ended::Committed(outcome, receipt))
            }
            // A deadline that was set anew means something else: whoever set it looks after it.
            (Answer::Failed(StoreError::Conflict { key, .. }), _)
                if running.tries < TRIES && !matches!(key, RowKey::Deadline { .. }) =>
            {
                running.tries += 1;
                if self.feature == Feature::Party {
                    core.stats.party_conflicts.add(1);
                }
                self.resume(core, number)
            }
            (answer, outcome) => {
                let refused = matches!(&answer, Answer::Failed(error) if error.is_refusal());
                let unknown = outcome.filter(|_| !refused);
                self.end(number, Ended::Failed { answer, unknown })
            }
        }
    }

    fn end(&mut self, number: u64, ended: Ended<D::Outcome>) -> Progress<D> {
        match self.running.remove(&number) {
            Some(running) => Progress::Ended(running.decision, ended),
            None => Progress::Waits,
        }
    }
}

fn read_of(need: &Need) -> Read {
    match need {
        Need::Document(key) => Read::Document(key.clone()),
        Need::Presence(key) => Read::Presence(key.clone()),
        Need::Hold(key) => Read::Hold(key.clone()),
        Need::Person(user) => Read::People { users: vec![user.clone()], viewer: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Dice, Gate, Node};
    use crate::settings::Settings;
    use tavern_domain::{Identity, Time};
    use tavern_wire::error::{Code, Refusal};

    struct NoTokens;

    impl Gate for NoTokens {
        fn verify(&self, _: &str, _: Time) -> Result<Identity, Refusal> {
            Err(Refusal::from(Code::Unauthenticated))
        }
    }

    struct Zeros;

    impl Dice for Zeros {
        fn roll(&mut self) -> u128 {
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

        fn decide(&mut self, _: &Core, facts: &Facts) -> Step<u32> {
            let missing = self.keys.iter().filter(|key| facts.document(key).is_none());
            let missing: Vec<Need> = missing.cloned().map(Need::Document).collect();
            if !missing.is_empty() {
                return Step::Need(missing);
            }
            if std::mem::take(&mut self.pauses) {
                return Step::Pause;
            }
            self.decided += 1;
            Step::Commit { commit: Commit::default(), outcome: self.decided }
        }
    }

    struct Fixture {
        core: Core,
        transactions: Transactions<Count>,
    }

    fn key(name: &str) -> DocumentKey {
        DocumentKey::new("test", name)
    }

    fn row(name: &str, version: u64) -> Answer {
        let row = Document { key: key(name), body: Arc::from(*b"{}") };
        Answer::Read(Found::Document(Some(Versioned { version, row })))
    }

    fn conflict(key: RowKey) -> Answer {
        Answer::Failed(StoreError::Conflict { key, expected: 1, found: 2 })
    }

    impl Fixture {
        fn begin(names: &[&str], pauses: bool) -> Fixture {
            let node = Node::new(Settings::default(), Box::new(NoTokens));
            let mut core = Core::new(node, 0, Box::new(Zeros), Time(1_000));
            let mut transactions = Transactions::new(Feature::Party);
            let keys = names.iter().map(|name| key(name)).collect();
            let decision = Count { keys, decided: 0, pauses };
            assert!(matches!(transactions.begin(&mut core, decision, Facts::default()), Progress::Waits));
            Fixture { core, transactions }
        }

        fn work(&mut self) -> Vec<(Ticket, Work)> {
            std::mem::take(&mut self.core.effects.work)
        }

        /// Answers the only work under way.
        fn answer(&mut self, answer: Answer) -> Progress<Count> {
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
        assert!(matches!(transactions.answered(core, reads[0].0, row("a", 7)), Progress::Waits));
        let none = Answer::Read(Found::Document(None));
        assert!(matches!(transactions.answered(core, reads[1].0, none), Progress::Waits));
        let commits = fixture.work();
        let Work::Commit(commit) = &commits[0].1 else { panic!("it commits") };
        let expects = [("a", 7), ("b", 0)].map(|(name, version)| {
            let key = RowKey::Document(key(name));
            Expect { key, version }
        });
        assert_eq!(commit.expects, expects);
        let answer = Answer::Committed(Receipt::default());
        let progress = fixture.transactions.answered(&mut fixture.core, commits[0].0, answer);
        assert!(matches!(progress, Progress::Ended(_, Ended::Committed(1, _))));
        assert!(!fixture.transactions.owns(commits[0].0));
    }

    #[test]
    fn conflict_loads_and_decides_anew_until_it_gives_up() {
        let mut fixture = Fixture::begin(&["a"], false);
        for _ in 0..TRIES {
            assert!(matches!(fixture.answer(row("a", 1)), Progress::Waits));
            let again = fixture.answer(conflict(RowKey::Document(key("a"))));
            assert!(matches!(again, Progress::Waits));
        }
        assert!(matches!(fixture.answer(row("a", 1)), Progress::Waits));
        let progress = fixture.answer(conflict(RowKey::Document(key("a"))));
        let Progress::Ended(decision, Ended::Failed { unknown: None, .. }) = progress else {
            panic!("it gives up, and nothing happened")
        };
        assert_eq!(decision.decided, u32::from(TRIES) + 1);
    }

    #[test]
    fn deadline_that_was_set_anew_ends_the_transaction() {
        let mut fixture = Fixture::begin(&["a"], false);
        fixture.answer(row("a", 1));
        let deadline = RowKey::Deadline { kind: "party".into(), name: "1".into() };
        assert!(matches!(fixture.answer(conflict(deadline)), Progress::Ended(_, Ended::Failed { .. })));
    }

    #[test]
    fn lost_answer_to_a_commit_is_an_unknown_outcome() {
        let mut fixture = Fixture::begin(&["a"], false);
        fixture.answer(row("a", 1));
        let lost = StoreError::timeout();
        let progress = fixture.answer(Answer::Failed(lost));
        assert!(matches!(progress, Progress::Ended(_, Ended::Failed { unknown: Some(1), .. })));
    }

    #[test]
    fn failed_read_ends_the_transaction_once() {
        let mut fixture = Fixture::begin(&["a", "b"], false);
        let reads = fixture.work();
        let Fixture { core, transactions } = &mut fixture;
        let lost = Answer::Failed(StoreError::timeout());
        assert!(matches!(transactions.answered(core, reads[0].0, lost), Progress::Waits));
        let progress = transactions.answered(core, reads[1].0, row("b", 1));
        assert!(matches!(progress, Progress::Ended(_, Ended::Failed { unknown: None, .. })));
        assert!(matches!(transactions.answered(core, reads[1].0, row("b", 1)), Progress::Waits));
    }

    #[test]
    fn resumed_transaction_loads_anew() {
        let mut fixture = Fixture::begin(&["a"], true);
        let Progress::Paused(number) = fixture.answer(row("a", 1)) else { panic!("it pauses") };
        let progress = fixture.transactions.resume(&mut fixture.core, number);
        assert!(matches!(progress, Progress::Waits));
        assert!(matches!(fixture.answer(row("a", 2)), Progress::Waits));
        let commits = fixture.work();
        let Work::Commit(commit) = &commits[0].1 else { panic!("it commits") };
        assert_eq!(commit.expects[0].version, 2);
    }
}
