//! The driver against conflicts, lost answers and failures.

use super::*;
use crate::node::{Node, RandomSource, TokenVerifier};
use crate::settings::Settings;
use std::sync::Arc;
use tavern_domain::{Epoch, Identity, Time};
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

/// Needs these documents, then commits; counts how often it ran with everything loaded.
struct Count {
    keys: Vec<DocumentKey>,
    /// The version of a cached row.
    cached: Option<u64>,
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

    fn cached(&self, _: &Core, _: &Need) -> Option<Found> {
        self.cached.map(|version| found("a", version))
    }
}

struct Fixture {
    core: Core,
    transactions: Transactions<Count>,
}

fn key(name: &str) -> DocumentKey {
    DocumentKey::new("test", name)
}

fn found(name: &str, version: u64) -> Found {
    let row = Document { key: key(name), body: Arc::from(*b"{}") };
    Found::Document(Some(Versioned { version, row }))
}

fn row(name: &str, version: u64) -> StoreAnswer {
    StoreAnswer::Read(found(name, version))
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
        let decision = Count { keys, cached: None, decided: 0, pauses };
        assert!(matches!(
            transactions.begin(&mut core, decision, Facts::default()),
            TransactionProgress::Waits
        ));
        Fixture { core, transactions }
    }

    fn work(&mut self) -> Vec<(Ticket, Work)> {
        std::mem::take(&mut self.core.effects.work)
    }

    /// Answers the only request in progress.
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
fn conflict_loads_and_decides_again_until_the_limit() {
    let mut fixture = Fixture::begin(&["a"], false);
    for _ in 0..TRIES {
        assert!(matches!(fixture.answer(row("a", 1)), TransactionProgress::Waits));
        let again = fixture.answer(conflict(RowKey::Document(key("a"))));
        assert!(matches!(again, TransactionProgress::Waits));
    }
    assert!(matches!(fixture.answer(row("a", 1)), TransactionProgress::Waits));
    let progress = fixture.answer(conflict(RowKey::Document(key("a"))));
    let TransactionProgress::Ended(decision, TransactionEnd::Failed { unknown: None, .. }) = progress else {
        panic!("it gives up, and nothing happened")
    };
    assert_eq!(decision.decided, u32::from(TRIES) + 1);
}

#[test]
fn deadline_that_was_set_again_ends_the_transaction() {
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
    assert!(matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: None, .. })));
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

/// Reads the time twice, once as a page, then commits; `agains` times the facts it read are inconsistent.
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

/// Answers from what is stored, without a commit.
struct Answer {
    /// The version of a cached row.
    cached: Option<u64>,
}

impl Decision for Answer {
    type Outcome = u64;

    fn decide(&mut self, _: &Core, facts: &Facts) -> DecisionStep<u64> {
        match facts.document(&key("a")) {
            None => DecisionStep::Need(vec![Need::Document(key("a"))]),
            Some(found) => DecisionStep::Done(found.map_or(0, |found| found.version)),
        }
    }

    fn cached(&self, _: &Core, _: &Need) -> Option<Found> {
        self.cached.map(|version| found("a", version))
    }
}

#[test]
fn cached_row_is_expected_by_the_commit_and_not_read() {
    let mut fixture = Fixture::begin(&[], false);
    fixture.work();
    let decision = Count { keys: vec![key("a")], cached: Some(7), decided: 0, pauses: false };
    fixture.transactions.begin(&mut fixture.core, decision, Facts::default());
    let work = fixture.work();
    let [(ticket, Work::Commit(commit))] = &work[..] else { panic!("it commits at once: {work:?}") };
    assert_eq!(commit.expects, [Expect { key: RowKey::Document(key("a")), version: 7 }]);
    let conflict = conflict(RowKey::Document(key("a")));
    let Fixture { core, transactions } = &mut fixture;
    assert!(matches!(transactions.answered(core, *ticket, conflict), TransactionProgress::Waits));
    assert!(matches!(fixture.work()[..], [(_, Work::Read(_))]), "a stale one is read");
}

#[test]
fn decision_without_a_commit_does_not_rely_on_a_cached_row() {
    let mut fixture = Fixture::begin(&[], false);
    fixture.work();
    let mut answers = Transactions::new(Feature::Party);
    let begun = answers.begin(&mut fixture.core, Answer { cached: Some(7) }, Facts::default());
    assert!(matches!(begun, TransactionProgress::Waits));
    let work = fixture.work();
    assert!(matches!(work[..], [(_, Work::Read(_))]));
    let ended = answers.answered(&mut fixture.core, work[0].0, row("a", 8));
    assert!(matches!(ended, TransactionProgress::Ended(_, TransactionEnd::Done(8))));
}

#[test]
fn transaction_that_proceeds_keeps_the_loaded_rows() {
    let mut fixture = Fixture::begin(&["a"], true);
    let TransactionProgress::Paused(number) = fixture.answer(row("a", 7)) else { panic!("it pauses") };
    fixture.transactions.proceed(&mut fixture.core, number);
    assert!(matches!(fixture.work()[..], [(_, Work::Commit(_))]));
}

