//! Rows that a first attempt assumes instead of reading them.

use super::*;

/// Answers from what is stored, without a commit.
struct Answer;

impl Decision for Answer {
    type Outcome = u64;
    type Notes = ();

    fn decide(&self, _: &DecisionContext<'_>, facts: &Facts, (): &mut ()) -> DecisionStep<u64> {
        match facts.document(&key("a")) {
            None => DecisionStep::Need(vec![Need::Document(key("a"))]),
            Some(found) => DecisionStep::Done(found.map_or(0, |found| found.version)),
        }
    }

    fn may_assume(&self) -> bool {
        true
    }
}

#[test]
fn cached_row_is_expected_by_the_commit_and_not_read() {
    let mut fixture = Fixture::new();
    fixture.cache("a", 7);
    fixture.also(Count { may_assume: true, ..Count::of(&["a"]) });
    let work = fixture.work();
    let [(ticket, Work::Commit(commit))] = &work[..] else { panic!("it commits at once: {work:?}") };
    assert_eq!(commit.expects, [Expect { key: RowKey::Document(key("a")), version: 7 }]);
    let conflict = conflict(RowKey::Document(key("a")));
    let Fixture { core, transactions } = &mut fixture;
    assert!(matches!(transactions.answered(core, *ticket, conflict), TransactionProgress::Waits));
    assert!(matches!(fixture.work()[..], [(_, Work::Read(_))]), "a stale one is read");
}

#[test]
fn decision_that_may_not_assume_reads_what_is_cached() {
    let mut fixture = Fixture::new();
    fixture.cache("a", 7);
    fixture.also(Count::of(&["a"]));
    assert!(matches!(fixture.work()[..], [(_, Work::Read(_))]));
}

/// Adds a presence that is usually new.
struct Enter;

fn entered() -> PresenceKey {
    PresenceKey { channel: "party#1".into(), user: "ann".into() }
}

impl Decision for Enter {
    type Outcome = ();
    type Notes = ();

    fn decide(&self, _: &DecisionContext<'_>, facts: &Facts, (): &mut ()) -> DecisionStep<()> {
        match facts.presence(&entered()) {
            None => DecisionStep::Need(vec![Need::NewPresence(entered())]),
            Some(_) => DecisionStep::Commit { commit: Commit::default(), outcome: () },
        }
    }

    fn may_assume(&self) -> bool {
        true
    }
}

#[test]
fn new_presence_is_assumed_absent_until_a_conflict() {
    let Fixture { mut core, .. } = Fixture::new();
    let mut enters = Transactions::new(Feature::Party);
    enters.begin(&mut core, Enter, Facts::default());
    let work = std::mem::take(&mut core.effects.work);
    let [(ticket, Work::Commit(commit))] = &work[..] else { panic!("it commits at once: {work:?}") };
    assert_eq!(commit.expects, [Expect { key: RowKey::Presence(entered()), version: 0 }]);
    enters.answered(&mut core, *ticket, conflict(RowKey::Presence(entered())));
    let reads = std::mem::take(&mut core.effects.work);
    assert!(matches!(&reads[..], [(_, Work::Read(Read::Presence(key)))] if *key == entered()));
}

#[test]
fn decision_without_a_commit_does_not_rely_on_a_cached_row() {
    let mut fixture = Fixture::new();
    fixture.cache("a", 7);
    let mut answers = Transactions::new(Feature::Party);
    let begun = answers.begin(&mut fixture.core, Answer, Facts::default());
    assert!(matches!(begun, TransactionProgress::Waits));
    let work = fixture.work();
    assert!(matches!(work[..], [(_, Work::Read(_))]));
    let ended = answers.answered(&mut fixture.core, work[0].0, row("a", 8));
    assert!(matches!(ended, TransactionProgress::Ended(_, TransactionEnd::Done(8))));
}

#[test]
fn answer_from_loaded_rows_is_decided_once() {
    let mut fixture = Fixture::new();
    let mut answers = Transactions::new(Feature::Party);
    answers.begin(&mut fixture.core, Answer, Facts::default());
    let reads = fixture.work();
    let ended = answers.answered(&mut fixture.core, reads[0].0, row("a", 8));
    assert!(matches!(ended, TransactionProgress::Ended(_, TransactionEnd::Done(8))));
    assert!(fixture.work().is_empty(), "nothing is loaded again");
}
