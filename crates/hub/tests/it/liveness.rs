//! Liveness in virtual time: leases, closed epochs, take-over, sweeps, a store that is down or slow.

mod harness;

use harness::{Harness, RULES, StoreHealth, ask, change, open, put};
use std::sync::Arc;
use tavern_domain::presence::{NodeEpoch, OfflineReason};
use tavern_domain::{Epoch, Time};
use tavern_hub::{LivenessEvent, LivenessTask};
use tavern_store::{Commit, Deadline, NodeChange, Store, Work, Writer};

#[test]
fn lease_is_renewed_at_every_heartbeat_with_one_write() {
    let mut harness = Harness::new();
    harness.pass(60_000);
    assert_eq!(harness.nodes().len(), 1);
    assert!(harness.nodes()[0].lease_until > harness.now() + 7_900);
    let renewed = harness.events.iter().filter(|event| matches!(event, LivenessEvent::Renewed)).count();
    assert_eq!((renewed, harness.events.len()), (30, 30));
    assert_eq!(harness.submitted, 30 * 4, "the lease, the time, the nodes, the overdue deadlines");
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Compare)), 30);
}

#[test]
fn fenced_node_opens_a_new_epoch_and_announces_its_clients() {
    let mut harness = Harness::new();
    let before = harness.node.epoch();
    harness.pass(2_000);
    let node = Writer::new("own", before);
    change(&harness.engine, NodeChange::Close { node, proof: tavern_store::CloseProof::ProcessGone });
    harness.pass(2_000);
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Announce)), 1);
    assert!(harness.node.epoch() > before);
    assert!(harness.taken().is_empty());
    harness.pass(10_000);
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Announce)), 1);
    assert_eq!(harness.nodes().len(), 1, "the earlier epoch has no presences left and is forgotten");
}

#[test]
fn a_node_that_another_server_of_its_name_has_fenced_ends() {
    let mut harness = Harness::new();
    let before = harness.node.epoch();
    harness.pass(2_000);
    let successor = Writer::new("own", open(&harness.engine, "own", RULES.lease_ms));
    harness.pass(2_100);
    let replaced = |event: &LivenessEvent| matches!(event, LivenessEvent::Replaced(by) if *by == successor);
    assert!(harness.events.iter().any(replaced), "{:?}", harness.events);
    assert_eq!(harness.node.epoch(), before, "it does not fence the other one in turn");
}

#[test]
fn a_node_takes_its_own_new_epoch_for_no_other_server() {
    let mut harness = Harness::new();
    harness.pass(2_000);
    let node = Writer::new("own", harness.node.epoch());
    change(&harness.engine, NodeChange::Close { node, proof: tavern_store::CloseProof::ProcessGone });
    // The new epoch is opened, and the answer is lost.
    harness.set(StoreHealth::Forgetful);
    harness.pass(4_000);
    assert!(harness.nodes().len() > 1);
    harness.set(StoreHealth::Up);
    harness.pass(4_000);
    assert!(!harness.events.iter().any(|event| matches!(event, LivenessEvent::Replaced(_))));
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Announce)), 1);
}

#[test]
fn own_earlier_epoch_is_taken_over_after_the_announcement() {
    let mut harness = Harness::new();
    let before = Writer::new("own", harness.node.epoch());
    harness.pass(2_000);
    put(&harness.engine, "ann", &before);
    change(&harness.engine, NodeChange::Close { node: before, proof: tavern_store::CloseProof::ProcessGone });
    harness.pass(2_000);
    let announced = harness.tasks.iter().position(|task| matches!(task, LivenessTask::Announce));
    assert!(announced.is_some() && harness.taken().is_empty());
    harness.pass(2_000);
    assert_eq!(harness.taken().len(), 1, "clients that were not announced by then are lost");
}

#[test]
fn dead_node_is_closed_when_its_lease_expires_and_its_clients_are_lost() {
    let mut harness = Harness::new();
    let other = Writer::new("other", open(&harness.engine, "other", 5_000));
    put(&harness.engine, "ann", &other);
    harness.pass(4_900);
    assert!(harness.taken().is_empty() && harness.nodes().iter().all(|node| node.closed_at.is_none()));
    harness.pass(100);
    let closed_at =
        harness.nodes().iter().find_map(|node| node.closed_at).expect("closed when its lease ended");
    assert!(
        harness.events.iter().any(|event| matches!(event, LivenessEvent::LeaseEnded(node) if *node == other))
    );
    assert_eq!(
        harness.taken(),
        [(Arc::from("ann"), OfflineReason::NodeDown, closed_at)],
        "at once, not a heartbeat later"
    );
    assert_eq!(harness.last_seen(), [closed_at]);
}

