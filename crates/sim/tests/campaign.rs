//! A short campaign, the planted faults, and the seeds that once failed.

use tavern_sim::run::run;
use tavern_sim::world::Sabotage;

const STEPS: usize = 1_500;

#[test]
fn every_promise_holds_in_a_short_campaign() {
    let mut heard = 0;
    let mut gaps = 0;
    let mut resumed = 0;
    let mut restarts = 0;
    let mut closed_slow = 0;
    for seed in 1..=60 {
        let report = run(seed, STEPS, Sabotage::None);
        assert_eq!(report.violation, None, "seed {seed}");
        heard += report.heard;
        gaps += report.gaps;
        resumed += report.resumed;
        restarts += report.restarts;
        closed_slow += report.closed_slow;
    }
    // A campaign in which nothing happens proves nothing.
    assert!(heard > 10_000, "{heard} events heard");
    assert!(gaps > 20, "{gaps} gaps");
    assert!(resumed > 200, "{resumed} resumed");
    assert!(restarts > 20, "{restarts} restarts");
    assert!(closed_slow > 5, "{closed_slow} closed for slow reading");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 77, 4711] {
        let first = run(seed, STEPS, Sabotage::None);
        let second = run(seed, STEPS, Sabotage::None);
        assert_eq!((first.trace, first.heard), (second.trace, second.heard));
        assert_ne!(first.trace, run(seed + 1, STEPS, Sabotage::None).trace);
    }
}

#[test]
fn planted_faults_are_found() {
    for sabotage in [
        Sabotage::LoseFrame,
        Sabotage::RepeatFrame,
        Sabotage::LoseParcel,
        Sabotage::ReorderParcels,
        Sabotage::ForgetRefused,
        Sabotage::SettleTooMuch,
    ] {
        let reports: Vec<_> = (1..=20).map(|seed| run(seed, STEPS, sabotage)).collect();
        let planted = reports.iter().filter(|report| report.sabotaged).count();
        let found = reports.iter().filter(|report| report.violation.is_some()).count();
        assert!(planted >= 10, "{sabotage:?} was planted in {planted} of 20 runs");
        assert!(found * 2 >= planted, "{sabotage:?} was found in {found} of {planted} runs");
    }
}
