//! Replay, shedding and pulling.

use super::*;

#[test]
fn a_replay_sends_the_same_seqs_in_new_batches() {
    check(
        "0: publish 6; 1: 1 delivered; 2: 2 delivered; 3: replay after 2; 4: 3 delivered; 503",
        "0: 1: 1-3 full; 1: 2: 4-6 full; 3: 3: 3-5 full; 503: 4: 6 age",
    );
}

#[test]
fn a_replay_removes_sealed_batches_and_ignores_attempts_in_flight() {
    check(
        "0: publish 9; 1: 1 delivered; 2: replay after 0; 3: 2 delivered; 4: 4 failed; 5: 3 delivered; 104; 105: 4 delivered",
        "0: 1: 1-3 full; 1: 2: 4-6 full; 3: 4: 1-3 full; 104: 4 again: 1-3 probe; 105: recovered, 5: 4-6 full",
    );
}

#[test]
fn a_replay_loses_nothing_that_was_not_delivered() {
    check(
        "0: publish 9; 1: replay after 4; 2: 1 delivered; 3: 2 delivered; 4: 3 delivered; 500",
        "0: 1: 1-3 full; 2: 2: 4-6 full; 3: 3: 5-7 full; 500: 4: 8-9 age",
    );
    check("0: publish 2; 1: replay after 2; 2: replay after 7; 500", "500: 1: 1-2 age");
    check(
        "0: publish 6; 1: 1 names 2; 2: replay after 3; 101; 102: 3 delivered",
        "0: 1: 1-3 full; 101: 3: 2 probe; 102: recovered, 4: 4-6 full",
    );
}

#[test]
fn a_replay_survives_a_crash() {
    check(
        "0: publish 3; 1: 1 delivered; 2: replay after 1; 3: crash; 502",
        "0: 1: 1-3 full; 502: 2: 2-3 age",
    );
}

#[test]
fn shed_events_become_a_gap_in_their_place() {
    check(
        "0: publish 9; 1: disable; 2: shed 8; 3: enable; 4: 1 delivered; 5: 2 delivered; 502",
        "0: 1: 1-3 full; 1: disabled asked; 2: lost 7-8; 4: 2: 4-6 full; 502: 3: !7-8+9 age",
    );
}

#[test]
fn a_gap_is_one_entry_and_grows_until_it_is_sealed() {
    check(
        "0: publish 2; 1: shed 1; 2: shed 1; 3: publish 8; 4: 1 delivered",
        "1: lost 1-1; 3: 1: !1-1+2-3 full; 4: 2: 4-6 full",
    );
    check(
        "0: publish 2; 1: shed 2; 2: publish 20; 2: 1 delivered; 3: shed 9",
        "1: lost 1-2; 2: 1: !1-2+3-4 full; 2: 2: 5-7 full",
    );
    check(
        "0: publish 1; 1: shed 1; 2: publish 2 of 400; 3: shed 9; 501",
        "1: lost 1-1; 2: 1: !1-1+2 bytes; 3: lost 3-9",
    );
    check("0: shed 5; 99: shed 9; 499; 500", "0: lost 1-5; 99: lost 6-9; 500: 1: !1-9 age");
}

#[test]
fn sealed_batches_are_not_shed() {
    check("0: publish 7; 1: shed 5; 2: 1 delivered; 3: 2 delivered", "0: 1: 1-3 full; 2: 2: 4-6 full");
}

#[test]
fn a_gap_survives_a_crash_and_can_be_refused_like_any_entry() {
    check("0: shed 5; 1: crash; 500", "0: lost 1-5; 500: 1: !1-5 age");
    check("0: shed 5; 500; 501: 1 too large", "0: lost 1-5; 500: 1: !1-5 age; 501: parks !1-5");
    check(
        "0: disable; 0: publish 6; 0: shed 5; 0: enable; 500; 501: 1 names 1; 601",
        "0: disabled asked; 0: lost 1-5; 500: 1: !1-5+6 age; 601: 2: !1-5 probe",
    );
}

#[test]
fn a_replay_into_shed_events_is_a_gap_again() {
    check(
        "0: shed 5; 500; 501: 1 delivered; 502: replay after 0; 503: shed 5; 1003",
        "0: lost 1-5; 500: 1: !1-5 age; 503: lost 1-5; 1003: 2: !1-5 age",
    );
}

#[test]
fn a_replay_from_before_a_gap_sends_the_events_that_are_left() {
    check(
        "0: publish 8; 1: 1 delivered; 2: 2 delivered; 3: shed 7; 4: replay after 3; 5: shed 7; 6: 3 delivered; 505",
        "0: 1: 1-3 full; 1: 2: 4-6 full; 3: lost 7-7; 4: 3: 4-6 full; 5: lost 7-7; 505: 4: !7-7+8 age",
    );
}

#[test]
fn pulling_moves_only_the_cursor() {
    let mut progress = DeliveryProgress::starting(mark(4));
    assert_eq!(progress.queued(9), 5);
    assert!(progress.acknowledge(mark(6)));
    assert!(!progress.acknowledge(mark(5)) && !progress.acknowledge(mark(6)));
    assert_eq!((progress.sealed, progress.queued(9)), (mark(6), 3));
    assert_eq!(progress.shed(Time(1), mark(8)), Some((7, 8)));
    assert_eq!((progress.reached(), progress.queued(9)), (mark(8), 2));
    assert_eq!(progress.shed(Time(1), mark(8)), None);
    assert!(progress.acknowledge(mark(8)) && progress.dropped.is_none());
    assert!(progress.rewind(mark(4)) && !progress.rewind(mark(4)));
    assert_eq!(progress, DeliveryProgress::starting(mark(4)));
}

#[test]
fn queued_entries_are_counted() {
    let (_, world) =
        run_story(World::new(RULES, POLICY), "5: publish 8; 6: 1 delivered; 7: publish 1; 8: shed 7");
    assert_eq!(world.delivery.progress().queued(9), 3 + 1 + 2);
    assert_eq!(world.delivery.oldest(), Some(Time(5)));
    let (_, world) = run_story(World::new(RULES, POLICY), "5: publish 3; 6: 1 delivered");
    assert_eq!((world.delivery.progress().queued(3), world.delivery.oldest()), (0, None));
}
