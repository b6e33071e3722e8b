//! The driver against conflicts, lost answers and failures.

use super::*;
use crate::node::{Node, RandomSource, TokenVerifier};
use crate::settings::Settings;
use std::cell::Cell;
use std::sync::Arc;
use tavern_domain::{Epoch, Identity, Time};
use tavern_store::{Document, DocumentKey, Expect, Found, PresenceKey, Read, Versioned};
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

/// Needs these documents, then commits a number; notes how often it ran in an attempt.
#[derive(Default)]
struct Count {
    keys: Vec<DocumentKey>,
    number: u32,
    may_assume: bool,
    /// Whether it waits: for its number, or until it was resumed.
    pauses: Option<Pause>,
}

impl Count {
    fn of(names: &[&str]) -> Count {
        Count { keys: names.iter().map(|name| key(name)).collect(), number: 1, ..Count::default() }
    }
}

impl Decision for Count {
    /// Its number, and how often it ran in the attempt that ended it.
    type Outcome = (u32, u32);
    type Notes = u32;

    fn decide(&self, _: &DecisionContext<'_>, facts: &Facts, runs: &mut u32) -> DecisionStep<(u32, u32)> {
        *runs += 1;
        let missing = self.keys.iter().filter(|key| facts.document(key).is_none());
        let missing: Vec<Need> = missing.cloned().map(Need::Document).collect();
        if !missing.is_empty() {
            return DecisionStep::Need(missing);
        }
        match self.pauses {
            Some(Pause::Supply) if self.number == 0 => DecisionStep::Pause(Pause::Supply),
            Some(Pause::Change) if facts.resumed() == 0 => DecisionStep::Pause(Pause::Change),
            _ => DecisionStep::Commit { commit: Commit::default(), outcome: (self.number, *runs) },
        }
    }

    fn may_assume(&self) -> bool {
        self.may_assume
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
    fn new() -> Fixture {
        let node = Node::new(Settings::default(), Box::new(NoTokens));
        let core = Core::new(node, 0, Box::new(Zeros), Time(1_000));
        Fixture { core, transactions: Transactions::new(Feature::Party) }
    }

    fn begin(decision: Count) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.also(decision);
        fixture
    }

    fn also(&mut self, decision: Count) {
        let begun = self.transactions.begin(&mut self.core, decision, Facts::default());
        assert!(matches!(begun, TransactionProgress::Waits));
    }

    /// This version of the row is cached.
    fn cache(&mut self, name: &str, version: u64) {
        let row = Versioned { version, row: Arc::from(*b"{}") };
        self.core.cache.documents.insert(key(name), Some(row));
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
    let mut fixture = Fixture::begin(Count::of(&["a", "b"]));
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
    assert!(matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Committed((1, 2), _))));
    assert!(!fixture.transactions.owns(commits[0].0));
}

#[test]
fn conflict_loads_and_decides_again_until_the_limit() {
    let mut fixture = Fixture::begin(Count::of(&["a"]));
    for _ in 0..TRIES {
        assert!(matches!(fixture.answer(row("a", 1)), TransactionProgress::Waits));
        let again = fixture.answer(conflict(RowKey::Document(key("a"))));
        assert!(matches!(again, TransactionProgress::Waits));
    }
    assert!(matches!(fixture.answer(row("a", 1)), TransactionProgress::Waits));
    let progress = fixture.answer(conflict(RowKey::Document(key("a"))));
    assert!(matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: None, .. })));
}

#[test]
fn attempt_after_a_conflict_has_no_rows_and_no_notes_of_the_one_before() {
    let mut fixture = Fixture::begin(Count::of(&["a", "b"]));
    let both = |fixture: &mut Fixture, versions: [u64; 2]| {
        for ((ticket, _), (name, version)) in
            fixture.work().into_iter().zip(["a", "b"].into_iter().zip(versions))
        {
            fixture.transactions.answered(&mut fixture.core, ticket, row(name, version));
        }
        match &fixture.core.effects.work[..] {
            [(_, Work::Commit(commit))] => {
                commit.expects.iter().map(|expect| expect.version).collect::<Vec<_>>()
            }
            work => panic!("it commits: {work:?}"),
        }
    };
    assert_eq!(both(&mut fixture, [1, 5]), [1, 5]);
    assert!(matches!(fixture.answer(conflict(RowKey::Document(key("a")))), TransactionProgress::Waits));
    assert_eq!(both(&mut fixture, [2, 6]), [2, 6], "both are loaded again");
    let progress = fixture.answer(StoreAnswer::Committed(Receipt::default()));
    assert!(
        matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Committed((1, 2), _))),
        "two runs"
    );
}

