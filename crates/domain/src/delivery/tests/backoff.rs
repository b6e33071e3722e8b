//! Failing, slow and throttling endpoints.

use super::*;

#[test]
fn the_wait_doubles_and_a_success_ends_it() {
    check(
        "0: publish 3; 0: 1 failed ~100; 199; 200; 200: 1 failed ~900; 1199; 1200; 1200: 1 failed ~1900; 3199; 3200; \
         3201: 1 delivered; 3202: publish 3; 3203: 2 failed ~100; 3402; 3403",
        "0: 1: 1-3 full; 200: 1 again: 1-3 probe; 1200: 1 again: 1-3 probe; 3200: 1 again: 1-3 probe; \
         3201: recovered; 3202: 2: 4-6 full; 3403: 2 again: 4-6 probe",
    );
}

#[test]
fn a_failing_endpoint_is_probed_with_its_oldest_batch_alone() {
    check(
        "0: concurrency 3; 0: publish 12; 1: 2 failed; 102; 103: 3 delivered; 104: 1 failed; 204; 205: 1 delivered",
        "0: 1: 1-3 full, 2: 4-6 full, 3: 7-9 full; 104: 1 again: 1-3 probe; \
         205: recovered, 2 again: 4-6 full, 4: 10-12 full",
    );
}

#[test]
fn one_fault_of_all_attempts_in_flight_counts_once() {
    let (_, world) = run_story(
        World::new(DeliveryRules { concurrency: 3, ..RULES }, POLICY),
        "0: publish 9; 1: 1 failed; 2: 2 failed; 3: 3 failed",
    );
    assert_eq!(world.delivery.progress.failure.unwrap().failures, 1);
    assert_eq!(world.delivery.next_wake(), Some(Time(101)));
}

#[test]
fn a_throttling_endpoint_gets_its_time_and_is_not_failing() {
    check(
        "0: publish 3; 1: 1 throttled 7000; 7000; 7001; 7002: 1 throttled 999999999; 3607001; 3607002",
        "0: 1: 1-3 full; 7001: 1 again: 1-3 probe; 3607002: 1 again: 1-3 probe",
    );
    check("0: publish 3; 1: 1 throttled 0; 100; 101", "0: 1: 1-3 full; 101: 1 again: 1-3 probe");
    let health = |story| run_story(World::new(RULES, POLICY), story).1.delivery.progress.health();
    assert_eq!(health("0: publish 3; 1: 1 throttled"), SubscriptionHealth::Throttled);
    assert_eq!(health("0: publish 3; 1: 1 failed; 101: 1 throttled 5"), SubscriptionHealth::Throttled);
    assert_eq!(health("0: publish 3; 1: 1 throttled; 101: 1 failed"), SubscriptionHealth::Failing);
    assert_eq!(health("0: publish 3; 1: 1 delivered"), SubscriptionHealth::Healthy);
    assert_eq!(health("0: disable"), SubscriptionHealth::Disabled(DisabledReason::Asked));
}

#[test]
fn throttling_without_a_time_uses_the_backoff() {
    check(
        "0: publish 3; 0: 1 throttled ~100; 200: 1 throttled ~900; 1199; 1200",
        "0: 1: 1-3 full; 200: 1 again: 1-3 probe; 1200: 1 again: 1-3 probe",
    );
}

#[test]
fn the_longest_of_several_retry_afters_counts() {
    check(
        "0: concurrency 2; 0: publish 6; 1: 1 throttled 300; 2: 2 throttled 5000; 301; 5001; 5002",
        "0: 1: 1-3 full, 2: 4-6 full; 5002: 1 again: 1-3 probe",
    );
}

#[test]
fn a_subscription_that_only_fails_is_disabled_and_loses_nothing() {
    let policy = RetryPolicy { disable_after_ms: 1_000, ..POLICY };
    let run_story = |story| run_story(World::new(RULES, policy), story).0;
    assert_eq!(
        run_story(
            "0: publish 3; 0: 1 failed; 999: 1 failed; 1999: 1 failed; 2000: publish 3; 9000; 9001: enable; 9002: 1 delivered"
        ),
        "0: 1: 1-3 full; 999: 1 again: 1-3 probe; 1999: 1 again: 1-3 probe, disabled failing; \
         9001: 1 again: 1-3 full; 9002: 2: 4-6 full",
    );
    let results = run_story("0: concurrency 2; 0: publish 6; 0: 1 failed; 900: 2 delivered; 1000: 1 failed");
    assert!(!results.contains("disabled"), "{results}");
    // An endpoint that accepts something, or throttles, does not only fail.
    let results = run_story(
        "0: publish 3; 0: 1 failed; 100; 500: 1 throttled; 700; 1100: 1 failed; 1300; 1400: 1 failed",
    );
    assert!(!results.contains("disabled"), "{results}");
    let results =
        run_story("0: publish 3; 0: 1 failed; 100; 500: 1 delivered; 800: publish 3; 1100: 2 failed");
    assert!(!results.contains("disabled"), "{results}");
}

#[test]
fn a_disabled_subscription_sends_nothing_and_continues_where_it_was() {
    check(
        "0: publish 2; 1: disable; 2: publish 7; 900; 901: disable; 902: enable; 903: 1 delivered",
        "1: disabled asked; 902: 1: 1-3 full; 903: 2: 4-6 full",
    );
    check(
        "0: publish 6; 1: disable; 2: 1 delivered; 3: enable",
        "0: 1: 1-3 full; 1: disabled asked; 3: 2: 4-6 full",
    );
    check(
        "0: publish 3; 1: disable; 2: crash; 3: enable",
        "0: 1: 1-3 full; 1: disabled asked; 3: 1 again: 1-3 full",
    );
}

