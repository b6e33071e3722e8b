//! Deliveries in virtual time: batches, endpoints that fail and come back, workers that stop. Random runs with faults are
//! in the simulator's topics workload.

mod world;

use std::collections::BTreeSet;
use tavern_domain::Time;
use tavern_domain::delivery::DeliveryOutcome;
use world::{SETTINGS, Temper, World};

#[test]
fn events_are_batched_by_number_and_by_age() {
    let mut world = World::new(1, 1, Temper::Good);
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    for n in 0..7 {
        world.publish(0, "a", n);
    }
    world.settle();
    world.pass(150);
    let sizes = |world: &World| -> Vec<usize> {
        world.got.get("s").into_iter().flatten().map(|(_, seqs, _)| seqs.len()).collect()
    };
    assert_eq!(sizes(&world), [5], "a full batch leaves at once, the rest waits");
    world.pass(100);
    assert_eq!(sizes(&world), [5, 2], "until it is 200 ms old");
    world.check("s", 7, true);
}

#[test]
fn first_batch_of_a_subscription_has_what_was_published_on_every_node() {
    let mut world = World::new(3, 2, Temper::Good);
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    world.publish(0, "a", 0);
    world.pass(10);
    for n in 1..4 {
        world.publish(1, "a", n);
        world.pass(10);
    }
    world.pass(1_000);
    let batches: Vec<&[u64]> = world.got["s"].iter().map(|(_, seqs, _)| &seqs[..]).collect();
    assert_eq!(batches, [[1, 2, 3, 4]]);
    world.check("s", 4, true);
}

#[test]
fn events_that_did_not_fit_into_a_full_batch_follow() {
    let mut world = World::new(4, 1, Temper::Good);
    // Room for two of the five that are read at once.
    world.subscribe_for("s", &["a"], 1, 300);
    world.pass(2_500);
    for n in 0..23 {
        world.publish(0, "a", n);
    }
    world.pass(5_000);
    world.check("s", 23, true);
    let bodies = world.got["s"].iter().map(|(_, seqs, body)| (seqs.len(), body.len()));
    assert!(bodies.into_iter().all(|(events, bytes)| events > 1 && bytes <= 300 || events == 1));
}

#[test]
fn recovered_endpoint_gets_everything_in_order() {
    let mut world = World::new(2, 2, Temper::Bad);
    world.subscribe("s", &["a", "b"], 1);
    world.pass(2_500);
    for n in 0..50 {
        world.publish((n % 2) as usize, if n % 3 == 0 { "a" } else { "b" }, n);
        world.pass(20);
    }
    world.pass(60_000);
    assert!(world.got.is_empty());
    world.temper = Temper::Good;
    world.pass(25_000);
    world.check("s", 50, true);
}

#[test]
fn worker_that_sleeps_is_replaced_without_a_wakeup() {
    let mut world = World::new(9, 2, Temper::Bad);
    world.deaf = 1;
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    (0..3).for_each(|n| world.publish(0, "a", n));
    // The first node has tried, and waits for its endpoint, which no other node knows.
    world.pass(1_000);
    world.temper = Temper::Good;
    world.asleep[0] = Time::NEVER;
    world.pass(SETTINGS.lease_ms + 1_000 + 2 * SETTINGS.check_ms + 1_000);
    world.check("s", 3, true);
    world.pass(60_000);
    assert_eq!(world.deadlines(Time::NEVER), [], "its work is done");
}

#[test]
fn idle_subscription_has_no_deadline_and_a_waiting_one_is_not_taken_over() {
    let mut world = World::new(10, 2, Temper::Good);
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    world.publish(0, "a", 0);
    world.pass(1_000);
    assert_eq!(world.deadlines(Time::NEVER).len(), 1, "while it is worked on");
    world.pass(20_000);
    assert_eq!(world.deadlines(Time::NEVER), []);
    world.temper = Temper::Bad;
    world.publish(0, "a", 1);
    world.pass(300_000);
    let due = world.deadlines(Time::NEVER);
    assert!(due.len() == 1 && due[0].due > world.now(), "a queue that waits for its endpoint is not overdue");
}

#[test]
fn event_that_is_wanted_again_is_sent_again_though_the_progress_was_read_anew() {
    let mut world = World::new(11, 1, Temper::Partly);
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    (0..5).for_each(|n| world.publish(0, "a", n));
    world.pass(10);
    // The progress changes while the first batch is in flight; the next save conflicts.
    world.touch("s");
    (5..10).for_each(|n| world.publish(0, "a", n));
    world.pass(2_000);
    world.temper = Temper::Good;
    world.pass(60_000);
    let got: BTreeSet<u64> = world.got["s"].iter().flat_map(|(_, seqs, _)| seqs.iter().copied()).collect();
    assert_eq!(got, (1..=10).collect());
}

#[test]
fn the_last_attempts_are_stored_with_the_progress() {
    let mut world = World::new(11, 1, Temper::Bad);
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    world.publish(0, "a", 0);
    world.pass(60_000);
    let failed = world.attempts();
    assert_eq!(failed.len(), 4, "as many as are kept");
    let numbers: Vec<u64> = failed.iter().map(|attempt| attempt.number).collect();
    let last = *numbers.last().unwrap();
    assert_eq!(numbers, (last - 3..=last).collect::<Vec<_>>());
    assert!(failed.iter().all(|one| (&*one.outcome, one.batch, one.last_seq) == ("failed", 1, 1)));
    assert_eq!(world.failing, ["failed".into()], "reported once");
    world.temper = Temper::Good;
    world.pass(60_000);
    let attempts = world.attempts();
    let delivered = attempts.last().unwrap();
    assert!(&*delivered.outcome == "delivered" && delivered.number > last);
    assert_eq!(u64::from(delivered.attempt), delivered.number, "all attempts were for one batch");
    world.check("s", 1, true);
}

#[test]
fn without_kept_attempts_nothing_is_stored() {
    let mut world = World::new(12, 0, Temper::Good);
    world.attempts_kept = 0;
    world.add_node();
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    world.publish(0, "a", 0);
    world.pass(1_000);
    world.check("s", 1, true);
    assert_eq!(world.attempts(), []);
}

#[test]
fn subscription_created_while_the_list_is_read_stays_known() {
    let mut world = World::new(13, 1, Temper::Good);
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    world.subscribe("t", &["a"], 1);
    world.subscribe_during_the_read_of_the_list("late", &["b"]);
    let knows = |world: &World, topic| world.nodes[0].as_ref().unwrap().worker.has_subscription(topic);
    assert!(knows(&world, "b"), "the list that was read is older");
    world.publish(0, "b", 0);
    world.pass(1_000);
    world.check("late", 1, true);
}

#[test]
fn subscription_that_is_disabled_during_a_save_is_announced() {
    let mut world = World::new(14, 1, Temper::Bad);
    world.subscribe("watch", &["tavern.deliveries"], 1);
    world.subscribe("s", &["a"], 2);
    world.pass(2_500);
    (0..10).for_each(|n| world.publish(0, "a", n));
    world.settle();
    assert_eq!(world.flights.len(), 2, "two batches at once");
    // The failure is being saved when the next reply arrives.
    let soon = world.now() + 1;
    let replies = [DeliveryOutcome::Failed, DeliveryOutcome::Gone];
    for (flight, reply) in world.flights.iter_mut().zip(replies) {
        (flight.0, flight.4) = (soon, reply.into());
    }
    world.temper = Temper::Good;
    world.pass(2_000);
    assert_eq!(world.got.get("watch").map(Vec::len), Some(1), "the end of the subscription");
}