#[test]
fn deadline_that_was_set_again_ends_the_transaction() {
    let mut fixture = Fixture::begin(Count::of(&["a"]));
    fixture.answer(row("a", 1));
    let deadline = RowKey::Deadline { kind: "party".into(), name: "1".into() };
    assert!(matches!(
        fixture.answer(conflict(deadline)),
        TransactionProgress::Ended(_, TransactionEnd::Failed { .. })
    ));
}

#[test]
fn lost_answer_to_a_commit_is_an_unknown_outcome() {
    let mut fixture = Fixture::begin(Count::of(&["a"]));
    fixture.answer(row("a", 1));
    let lost = StoreError::timeout();
    let progress = fixture.answer(StoreAnswer::Failed(lost));
    assert!(matches!(
        progress,
        TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: Some((1, 2)), .. })
    ));
}

#[test]
fn failed_read_ends_the_transaction_once() {
    let mut fixture = Fixture::begin(Count::of(&["a", "b"]));
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
    let waits = Count { pauses: Some(Pause::Change), ..Count::of(&["a"]) };
    let mut fixture = Fixture::begin(waits);
    let TransactionProgress::Paused(number, Pause::Change) = fixture.answer(row("a", 1)) else {
        panic!("it pauses")
    };
    let progress = fixture.transactions.resume(&mut fixture.core, number);
    assert!(matches!(progress, TransactionProgress::Waits));
    assert!(matches!(fixture.answer(row("a", 2)), TransactionProgress::Waits));
    let commits = fixture.work();
    let Work::Commit(commit) = &commits[0].1 else { panic!("it commits") };
    assert_eq!(commit.expects[0].version, 2);
    let progress = fixture.transactions.answered(
        &mut fixture.core,
        commits[0].0,
        StoreAnswer::Committed(Receipt::default()),
    );
    assert!(
        matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Committed((1, 2), _))),
        "no notes"
    );
}

#[test]
fn resumptions_are_counted_through_conflicts() {
    let waits = Count { pauses: Some(Pause::Change), ..Count::of(&["a"]) };
    let mut fixture = Fixture::begin(waits);
    let TransactionProgress::Paused(number, _) = fixture.answer(row("a", 1)) else { panic!("it pauses") };
    fixture.transactions.resume(&mut fixture.core, number);
    fixture.answer(row("a", 2));
    fixture.answer(conflict(RowKey::Document(key("a"))));
    fixture.answer(row("a", 3));
    assert!(matches!(fixture.work()[..], [(_, Work::Commit(_))]), "it waits once");
}

/// Reads the time twice, once as a page, then commits how many pages it got; the facts of the first attempts are
/// inconsistent.
struct Clocks {
    agains: Cell<u32>,
}

impl Decision for Clocks {
    type Outcome = u32;
    type Notes = u32;

    fn decide(&self, _: &DecisionContext<'_>, facts: &Facts, pages: &mut u32) -> DecisionStep<u32> {
        if facts.page(&Read::Time).is_some() {
            *pages += 1;
            return DecisionStep::Need(vec![Need::Read(Read::Time)]);
        }
        if facts.read(&Read::Time).is_none() {
            return DecisionStep::Need(vec![Need::Page(Read::Time)]);
        }
        if self.agains.get() > 0 {
            self.agains.update(|agains| agains - 1);
            return DecisionStep::Again;
        }
        DecisionStep::Commit { commit: Commit::default(), outcome: *pages }
    }
}