#[test]
fn clients_of_a_node_that_died_long_ago_were_last_seen_when_its_lease_ended() {
    let mut harness = Harness::new();
    let other = Writer::new("other", open(&harness.engine, "other", 5_000));
    let lease_until = harness.nodes().iter().find(|node| node.writer == other).unwrap().lease_until;
    put(&harness.engine, "ann", &other);
    harness.clock.advance(60_000);
    harness.pass(20_000);
    let closed_at = harness.nodes().iter().find_map(|node| node.closed_at).expect("closed");
    assert!(closed_at >= lease_until + 50_000, "closed at {}", closed_at.ms());
    assert_eq!(harness.taken()[0].2, closed_at, "they have the whole grace period to reconnect");
    assert!(harness.last_seen().iter().all(|seen| *seen == lease_until));
}

#[test]
fn epoch_closed_by_another_node_is_taken_over_at_the_next_check() {
    let mut harness = Harness::new();
    let other = Writer::new("other", open(&harness.engine, "other", 5_000));
    put(&harness.engine, "ann", &other);
    harness.pass(4_900);
    harness.clock.advance(100);
    harness.liveness.wake(harness.now());
    let closes = |work: &Work| matches!(work, Work::Commit(commit) if matches!(commit.node, Some(NodeChange::Close { .. })));
    while !harness.liveness.effects.work.iter().any(|(_, work)| closes(work)) {
        let work = std::mem::take(&mut harness.liveness.effects.work);
        assert!(!work.is_empty(), "the check closes the expired lease");
        harness.store.submit(work);
        harness.engine.settle();
        for (ticket, answer) in std::mem::take(&mut *harness.answers.0.lock().unwrap()) {
            harness.liveness.answered(harness.now(), ticket, answer);
        }
    }
    // After this node has read the nodes, before it closes the epoch itself.
    change(&harness.engine, NodeChange::Close { node: other, proof: tavern_store::CloseProof::LeaseEnded });
    harness.clock.advance(1);
    harness.settle();
    assert!(harness.taken().is_empty());
    harness.pass(2_000);
    assert_eq!(harness.taken().len(), 1, "the other node may have died meanwhile");
}

#[test]
fn renewed_lease_causes_no_extra_check() {
    let mut harness = Harness::new();
    let other = Writer::new("other", open(&harness.engine, "other", 5_000));
    harness.pass(2_000);
    let before = harness.submitted;
    for _ in 0..10 {
        change(&harness.engine, NodeChange::Renew { node: other.clone(), lease_ms: 5_000 });
        harness.pass(2_000);
    }
    let checks = harness.tasks.iter().filter(|task| matches!(task, LivenessTask::Compare)).count();
    assert!(checks <= 12, "{checks} checks in eleven heartbeats, {} requests", harness.submitted - before);
}

#[test]
fn clients_of_a_stopped_node_have_the_whole_grace_period() {
    let mut harness = Harness::new();
    let other = Writer::new("other", open(&harness.engine, "other", 5_000));
    put(&harness.engine, "ann", &other);
    change(&harness.engine, NodeChange::Stop { node: other });
    harness.pass(14_900);
    assert!(harness.taken().is_empty());
    harness.pass(2_100);
    assert_eq!(harness.taken(), [(Arc::from("ann"), OfflineReason::Lost, Time(1_000_000))]);
    harness.pass(60_000);
    assert_eq!(harness.nodes().len(), 2, "a node with presences left is kept");
}

#[test]
fn stopped_node_without_presences_is_forgotten_after_drain_and_lease() {
    let mut harness = Harness::new();
    let other = Writer::new("other", open(&harness.engine, "other", 5_000));
    change(&harness.engine, NodeChange::Stop { node: other });
    harness.pass(24_900);
    assert_eq!(harness.nodes().len(), 2);
    harness.pass(2_100);
    assert_eq!(harness.nodes().len(), 1);
}

#[test]
fn overdue_deadline_is_given_to_a_shard_after_a_second() {
    let mut harness = Harness::new();
    let deadline = Deadline::new(Time(1_003_000), "grace", "6:game#A/ann");
    let commit = Commit { deadlines: vec![deadline.clone()], ..Commit::default() };
    ask(&harness.engine, Work::Commit(commit));
    harness.pass(3_900);
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Overdue(_))), 0);
    harness.pass(200);
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Overdue(found) if *found == deadline)), 1);
}

#[test]
fn overdue_deadlines_that_stay_do_not_hold_up_later_ones() {
    let mut harness = Harness::new();
    let waiting = (0..1_500).map(|n| Deadline::new(Time(1_000_000), "inbox", &format!("user-{n}")));
    let last = Deadline::new(Time(1_000_001), "grace", "6:game#A/ann");
    for part in waiting.chain([last.clone()]).collect::<Vec<_>>().chunks(500) {
        ask(&harness.engine, Work::Commit(Commit { deadlines: part.to_vec(), ..Commit::default() }));
    }
    harness.pass(8_000);
    assert!(harness.count(|task| matches!(task, LivenessTask::Overdue(found) if *found == last)) > 0);
    let first = |found: &Deadline| &*found.name == "user-0";
    assert!(harness.count(|task| matches!(task, LivenessTask::Overdue(found) if first(found))) > 1);
}

