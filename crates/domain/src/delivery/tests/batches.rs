//! When a batch is sealed, and when it is sent.

use super::*;

#[test]
fn a_full_batch_is_sent_at_once_and_the_rest_waits_for_its_age() {
    check("0: publish 3", "0: 1: 1-3 full");
    check("0: publish 2; 499; 500", "500: 1: 1-2 age");
    check("0: publish 2; 400: publish 1", "400: 1: 1-3 full");
}

#[test]
fn the_age_counts_from_the_first_event_only() {
    check("0: publish 1; 450: publish 1; 499; 500", "500: 1: 1-2 age");
    check("400: publish 1 accepted at 0; 499; 500", "500: 1: 1 age");
    check("700: publish 1 accepted at 0", "700: 1: 1 age");
}

#[test]
fn a_clock_that_was_ahead_does_not_delay_a_batch() {
    check("0: publish 1 accepted at 99000; 499; 500", "500: 1: 1 age");
}

#[test]
fn without_a_timeout_an_event_is_sent_at_once_and_others_gather_meanwhile() {
    check(
        "0: timeout 0; 1: publish 1; 2: publish 1; 3: publish 1; 4: publish 1; 9: 1 delivered; 10: 2 delivered",
        "1: 1: 1 age; 9: 2: 2 age; 10: 3: 3-4 age",
    );
}

#[test]
fn a_body_never_exceeds_the_byte_limit() {
    check("0: publish 2 of 400; 1: publish 1 of 100", "1: 1: 1-3 full");
    check("0: publish 2 of 400; 1: publish 1 of 101", "1: 1: 1-2 bytes");
    check("0: publish 2 of 450", "0: 1: 1-2 bytes");
    check("0: publish 2 of 449; 1: publish 1 of 3; 2: 1 delivered; 501", "1: 1: 1-2 bytes; 501: 2: 3 age");
}

#[test]
fn an_event_above_the_byte_limit_is_sent_alone() {
    check("0: publish 1 of 5000", "0: 1: 1 bytes");
    check("0: publish 1; 1: publish 1 of 5000; 2: 1 delivered", "1: 1: 1 bytes; 2: 2: 2 bytes");
    check("0: bytes 50; 1: publish 2; 2: 1 delivered", "1: 1: 1 bytes; 2: 2: 2 bytes");
}

#[test]
fn a_changed_setting_applies_to_the_open_batch_at_once() {
    check("0: publish 2; 1: events 2", "1: 1: 1-2 full");
    check("0: publish 2; 1: events 1; 2: 1 delivered", "1: 1: 1 full; 2: 2: 2 full");
    check("0: publish 1; 200: timeout 200", "200: 1: 1 age");
    check("0: publish 1; 200: timeout 900; 500; 900", "900: 1: 1 age");
    check("0: publish 2; 1: bytes 250", "1: 1: 1 bytes");
    check("0: events 0; 1: publish 1", "1: 1: 1 full");
}

#[test]
fn a_changed_setting_does_not_change_a_sealed_batch() {
    check(
        "0: publish 6; 1: events 1; 2: bytes 120; 3: 1 failed; 103; 104: 1 delivered; 105: 2 delivered",
        "0: 1: 1-3 full; 103: 1 again: 1-3 probe; 104: recovered, 2: 4-6 full",
    );
}

#[test]
fn with_concurrency_one_the_next_batch_waits_until_this_one_is_settled() {
    check(
        "0: publish 9; 5: 1 delivered; 6: 2 delivered; 7: 3 delivered",
        "0: 1: 1-3 full; 5: 2: 4-6 full; 6: 3: 7-9 full",
    );
}

#[test]
fn with_more_concurrency_one_batch_more_than_in_flight_is_sealed() {
    let (results, world) = run_story(
        World::new(DeliveryRules { concurrency: 2, ..RULES }, POLICY),
        "0: publish 15; 5: 2 delivered",
    );
    assert_eq!(results, "0: 1: 1-3 full, 2: 4-6 full; 5: 3: 7-9 full");
    assert_eq!((world.delivery.progress.batches.len(), world.delivery.in_flight()), (3, 2));
    assert_eq!(world.delivery.want(world.delivery.woken_at), None, "one batch is held besides");
    check(
        "0: publish 9; 1: concurrency 3; 2: concurrency 1; 3: 1 delivered; 4: 2 delivered; 5: publish 3; 6: 3 delivered",
        "0: 1: 1-3 full; 1: 2: 4-6 full, 3: 7-9 full; 6: 4: 10-12 full",
    );
}