#[test]
fn refused_commit_was_not_applied() {
    let mut fixture = Fixture::begin(&["a"], false);
    fixture.answer(row("a", 1));
    let fenced = StoreError::Fenced { node: "n1".into(), epoch: Epoch(1) };
    let progress = fixture.answer(StoreAnswer::Failed(fenced));
    assert!(matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: None, .. })));
}

#[test]
fn answer_of_another_kind_is_a_corrupt_store() {
    let mut fixture = Fixture::begin(&["a"], false);
    let progress = fixture.answer(StoreAnswer::Read(Found::Time(Time(5))));
    let TransactionProgress::Ended(_, TransactionEnd::Failed { answer, unknown: None }) = progress else {
        panic!("it ends")
    };
    assert!(matches!(answer, StoreAnswer::Failed(StoreError::Corrupt { .. })));
}

#[test]
fn transactions_at_the_same_time_are_kept_apart() {
    let mut fixture = Fixture::begin(&["a"], false);
    let decision = Count { keys: vec![key("b")], cached: None, decided: 10, pauses: false };
    fixture.transactions.begin(&mut fixture.core, decision, Facts::default());
    let reads = fixture.work();
    let Fixture { core, transactions } = &mut fixture;
    for ((ticket, _), name) in reads.iter().zip(["a", "b"]) {
        assert!(transactions.owns(*ticket));
        assert!(matches!(transactions.answered(core, *ticket, row(name, 1)), TransactionProgress::Waits));
        assert!(!transactions.owns(*ticket));
    }
    let commits = fixture.work();
    let outcomes = commits.iter().map(|(ticket, _)| {
        let answer = StoreAnswer::Committed(Receipt::default());
        match fixture.transactions.answered(&mut fixture.core, *ticket, answer) {
            TransactionProgress::Ended(_, TransactionEnd::Committed(outcome, _)) => outcome,
            _ => panic!("it is committed"),
        }
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), [1, 11]);
}

#[test]
fn paused_transaction_can_be_changed_and_ended_once() {
    let mut fixture = Fixture::begin(&["a"], true);
    let TransactionProgress::Paused(number) = fixture.answer(row("a", 1)) else { panic!("it pauses") };
    assert!(fixture.transactions.get_mut(number + 1).is_none());
    fixture.transactions.get_mut(number).expect("it is paused").decided = 7;
    let fail =
        |fixture: &mut Fixture| fixture.transactions.fail(number, StoreAnswer::Failed(StoreError::timeout()));
    let TransactionProgress::Ended(decision, TransactionEnd::Failed { unknown: None, .. }) =
        fail(&mut fixture)
    else {
        panic!("it ends, and nothing happened")
    };
    assert_eq!(decision.decided, 7);
    assert!(matches!(fail(&mut fixture), TransactionProgress::Waits));
    assert!(matches!(fixture.transactions.proceed(&mut fixture.core, number), TransactionProgress::Waits));
    assert!(fixture.work().is_empty());
}

#[test]
fn commit_carries_the_trace_of_the_command_that_began_it() {
    let mut fixture = Fixture::begin(&[], false);
    assert!(fixture.core.effects.commit_traces.is_empty(), "the command was not traced");
    fixture.work();
    let trace = TraceContext { trace_id: 1, span_id: 2, sampled: true };
    fixture.core.trace = Some(trace);
    let decision = Count { keys: vec![key("a")], cached: None, decided: 0, pauses: false };
    fixture.transactions.begin(&mut fixture.core, decision, Facts::default());
    fixture.core.trace = None;
    fixture.answer(row("a", 1));
    let ticket = fixture.work()[0].0;
    assert_eq!(fixture.core.effects.commit_traces, [(ticket, trace)]);
}

#[test]
fn conflicts_of_party_commands_are_counted() {
    for (feature, counted) in [(Feature::Party, 1), (Feature::Topics, 0)] {
        let mut fixture = Fixture::begin(&[], false);
        fixture.work();
        fixture.transactions = Transactions::new(feature);
        let decision = Count { keys: vec![], cached: None, decided: 0, pauses: false };
        fixture.transactions.begin(&mut fixture.core, decision, Facts::default());
        fixture.answer(conflict(RowKey::Document(key("a"))));
        assert_eq!(fixture.core.stats.party_conflicts.get(), counted);
    }
}

#[test]
fn answer_from_loaded_rows_is_decided_once() {
    let mut fixture = Fixture::begin(&[], false);
    fixture.work();
    let mut answers = Transactions::new(Feature::Party);
    answers.begin(&mut fixture.core, Answer { cached: None }, Facts::default());
    let reads = fixture.work();
    let ended = answers.answered(&mut fixture.core, reads[0].0, row("a", 8));
    assert!(matches!(ended, TransactionProgress::Ended(_, TransactionEnd::Done(8))));
    assert!(fixture.work().is_empty(), "nothing is loaded again");
}
