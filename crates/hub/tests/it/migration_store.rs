//! Sessions that move while the store fails. Must hold: a request without an effect is retried where that is safe; after an
//! unknown outcome of a removal the session may be lost, but is never on two nodes.

use crate::harness::migration::{MigrationFixture, data, step_name};
use tavern_store::memory::{WorkFault, WorkOutcome};
use tavern_store::{Read, Row, RowKey, Work};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Request {
    /// The old node puts the session into the store.
    Put,
    /// The new node reads it.
    Fetch,
    /// A node removes it.
    Remove,
    Other,
}

fn request_of(work: &Work) -> Request {
    match work {
        Work::Commit(commit) if commit.puts.iter().any(|row| matches!(row, Row::Session(_))) => Request::Put,
        Work::Commit(commit) if commit.deletes.iter().any(|key| matches!(key, RowKey::Session(_))) => {
            Request::Remove
        }
        Work::Read(Read::Session(_)) => Request::Fetch,
        _ => Request::Other,
    }
}

/// Ann resumes on the second node; one request of one node fails once. Checks whether the session moved and which nodes have
/// it when everything has timed out.
fn check(node: &'static str, request: Request, outcome: WorkOutcome, resumed: bool, owners: &[usize]) {
    let mut scene = MigrationFixture::new();
    scene.publish(2, "game#A", "1");
    scene.cluster.settle();
    let mut failed = false;
    scene.cluster.set_work_fate(move |from, work| {
        let fails = !failed && from == node && request_of(work) == request;
        failed |= fails;
        if fails { WorkFault { outcome, ..WorkFault::NONE } } else { WorkFault::NONE }
    });
    let (caller, hello) = scene.connect(1, 0);
    let case = format!("{request:?} by {node}: {outcome:?}");
    assert_eq!(hello["resumed"], resumed, "{case}");
    if resumed {
        assert_eq!(data(&scene.events(1, &caller)), ["1"], "{case}");
    }
    scene.cluster.live(12_000);
    assert_eq!(scene.owners(), owners, "{case}");
}

#[test]
fn put_is_retried_after_an_unknown_outcome() {
    check("one", Request::Put, WorkOutcome::FailBefore, true, &[1]);
    check("one", Request::Put, WorkOutcome::FailAfter, true, &[1]);
}

#[test]
fn fetch_is_retried() {
    check("two", Request::Fetch, WorkOutcome::FailBefore, true, &[1]);
}

#[test]
fn session_is_taken_back_when_the_new_node_could_not_remove_it() {
    check("two", Request::Remove, WorkOutcome::FailBefore, false, &[0]);
}

#[test]
fn session_is_on_no_node_when_the_answer_to_its_removal_is_lost() {
    check("two", Request::Remove, WorkOutcome::FailAfter, false, &[]);
}

#[test]
fn move_ends_in_time_when_the_store_fails_again_and_again_and_a_message_is_lost() {
    let mut scene = MigrationFixture::new();
    let mut given = 0;
    scene.cluster.set_fate(move |_, _, packet| {
        given += u32::from(step_name(packet) == "given");
        if given > 6 { vec![] } else { vec![0] }
    });
    scene.cluster.set_work_fate(|_, work| match request_of(work) {
        Request::Fetch => WorkFault { outcome: WorkOutcome::FailBefore, ..WorkFault::NONE },
        _ => WorkFault::NONE,
    });
    let before = scene.cluster.now();
    assert_eq!(scene.connect(1, 0).1["resumed"], false);
    assert!(scene.cluster.now().since(before) <= 5_500, "the client is answered");
}

/// The new node never learns that the session is stored; the old node takes it back without an answer.
#[test]
fn session_is_on_no_node_when_the_answer_to_taking_it_back_is_lost() {
    let mut scene = MigrationFixture::new();
    scene.cluster.set_fate(|_, _, packet| if step_name(packet) == "given" { vec![] } else { vec![0] });
    scene.cluster.set_work_fate(|_, work| match request_of(work) {
        Request::Remove => WorkFault { outcome: WorkOutcome::FailAfter, ..WorkFault::NONE },
        _ => WorkFault::NONE,
    });
    assert_eq!(scene.connect(1, 0).1["resumed"], false);
    scene.cluster.live(12_000);
    assert_eq!(scene.owners(), [0usize; 0]);
}
