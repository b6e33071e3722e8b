//! Deliveries in virtual time: workers on several nodes, one store that fails, endpoints of every temper, crashes.
//! Whatever happens, every event reaches every subscription, in order and numbered without holes; what comes twice is a batch
//! that was under way, the same to the byte. `TAVERN_DELIVERY_SEEDS=5000` runs more seeds.

#[allow(dead_code, reason = "each binary uses a part of it")]
#[path = "../harness/mod.rs"]
mod harness;
mod world;

use std::collections::VecDeque;
use tavern_domain::Time;
use tavern_hub::RandomSource;
use world::{SETTINGS, Temper, World};

#[test]
fn events_are_batched_by_number_and_by_age() {
    let mut world = World::new(1, 1, false, Temper::Good);
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
    let mut world = World::new(3, 2, false, Temper::Good);
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
fn what_a_full_body_had_no_room_for_follows() {
    let mut world = World::new(4, 1, false, Temper::Good);
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
fn an_endpoint_that_comes_back_gets_everything_in_order() {
    let mut world = World::new(2, 2, false, Temper::Bad);
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
fn whoever_sleeps_is_followed_by_those_who_heard_nothing() {
    let mut world = World::new(9, 2, false, Temper::Bad);
    world.deaf = 1;
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    (0..3).for_each(|n| world.publish(0, "a", n));
    // The first node has tried, and waits for its endpoint, which nobody else knows.
    world.pass(1_000);
    world.temper = Temper::Good;
    world.asleep[0] = Time::NEVER;
    world.pass(SETTINGS.lease_ms + 1_000 + 2 * SETTINGS.look_ms + 1_000);
    world.check("s", 3, true);
    world.pass(60_000);
    assert_eq!(world.deadlines(Time::NEVER), [], "its work is done");
}

#[test]
fn an_idle_subscription_has_no_deadline_and_a_waiting_one_is_left_alone() {
    let mut world = World::new(10, 2, false, Temper::Good);
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
    assert!(due.len() == 1 && due[0].due > world.now(), "whoever waits for its endpoint is not overdue");
}

#[test]
fn whatever_fails_every_event_arrives_in_order() {
    let more = std::env::var("TAVERN_DELIVERY_SEEDS").ok().and_then(|text| text.parse().ok());
    for seed in 0..more.unwrap_or(100) {
        let mut world = World::new(seed * 7 + 3, 3, seed % 2 == 1, Temper::Moody);
        world.deaf = seed % 3;
        world.subscribe("one", &["a"], 1);
        world.subscribe("both", &["a", "b"], 1);
        world.subscribe("wide", &["b"], 3);
        world.pass(2_500);
        let mut chaos: VecDeque<u64> = (0..120).collect();
        let (mut a, mut b) = (0, 0);
        while let Some(n) = chaos.pop_front() {
            let at = (world.rng.next() % 3) as usize;
            let topic = if world.rng.next().is_multiple_of(2) { "a" } else { "b" };
            *(if topic == "a" { &mut a } else { &mut b }) += 1;
            world.publish(at, topic, n);
            let pause = (world.rng.next() % 400) as u64;
            world.pass(pause);
            if world.rng.next().is_multiple_of(15) {
                let victim = (world.rng.next() % 3) as usize;
                world.crash(victim);
            }
            if world.rng.next().is_multiple_of(25) {
                let victim = (world.rng.next() % 3) as usize;
                world.asleep[victim] = world.now() + (world.rng.next() % 60_000) as u64;
            }
        }
        world.temper = Temper::Good;
        world.pass(180_000);
        world.check("one", a, true);
        world.check("both", a + b, true);
        world.check("wide", b, false);
        let open = world.nodes.iter().flatten().map(|node| node.worker.in_flight()).sum::<usize>();
        assert_eq!((open, world.flights.len()), (0, 0), "seed {seed}");
        assert_eq!(world.deadlines(Time::NEVER), [], "seed {seed}: nobody is looked after for nothing");
    }
}