/// Both are forgotten, so both must be saved.
#[test]
fn a_failing_subscription_that_was_disabled_and_enabled_is_not_disabled_after_a_crash() {
    let (_, world) = run_story(World::new(RULES, POLICY), "0: publish 3; 1: 1 failed; 2: disable; 3: enable");
    assert_eq!((world.saved.disabled, world.saved.failure.is_some()), (None, false));
}

#[test]
fn a_disabled_subscription_reads_nothing_and_has_no_timer() {
    let (_, world) = run_story(World::new(RULES, POLICY), "0: publish 7; 1: 1 failed; 2: disable");
    assert_eq!((world.delivery.next_wake(), world.delivery.want(world.delivery.woken_at)), (None, None));
}

#[test]
fn nothing_is_read_ahead_for_a_slow_endpoint() {
    let (results, world) = run_story(World::new(RULES, POLICY), "0: publish 6; 999");
    assert_eq!(results, "0: 1: 1-3 full");
    let want = |now| world.delivery.want(Time(now)).map(|want| want.after);
    assert_eq!((want(999), want(1_000)), (Some(mark(6)), None), "it is slow from now on");
    let (results, _) =
        run_story(world, "1500: publish 6; 1600: 1 delivered; 1601: 2 delivered; 1602: 3 delivered");
    assert_eq!(results, "1600: 2: 4-6 full; 1601: 3: 7-9 full; 1602: 4: 10-12 full");
}

#[test]
fn a_failing_subscription_seals_one_batch_ahead_and_reads_no_more() {
    let (results, world) =
        run_story(World::new(RULES, POLICY), "0: publish 3; 1: 1 failed; 2: publish 2; 3: publish 5; 600");
    assert_eq!(results, "0: 1: 1-3 full; 600: 1 again: 1-3 probe");
    assert_eq!(
        (world.delivery.progress.batches.len(), world.delivery.want(world.delivery.woken_at)),
        (2, None)
    );
    let (results, _) = run_story(world, "601: 1 delivered; 602: 2 delivered");
    assert_eq!(results, "601: recovered, 2: 4-6 full; 602: 3: 7-9 full", "it goes on as if nothing had been");
}

#[test]
fn enabling_retries_at_once() {
    check(
        "0: publish 3; 1: 1 throttled 50000; 2: enable; 3: 1 failed; 102; 103",
        "0: 1: 1-3 full; 2: 1 again: 1-3 full; 103: 1 again: 1-3 probe",
    );
    // A later failure counts, no matter when the attempt started.
    check(
        "0: concurrency 2; 0: publish 6; 1: 1 failed; 2: enable; 3: 2 failed; 102: 1 failed; 103",
        "0: 1: 1-3 full, 2: 4-6 full; 2: 1 again: 1-3 full; 103: 1 again: 1-3 probe",
    );
}

#[test]
fn after_a_crash_the_same_batches_are_sent_and_the_backoff_is_kept() {
    check("0: publish 6; 1: crash; 2: 1 delivered", "0: 1: 1-3 full; 1: 1 again: 1-3 full; 2: 2: 4-6 full");
    check(
        "0: publish 6; 1: 1 failed ~50; 2: crash; 150; 151; 152: 1 failed ~900; 153: crash; 1151; 1152",
        "0: 1: 1-3 full; 151: 1 again: 1-3 probe; 1152: 1 again: 1-3 probe",
    );
}

#[test]
fn a_clock_that_was_ahead_does_not_stop_a_queue() {
    let (_, world) = run_story(World::new(RULES, POLICY), "99000000000: publish 3; 99000000000: 1 failed");
    let delivery = Delivery::new(Time(5), world.saved, RULES, POLICY);
    assert_eq!(delivery.next_wake(), Some(Time(5 + RETRY_AFTER_MAX_MS)));
}

#[test]
fn the_last_attempt_is_stored() {
    let last = |story| run_story(World::new(RULES, POLICY), story).1.delivery.progress.last.unwrap();
    let results = last("0: publish 3; 1: 1 delivered");
    assert_eq!(
        results,
        LastAttempt {
            number: 1,
            at: Time(1),
            reason: BatchReason::Full,
            outcome: DeliveryOutcome::Delivered
        }
    );
    let results = last("0: publish 1; 500; 501: 1 failed; 601; 602: 1 refused");
    assert_eq!(
        results,
        LastAttempt {
            number: 2,
            at: Time(602),
            reason: BatchReason::Probe,
            outcome: DeliveryOutcome::Refused
        }
    );
}

#[test]
fn the_last_error_outlives_the_recovery() {
    let progress = |story| run_story(World::new(RULES, POLICY), story).1.delivery.progress;
    assert_eq!(progress("0: publish 3; 1: 1 delivered").last_error, None);
    let recovered = progress("0: publish 3; 1: 1 failed; 602: 1 delivered");
    assert_eq!(recovered.last_error, Some(AttemptError { at: Time(1), text: "failed".into() }));
    assert_eq!(recovered.attempted(), 2);
}

#[test]
fn reasons_and_outcomes_are_read_back_as_they_were_written() {
    assert!(BatchReason::ALL.iter().all(|&reason| BatchReason::parse(reason.as_str()) == Some(reason)));
    assert!(
        DeliveryOutcome::ALL.iter().all(|&outcome| DeliveryOutcome::parse(outcome.as_str()) == Some(outcome))
    );
    assert_eq!(
        ["asked", "gone", "failing", "x"].map(DisabledReason::parse),
        [Some(DisabledReason::Asked), Some(DisabledReason::Gone), Some(DisabledReason::Failing), None]
    );
}
