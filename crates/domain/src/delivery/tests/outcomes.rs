//! What each outcome means for a batch.

use super::*;

#[test]
fn a_failed_batch_is_sent_again_unchanged() {
    check(
        "0: publish 3; 1: publish 1; 5: 1 failed; 104; 105; 106: 1 delivered; 501",
        "0: 1: 1-3 full; 105: 1 again: 1-3 probe; 106: recovered; 501: 2: 4 age",
    );
}

#[test]
fn a_failure_never_splits_a_batch() {
    let failing = (0..20).map(|n| alloc::format!("{}: 1 failed; {}", n * 200 + 1, n * 200 + 101));
    let story = alloc::format!("0: publish 3; {}", failing.collect::<Vec<_>>().join("; "));
    let (results, world) = run_story(World::new(RULES, POLICY), &story);
    assert!(results.ends_with("3901: 1 again: 1-3 probe"), "{results}");
    assert_eq!(world.delivery.batch(1).map(|batch| (batch.attempts, batch.refusals)), Some((21, 0)));
}

#[test]
fn an_outcome_of_an_attempt_not_in_flight_is_ignored() {
    check(
        "0: publish 6; 1: 2 delivered; 2: 9 gone; 3: 1 delivered; 4: 1 delivered; 5: 1 failed",
        "0: 1: 1-3 full; 3: 2: 4-6 full",
    );
    check("0: publish 3; 1: 1 failed; 2: 1 delivered; 101", "0: 1: 1-3 full; 101: 1 again: 1-3 probe");
}

#[test]
fn entries_named_as_failed_are_sent_again_in_a_new_batch_before_later_ones() {
    check(
        "0: publish 6; 1: 1 names 3 1; 100; 101; 102: 3 delivered",
        "0: 1: 1-3 full; 101: 3: 1+3 probe; 102: recovered, 2: 4-6 full",
    );
    check(
        "0: publish 3; 1: 1 names 2; 101; 102: 2 names 2; 202; 203: 3 delivered; 204",
        "0: 1: 1-3 full; 101: 2: 2 probe; 202: 3: 2 probe; 203: recovered",
    );
}

#[test]
fn unknown_seqs_named_as_failed_are_ignored() {
    check("0: publish 6; 1: 1 names 9 4", "0: 1: 1-3 full; 1: 2: 4-6 full");
    check("0: publish 6; 1: 1 names", "0: 1: 1-3 full; 1: 2: 4-6 full");
}

#[test]
fn the_backoff_restarts_when_part_of_a_batch_was_taken() {
    check(
        "0: publish 3; 1: 1 failed; 101: 1 failed ~900; 1101: 1 names 1 2 ~1000; 1291; 1292: 2 names 1 2 ~900; 2291; 2292",
        "0: 1: 1-3 full; 101: 1 again: 1-3 probe; 1101: 1 again: 1-3 probe; 1292: 2: 1-2 probe; 2292: 3: 1-2 probe",
    );
}

#[test]
fn gone_disables_the_subscription_and_keeps_everything() {
    check(
        "0: publish 6; 1: 1 gone; 2: publish 3; 900; 901: enable; 902: 1 delivered; 903: 2 delivered",
        "0: 1: 1-3 full; 1: disabled gone; 901: 1 again: 1-3 full; 902: 2: 4-6 full; 903: 3: 7-9 full",
    );
}

#[test]
fn a_batch_that_is_too_large_is_split_and_a_single_entry_is_parked() {
    check(
        "0: publish 6; 1: 1 too large; 2: 3 too large; 3: 5 delivered; 4: 6 delivered; 5: 4 too large; 105",
        "0: 1: 1-3 full; 1: 3: 1-2 recut; 2: 5: 1 recut; 3: 6: 2 recut; 4: 4: 3 recut; 5: parks 3; 105: 2: 4-6 probe",
    );
}

#[test]
fn a_batch_refused_five_times_is_split_until_the_bad_event_is_alone() {
    check(
        "0: publish 6; 1: 1 refused; 101: 1 refused; 201: 1 refused; 301: 1 refused; 401; 402: 1 refused; 502; \
         503: 3 refused; 603; 604: 5 delivered; 605: 6 refused; 705; 706: 4 delivered",
        "0: 1: 1-3 full; 101: 1 again: 1-3 probe; 201: 1 again: 1-3 probe; 301: 1 again: 1-3 probe; \
         401: 1 again: 1-3 probe; 502: 3: 1-2 probe; 603: 5: 1 probe; 604: recovered, 6: 2 recut; 605: parks 2; \
         705: 4: 3 probe; 706: recovered, 2: 4-6 full",
    );
}

