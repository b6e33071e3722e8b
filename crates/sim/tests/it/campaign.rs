//! A short campaign of each workload: every invariant holds, enough happens, and equal seeds give equal runs.

use std::collections::BTreeMap;
use tavern_sim::run::{RunRequest, run};
use tavern_sim::workload::Name;

/// Runs this many seeds; each count must reach its minimum.
fn campaign(workload: Name, runs: u64, least: &[(&str, u64)]) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 1..=runs {
        let report = run(RunRequest::new(workload, seed));
        assert_eq!(report.violation, None, "{workload:?}, seed {seed}");
        report.counts.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    // A campaign in which nothing happens proves nothing.
    for (what, least) in least {
        let found = counts.get(what).copied().unwrap_or(0);
        assert!(found >= *least, "{workload:?}: {found} {what}, expected {least}");
    }
}

#[test]
fn history_keeps_its_promises() {
    let least = [
        ("messages received", 5_000),
        ("messages published", 2_000),
        ("messages known before", 5),
        ("recoveries", 100),
        ("recoveries refused", 20),
        ("rewinds", 100),
        ("channel gaps", 5),
        ("histories cleared", 20),
        ("sessions resumed", 200),
        ("sessions moved", 200),
        ("pages", 200),
        ("stops", 20),
        ("crashes", 10),
        ("sleeps", 5),
        ("cuts", 10),
    ];
    campaign(Name::History, 25, &least);
}

#[test]
fn messages_keep_their_promises() {
    let least = [
        ("events received", 20_000),
        ("gaps", 50),
        ("sessions resumed", 500),
        ("stops", 50),
        ("sleeps", 10),
        ("slow readers closed", 3),
    ];
    campaign(Name::Messages, 30, &least);
}

#[test]
fn sessions_that_move_keep_their_promises() {
    let least = [
        ("messages received", 10_000),
        ("presence events received", 1_000),
        ("sessions moved", 500),
        ("sessions resumed", 500),
        ("sessions adopted", 5),
        ("channel gaps", 20),
        ("stops", 50),
        ("crashes", 10),
        ("sleeps", 10),
        ("cuts", 10),
    ];
    campaign(Name::Migration, 35, &least);
}

#[test]
fn parties_keep_their_promises() {
    let least = [
        ("inbox messages received", 2_000),
        ("orders carried out", 600),
        ("orders refused", 1_000),
        ("requests repeated", 100),
        ("commands unavailable", 100),
        ("parties", 150),
        ("logouts", 30),
        ("party messages received", 100),
        ("crashes", 10),
        ("stops", 10),
        ("sleeps", 20),
        ("cuts", 10),
    ];
    campaign(Name::Parties, 15, &least);
}

#[test]
fn people_keep_their_promises() {
    let least = [
        ("changes", 1_000),
        ("statuses received", 2_000),
        ("inbox messages received", 500),
        ("messages posted", 300),
        ("messages deduplicated", 1),
        ("commands unavailable", 100),
        ("sessions resumed", 300),
        ("crashes", 20),
        ("stops", 10),
        ("sleeps", 20),
        ("cuts", 10),
    ];
    campaign(Name::People, 30, &least);
}

#[test]
fn presence_keeps_its_promises() {
    let least = [
        ("events received", 10_000),
        ("commits", 5_000),
        ("crashes", 20),
        ("sleeps", 20),
        ("cuts", 15),
        ("stops", 15),
        ("sessions resumed", 300),
        ("sessions adopted", 50),
        ("new epochs", 5),
        ("clients taken over", 50),
        ("grace periods ended", 50),
        ("commands refused", 50),
    ];
    campaign(Name::Presence, 25, &least);
}

#[test]
fn topics_keep_their_promises() {
    let least = [
        ("events accepted", 2_000),
        ("events delivered", 4_000),
        ("events known before", 200),
        ("batches repeated", 100),
        ("dead letters", 200),
        ("foreign keys refused", 30),
        ("events pulled", 1_500),
        ("replays", 30),
        ("subscriptions created", 50),
        ("topics deleted", 50),
        ("publishers changed", 20),
        ("topics of subscriptions changed", 200),
        ("limits changed", 30),
        ("events trimmed", 1_000),
        ("events above a backlog limit", 20),
        ("gaps delivered", 30),
        ("gaps pulled", 20),
        ("dead letters retried", 20),
        ("refused events accepted later", 10),
        ("posts", 4_000),
        ("crashes", 20),
        ("stops", 10),
        ("sleeps", 20),
        ("cuts", 10),
    ];
    campaign(Name::Topics, 40, &least);
}

#[test]
fn runs_with_a_part_of_the_faults_and_actions_keep_their_promises() {
    for workload in Name::ALL {
        for seed in 1..=8 {
            let report = run(RunRequest { swarm: true, ..RunRequest::new(*workload, seed) });
            assert_eq!(report.violation, None, "{workload:?}, seed {seed}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for workload in Name::ALL {
        for seed in [3, 77] {
            let (first, second) =
                (run(RunRequest::new(*workload, seed)), run(RunRequest::new(*workload, seed)));
            assert_eq!((first.trace, &first.counts), (second.trace, &second.counts), "{workload:?}");
            assert_ne!(first.trace, run(RunRequest::new(*workload, seed + 1)).trace, "{workload:?}");
        }
    }
}
