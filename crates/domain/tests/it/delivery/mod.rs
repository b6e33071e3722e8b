//! Random histories of a delivery: whatever the endpoint, the store and the owner do, nothing is lost, nothing is sent before it
//! is saved, everything is bounded, and an endpoint that works again soon has everything.

mod world;

use proptest::prelude::*;
use tavern_domain::delivery::{DeliveryOutcome, SETTLE_MS};
use world::{POLICY, Step, THROTTLE_MS, World, reply};

/// Common steps: events, time, saves, attempts.
fn usual() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..6u64, 1..400u32).prop_map(|(count, bytes)| Step::Publish { count, bytes }),
        6 => (1..20usize).prop_map(|max| Step::Read { max }),
        3 => (1..700u64).prop_map(|ms| Step::Pass { ms }),
        1 => (1..90_000u64).prop_map(|ms| Step::Pass { ms }),
        6 => Just(Step::Saved),
        8 => Just(Step::Start),
        8 => (0..9usize, reply(), any::<u64>())
            .prop_map(|(flight, reply, random)| Step::Answer { flight, reply, random }),
        1 => Just(Step::Enable),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let rules = (0..900u64, 1..10u32, 60..1_500u64, 1..4u32).prop_map(
        |(timeout_ms, max_events, max_bytes, concurrency)| Step::ChangeRules {
            timeout_ms,
            max_events,
            max_bytes,
            concurrency,
        },
    );
    prop_oneof![
        40 => usual(),
        2 => rules,
        1 => Just(Step::Disable),
        2 => Just(Step::Enable),
        1 => (0..100u64).prop_map(|percent| Step::Rewind { percent }),
        1 => (0..100u64).prop_map(|percent| Step::ShedLog { percent }),
        1 => Just(Step::Retry),
        3 => any::<bool>().prop_map(|saved| Step::Crash { saved }),
    ]
}

fn run(world: &mut World, steps: Vec<Step>) {
    steps.into_iter().for_each(|step| world.step(step));
}

/// A queue drains within a bounded time once its endpoint works.
fn recovers(world: &mut World) {
    world.step(Step::Saved);
    if world.delivery.progress().disabled.is_some() {
        world.step(Step::Enable);
    }
    // After a dead letter as its last event a queue is still backing off until the next event.
    world.step(Step::Publish { count: 1, bytes: 1 });
    let from = world.now;
    let took = world.recover().since(from);
    let longest = POLICY.backoff_max_ms.max(THROTTLE_MS) + world.rules.timeout_ms + SETTLE_MS;
    assert!(took <= longest, "took {took} ms");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn without_crashes_and_replays_events_arrive_in_order_and_once(
        steps in prop::collection::vec(usual(), 1..150),
        concurrency in 1..4u32,
    ) {
        let mut world = World::new(concurrency, POLICY);
        run(&mut world, steps);
        recovers(&mut world);
        prop_assert!(!world.repeats && !world.disorder);
    }

    #[test]
    fn random_histories_lose_nothing(steps in prop::collection::vec(any_step(), 1..200)) {
        let mut world = World::new(1, POLICY);
        run(&mut world, steps);
        recovers(&mut world);
    }

    #[test]
    fn the_backoff_survives_a_server_that_keeps_crashing(
        rolls in prop::collection::vec(any::<u64>(), 40),
        crashes in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut world = World::new(3, POLICY);
        run(&mut world, vec![Step::Publish { count: 50, bytes: 10 }, Step::Read { max: 50 }, Step::Saved]);
        let (begin, mut attempts) = (world.now, 0);
        for (random, crash) in rolls.into_iter().zip(crashes) {
            world.step(Step::Start);
            attempts += 1;
            world.step(Step::Answer { flight: 0, reply: DeliveryOutcome::Failed.into(), random });
            world.step(Step::Saved);
            if crash {
                world.step(Step::Crash { saved: true });
            }
            prop_assert!(!world.delivery.is_ready(world.now));
            let wake = world.delivery.next_wake().expect("a retry");
            prop_assert!(wake.since(world.now) <= POLICY.backoff_max_ms);
            world.step(Step::Pass { ms: wake.since(world.now) });
        }
        // Half of the longest wait on average, after the first eight.
        prop_assert!(world.now.since(begin) > (attempts - 8) * POLICY.backoff_max_ms / 5);
    }
}