/// With the longest waits that the random number can give.
#[test]
fn the_search_for_a_bad_event_ignores_the_backoff() {
    let mut world = World::new(DeliveryRules { max_events: 64, max_bytes: 100_000, ..RULES }, POLICY);
    world.step(Time(0), "publish 64");
    world.pump(Time(0));
    let (mut now, mut refusals) = (Time(0), 0);
    let mut parked_at = None;
    while parked_at.is_none() {
        let batch = world.in_flight().unwrap();
        let bad = world
            .delivery
            .batch(batch)
            .unwrap()
            .ranges
            .iter()
            .any(|run| (run.first..=run.last).contains(&40));
        let outcome = if bad { DeliveryOutcome::Refused } else { DeliveryOutcome::Delivered };
        refusals += u64::from(bad);
        let failures = world.delivery.progress.failure.map_or(0, |trouble| trouble.failures);
        let random = if failures == 0 { 100 } else { (1_000 << (failures - 1)) - 100 };
        world.delivery.handle(
            now,
            DeliveryInput::Answered { batch, reply: outcome.into(), random },
            &mut world.effects,
        );
        world.pump(now);
        parked_at = world.results.iter().any(|results| results == "parks 40").then_some(now);
        while world.delivery.in_flight() == 0 && parked_at.is_none() {
            now = world.delivery.next_wake().unwrap();
            world.step(now, "");
            world.pump(now);
        }
    }
    assert_eq!(refusals, 5 + 6, "six halvings find one of 64");
    let backoffs = 200 + 1_000 + 2_000 + 4_000;
    assert!(parked_at.unwrap() <= Time(backoffs + 6 * QUICK_MS), "{parked_at:?}");
}

#[test]
fn what_is_behind_a_dead_letter_is_retried_quickly() {
    check(
        "0: events 2; 0: publish 4; 1: 1 refused; 101: 1 refused; 201: 1 refused; 301: 1 refused; 401: 1 refused; \
         501: 3 refused; 601: 4 refused; 701",
        "0: 1: 1-2 full; 101: 1 again: 1-2 probe; 201: 1 again: 1-2 probe; 301: 1 again: 1-2 probe; \
         401: 1 again: 1-2 probe; 501: 3: 1 probe, parks 1; 601: 4: 2 probe, parks 2; 701: 2: 3-4 probe",
    );
}

#[test]
fn a_batch_that_was_too_large_is_not_suspect() {
    check(
        "0: publish 3; 1: 1 too large; 2: 2 refused; 102; 103: 2 delivered",
        "0: 1: 1-3 full; 1: 2: 1-2 recut; 102: 2 again: 1-2 probe; 103: recovered, 3: 3 recut",
    );
    check(
        "0: retry 1 2; 1: 1 too large; 2: 2 refused; 102",
        "0: takes back 1, takes back 2, 1: 1+2 retry; 1: 2: 1 recut; 2: parks 1; 102: 3: 2 probe",
    );
}

#[test]
fn a_single_event_is_parked_after_five_refusals() {
    check(
        "0: events 1; 0: publish 2; 1: 1 refused; 101: 1 refused; 201: 1 refused; 301: 1 refused; 401; 402: 1 refused; \
         502; 503: 2 delivered",
        "0: 1: 1 full; 101: 1 again: 1 probe; 201: 1 again: 1 probe; 301: 1 again: 1 probe; 401: 1 again: 1 probe; \
         402: parks 1; 502: 2: 2 probe; 503: recovered",
    );
}

#[test]
fn refusals_survive_a_crash() {
    check(
        "0: events 1; 0: publish 1; 1: 1 refused; 101: 1 refused; 201: 1 refused; 301: 1 refused; 302: crash; 401; \
         402: 1 refused",
        "0: 1: 1 full; 101: 1 again: 1 probe; 201: 1 again: 1 probe; 301: 1 again: 1 probe; 401: 1 again: 1 probe; \
         402: parks 1",
    );
}