#[test]
fn failed_renewals_are_reported_until_the_store_is_back() {
    let mut harness = Harness::new();
    harness.pass(2_000);
    harness.set(StoreHealth::Down);
    harness.pass(4_000);
    let failed =
        harness.events.iter().filter(|event| matches!(event, LivenessEvent::NotRenewed(Some(_)))).count();
    assert_eq!(failed, 2);
    harness.set(StoreHealth::Up);
    harness.pass(2_000);
    assert!(matches!(harness.events[..], [.., LivenessEvent::Renewed]));
}

#[test]
fn replaced_epoch_is_stopped_cleanly_and_clients_are_announced_under_the_new_one() {
    let mut harness = Harness::new();
    let before = Writer::new("own", harness.node.epoch());
    harness.pass(2_000);
    put(&harness.engine, "ghost", &before);
    harness.set(StoreHealth::Down);
    harness.liveness.replace_epoch(harness.now());
    harness.settle();
    assert_eq!(harness.node.epoch(), before.epoch, "the store is down");
    harness.set(StoreHealth::Up);
    harness.pass(2_000);
    assert!(harness.node.epoch() > before.epoch);
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Announce)), 1);
    assert!(harness.nodes().iter().any(|node| node.writer == before && node.clean));
    assert!(harness.taken().is_empty(), "clients that are not announced yet have the grace period");
    harness.pass(20_000);
    assert_eq!(harness.taken()[0].0, Arc::from("ghost"));
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Announce)), 1);
}

#[test]
fn after_a_store_outage_other_nodes_get_one_lease_time_to_renew() {
    let mut harness = Harness::new();
    let alive = Writer::new("alive", open(&harness.engine, "alive", RULES.lease_ms));
    let dead = Writer::new("dead", open(&harness.engine, "dead", RULES.lease_ms));
    harness.pass(2_000);
    harness.set(StoreHealth::Down);
    harness.pass(30_000);
    harness.set(StoreHealth::Up);
    harness.pass(4_000);
    // The other node reaches the store a little later than this one.
    change(&harness.engine, NodeChange::Renew { node: alive, lease_ms: 60_000 });
    harness.pass(14_000);
    let ended: Vec<&Writer> = harness
        .events
        .iter()
        .filter_map(|event| match event {
            LivenessEvent::LeaseEnded(node) => Some(node),
            _ => None,
        })
        .collect();
    assert_eq!(ended, [&dead]);
}

#[test]
fn slow_store_gets_little_work_and_late_answers_are_ignored() {
    let mut harness = Harness::new();
    harness.pass(2_000);
    harness.set(StoreHealth::Slow);
    harness.submitted = 0;
    harness.pass(60_000);
    assert!(harness.submitted <= 2 * 60 / 5, "{} requests pile up", harness.submitted);
    assert!(harness.events.iter().any(|event| matches!(event, LivenessEvent::NotRenewed(None))));
    harness.set(StoreHealth::Up);
    // The answers to earlier requests arrive late and must change nothing.
    harness.pass(70_000);
    assert!(harness.nodes().iter().any(|node| node.closed_at.is_none() && node.lease_until > harness.now()));
    assert!(matches!(harness.events[..], [.., LivenessEvent::Renewed]));
}

#[test]
fn only_presences_without_a_living_node_are_swept() {
    let mut harness = Harness::new();
    let gone = Writer::new("gone", Epoch(9));
    let own = Writer::new("own", harness.node.epoch());
    put(&harness.engine, "ann", &gone);
    put(&harness.engine, "bob", &own);
    harness.pass(59_900);
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Sweep(_))), 0);
    harness.pass(2_200);
    let swept: Vec<_> = harness.tasks.iter().filter(|task| matches!(task, LivenessTask::Sweep(_))).collect();
    let [LivenessTask::Sweep(stale)] = swept[..] else { panic!("{swept:?}") };
    assert_eq!((&*stale.user, &stale.nodes[..]), ("ann", &[NodeEpoch::from(&gone)][..]));
    let reported =
        |event: &&LivenessEvent| matches!(event, LivenessEvent::StalePresence(key) if &*key.user == "ann");
    assert_eq!(harness.events.iter().filter(reported).count(), 1);
    harness.pass(40_000);
    assert_eq!(harness.count(|task| matches!(task, LivenessTask::Sweep(_))), 1, "once a minute");
}

#[test]
fn sweep_without_stale_presences_writes_nothing() {
    let mut harness = Harness::new();
    put(&harness.engine, "ann", &Writer::new("own", harness.node.epoch()));
    harness.pass(1_000);
    let renewals =
        |harness: &Harness| harness.events.iter().filter(|n| matches!(n, LivenessEvent::Renewed)).count();
    let (commits, renewed) = (harness.commits, renewals(&harness));
    harness.pass(300_000);
    assert_eq!(harness.commits - commits, renewals(&harness) - renewed, "only renewals");
}