/// The pages of the attempt that was committed, and how many were read in all.
fn run_clocks(agains: u32) -> (Option<u32>, u32) {
    let Fixture { mut core, .. } = Fixture::new();
    let mut transactions = Transactions::new(Feature::Topics);
    let clocks = Clocks { agains: Cell::new(agains) };
    let mut progress = transactions.begin(&mut core, clocks, Facts::default());
    let mut reads = 0;
    loop {
        if let TransactionProgress::Ended(_, ended) = progress {
            let committed = match ended {
                TransactionEnd::Committed(outcome, _) => Some(outcome),
                _ => None,
            };
            // Each attempt reads the time as a page and as a row.
            return (committed, reads / 2);
        }
        let (ticket, work) = core.effects.work.remove(0);
        let answer = match work {
            Work::Read(_) => {
                reads += 1;
                StoreAnswer::Read(Found::Time(Time(5)))
            }
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
    assert_eq!(run_clocks(0), (Some(1), 1));
}

#[test]
fn what_does_not_fit_together_is_loaded_anew_until_it_gives_up() {
    assert_eq!(run_clocks(3), (Some(1), 4));
    let tries = u32::from(TRIES);
    assert_eq!(run_clocks(tries + 1), (None, tries + 1));
}

#[test]
fn supplied_transaction_keeps_the_loaded_rows_and_what_it_got() {
    let waits = Count { number: 0, pauses: Some(Pause::Supply), ..Count::of(&["a"]) };
    let mut fixture = Fixture::begin(waits);
    let TransactionProgress::Paused(number, Pause::Supply) = fixture.answer(row("a", 7)) else {
        panic!("it pauses")
    };
    let Fixture { core, transactions } = &mut fixture;
    transactions.supply(core, number + 1, |_| panic!("there is no other"));
    transactions.supply(core, number, |decision| decision.number = 9);
    assert!(matches!(fixture.answer(conflict(RowKey::Document(key("a")))), TransactionProgress::Waits));
    fixture.answer(row("a", 8));
    let progress = fixture.answer(StoreAnswer::Committed(Receipt::default()));
    assert!(matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Committed((9, 2), _))));
}

#[test]
fn refused_commit_was_not_applied() {
    let mut fixture = Fixture::begin(Count::of(&["a"]));
    fixture.answer(row("a", 1));
    let fenced = StoreError::Fenced { node: "n1".into(), epoch: Epoch(1) };
    let progress = fixture.answer(StoreAnswer::Failed(fenced));
    assert!(matches!(progress, TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: None, .. })));
}

#[test]
fn answer_of_another_kind_is_a_corrupt_store() {
    let mut fixture = Fixture::begin(Count::of(&["a"]));
    let progress = fixture.answer(StoreAnswer::Read(Found::Time(Time(5))));
    let TransactionProgress::Ended(_, TransactionEnd::Failed { answer, unknown: None }) = progress else {
        panic!("it ends")
    };
    assert!(matches!(answer, StoreAnswer::Failed(StoreError::Corrupt { .. })));
}

#[test]
fn transactions_at_the_same_time_are_kept_apart() {
    let mut fixture = Fixture::begin(Count::of(&["a"]));
    fixture.also(Count { number: 11, ..Count::of(&["b"]) });
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
            TransactionProgress::Ended(_, TransactionEnd::Committed((number, _), _)) => number,
            _ => panic!("it is committed"),
        }
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), [1, 11]);
}

#[test]
fn paused_transaction_is_ended_once() {
    let waits = Count { number: 0, pauses: Some(Pause::Supply), ..Count::of(&["a"]) };
    let mut fixture = Fixture::begin(waits);
    let TransactionProgress::Paused(number, _) = fixture.answer(row("a", 1)) else { panic!("it pauses") };
    let fail =
        |fixture: &mut Fixture| fixture.transactions.fail(number, StoreAnswer::Failed(StoreError::timeout()));
    let ended = fail(&mut fixture);
    assert!(matches!(ended, TransactionProgress::Ended(_, TransactionEnd::Failed { unknown: None, .. })));
    assert!(matches!(fail(&mut fixture), TransactionProgress::Waits));
    let Fixture { core, transactions } = &mut fixture;
    transactions.supply(core, number, |_| panic!("it has ended"));
    assert!(fixture.work().is_empty());
}

#[test]
fn commit_carries_the_trace_of_the_command_that_began_it() {
    let mut fixture = Fixture::begin(Count::of(&[]));
    assert!(fixture.core.effects.commit_traces.is_empty(), "the command was not traced");
    fixture.work();
    let trace = TraceContext { trace_id: 1, span_id: 2, sampled: true };
    fixture.core.trace = Some(trace);
    fixture.also(Count::of(&["a"]));
    fixture.core.trace = None;
    fixture.answer(row("a", 1));
    let ticket = fixture.work()[0].0;
    assert_eq!(fixture.core.effects.commit_traces, [(ticket, trace)]);
}

#[test]
fn conflicts_of_party_commands_are_counted() {
    for (feature, counted) in [(Feature::Party, 1), (Feature::Topics, 0)] {
        let mut fixture = Fixture::new();
        fixture.transactions = Transactions::new(feature);
        fixture.also(Count::of(&[]));
        fixture.answer(conflict(RowKey::Document(key("a"))));
        assert_eq!(fixture.core.stats.party_conflicts.get(), counted);
    }
}

mod assumed;