/// Answers each attempt until then, with the longest waits. Returns how many events became dead letters.
fn run_until(
    world: &mut World,
    (mut now, end): (Time, Time),
    answer: impl Fn(u64) -> DeliveryOutcome,
) -> usize {
    while now < end {
        world.pump(now);
        if let Some(batch) = world.in_flight() {
            let first = world.delivery.batch(batch).unwrap().ranges[0].first;
            let reply = answer(first).into();
            world.delivery.handle(
                now,
                DeliveryInput::Answered { batch, reply, random: 30_000 },
                &mut world.effects,
            );
        } else {
            let Some(next) = world.delivery.next_wake() else { break };
            now = next;
            world.delivery.wake(now, &mut world.effects);
        }
    }
    world.results.iter().filter(|results| results.starts_with("parks")).count()
}

#[test]
fn an_endpoint_that_refuses_everything_gets_ten_dead_letters_and_then_the_queue_waits() {
    for outcome in [DeliveryOutcome::TooLarge, DeliveryOutcome::Refused] {
        let mut world = World::new(DeliveryRules { max_events: 1, ..RULES }, POLICY);
        world.step(Time(0), "publish 1000");
        let parked = run_until(&mut world, (Time(0), Time(3_600_000)), |_| outcome);
        assert_eq!(parked, REFUSED_IN_ROW as usize);
        assert!(world.delivery.progress().failure.unwrap().refuses_everything());
        let parked =
            run_until(&mut world, (Time(3_700_000), Time(7_200_000)), |_| DeliveryOutcome::Delivered);
        assert_eq!(parked, REFUSED_IN_ROW as usize, "all others were delivered");
        assert_eq!(world.delivery.progress().failure, None);
    }
}

#[test]
fn bad_events_in_a_row_do_not_slow_down_what_is_behind_them() {
    let mut world = World::new(DeliveryRules { max_events: 1, ..RULES }, POLICY);
    world.step(Time(0), "publish 1000");
    // Nine of every hundred, one behind the other.
    let bad = |seq: u64| seq % 100 < 9;
    let answer = |seq| if bad(seq) { DeliveryOutcome::Refused } else { DeliveryOutcome::Delivered };
    let parked = run_until(&mut world, (Time(0), Time(20 * 60_000)), answer);
    assert_eq!(parked, (1..=1000).filter(|seq| bad(*seq)).count());
    assert_eq!(world.delivery.progress().queued(1000), 0);
}

#[test]
fn a_retried_dead_letter_is_sent_after_sealed_batches_and_parked_by_one_refusal() {
    check(
        "0: events 1; 0: publish 3; 1: 1 too large; 101; 102: retry 1; 103: 2 delivered; 104: 3 delivered; 105: 4 refused; 205",
        "0: 1: 1 full; 1: parks 1; 101: 2: 2 probe; 102: takes back 1; 103: recovered, 3: 3 full; 104: 4: 1 retry; \
         105: parks 1",
    );
}

#[test]
fn retried_dead_letters_share_batches_within_the_limits() {
    check(
        "0: retry 1 4 5 7; 1: 1 delivered; 2: 2 delivered",
        "0: takes back 1, takes back 4, takes back 5, takes back 7, 1: 1+4+5 retry; 1: 2: 7 retry",
    );
    check(
        "0: bytes 250; 0: retry 1 2; 1: 1 refused; 101",
        "0: takes back 1, takes back 2, 1: 1 retry; 1: parks 1; 101: 2: 2 probe",
    );
    check(
        "0: retry 1; 1: retry 1 2; 2: 1 delivered",
        "0: takes back 1, 1: 1 retry; 1: takes back 2; 2: 2: 2 retry",
    );
    check("0: retry 1 1; 1: 1 delivered", "0: takes back 1, 1: 1 retry");
    let (_, mut world) = run_story(World::new(RULES, POLICY), "0: disable");
    let dead = (1..=2 * MAX_RETRIED_DEAD_LETTERS as u64).map(dead_letter).collect();
    world.delivery.handle(Time(1), DeliveryInput::Retry(dead), &mut world.effects);
    world.pump(Time(1));
    assert_eq!(world.results.len(), MAX_RETRIED_DEAD_LETTERS, "so many at once");
}