#[test]
fn a_batch_is_sent_after_its_save() {
    check("0: hold saves; 1: publish 3; 5: saved", "1: save; 5: 1: 1-3 full");
    check("0: hold saves; 1: publish 3; 2: crash; 3", "1: save; 2: 1: 1-3 full");
    check(
        "0: hold saves; 1: publish 3; 2: saved; 3: 1 too large; 4: saved",
        "1: save; 2: 1: 1-3 full; 3: save; 4: 2: 1-2 recut",
    );
}

#[test]
fn under_load_each_batch_takes_one_save() {
    check(
        "0: hold saves; 1: publish 3; 2: saved; 3: publish 12; 4: saved; 5: 1 delivered; 6: saved; 7: 2 delivered; 8: saved; \
         9: 3 delivered; 10: saved",
        "1: save; 2: 1: 1-3 full; 3: save; 5: save, 2: 4-6 full; 7: save, 3: 7-9 full; 9: save, 4: 10-12 full",
    );
}

#[test]
fn changes_during_a_save_share_the_next_one() {
    check(
        "0: hold saves; 0: concurrency 2; 1: publish 3; 2: publish 3; 3: publish 3; 4: saved; 5: saved",
        "1: save; 4: save, 1: 1-3 full; 5: 2: 4-6 full",
    );
}

#[test]
fn a_settled_batch_is_saved_soon_and_at_once_if_it_was_the_last() {
    check("0: hold saves; 1: publish 3; 2: saved; 3: 1 delivered", "1: save; 2: 1: 1-3 full; 3: save");
    check(
        "0: hold saves; 1: publish 4; 2: saved; 3: 1 delivered; 102; 103; 104: saved",
        "1: save; 2: 1: 1-3 full; 103: save",
    );
    check(
        "0: hold saves; 0: concurrency 2; 1: publish 7; 2: saved; 3: saved; 4: 1 delivered; 90: 2 delivered; 103; 104",
        "1: save; 2: save, 1: 1-3 full; 3: 2: 4-6 full; 104: save",
    );
    check(
        "0: hold saves; 1: publish 4; 2: saved; 3: 1 delivered; 4: publish 2",
        "1: save; 2: 1: 1-3 full; 4: save",
    );
}

#[test]
fn stopping_delivery_starts_nothing_and_finishes() {
    let (results, mut world) = run_story(
        World::new(RULES, POLICY),
        "0: publish 7; 1: stop; 2: publish 9; 600; 601: 1 delivered; 700; 701: enable; 900",
    );
    assert_eq!(results, "0: 1: 1-3 full");
    assert!(world.delivery.is_at_rest() && world.delivery.next_wake().is_none());
    world.step(Time(999), "crash");
    world.pump(Time(999));
    assert_eq!(world.results, ["2: 4-6 full"], "another goes on");
    assert!(!world.delivery.is_at_rest());
    check(
        "0: hold saves; 1: publish 4; 2: saved; 3: stop; 4: saved; 5: 1 delivered",
        "1: save; 2: 1: 1-3 full; 3: save; 5: save",
    );
}

#[test]
fn attempts_that_a_stop_cuts_off_are_counted() {
    check("0: publish 3; 1: stop; 2: crash", "0: 1: 1-3 full; 2: 1 again: 1-3 full");
}

#[test]
fn reading_is_bounded_by_what_a_batch_needs() {
    let (_, mut world) = run_story(World::new(RULES, POLICY), "0: publish 2");
    assert_eq!(
        world.delivery.want(world.delivery.woken_at),
        Some(LogRequest { after: mark(2), events: 1, bytes: 700 })
    );
    let items = |seqs: &[u64]| {
        let item = |&seq: &u64| QueuedEvent { seq, position: 10 * seq, bytes: 100, accepted: Time(0) };
        DeliveryInput::Items(seqs.iter().map(item).collect())
    };
    let mut effects = Vec::new();
    world.delivery.handle(Time(1), items(&[4, 5]), &mut effects);
    world.delivery.handle(Time(1), items(&[1, 2]), &mut effects);
    assert_eq!((world.delivery.held(), effects.len()), (mark(2), 0), "holes and repeats are ignored");
    world.delivery.handle(Time(1), items(&[2, 3, 4, 5, 6, 7]), &mut effects);
    assert_eq!((world.delivery.held(), effects.len()), (mark(3), 1), "more than was wanted is ignored");
}
