//! A node that stops: its sessions move to the other nodes and collect events there; sessions that no node takes are packed
//! for the store.

use crate::harness::migration::{MigrationFixture, data, step_name, watch};
use serde_json::{Value, json};
use std::sync::Arc;
use tavern_hub::*;
use tavern_store::memory::{WorkFault, WorkOutcome};
use tavern_store::{Commit, Found, Read, RowKey, Work, Writer};

const DRAIN: u64 = 15_000;

/// Stops the first node. Returns the sessions that no other node took.
fn stop(scene: &mut MigrationFixture, ms: u64) -> Vec<PackedSession> {
    let living: Vec<Arc<str>> = ["two".into(), "three".into()].into();
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].drain(now, &living, DRAIN);
    scene.cluster.settle();
    for _ in 0..ms {
        if scene.cluster.node(0).shards[0].in_transit() == 0 {
            break;
        }
        scene.cluster.pass(1);
    }
    let now = scene.cluster.node(0).now;
    let packed = scene.cluster.node(0).shards[0].pack(now);
    scene.cluster.settle();
    let mut commit = Commit::default();
    let writer = writer_of(scene, 0);
    packed.iter().for_each(|session| store_session(&mut commit, session.to_row(&writer)));
    scene.cluster.write(commit);
    scene.cluster.crash(0);
    packed
}

fn writer_of(scene: &mut MigrationFixture, at: usize) -> Writer {
    let node = scene.cluster.node(at).shards[0].core.node();
    Writer::new(&node.settings.node, node.epoch())
}

/// Removes a session of a stopped node from the store, for another node.
fn take(scene: &mut MigrationFixture, at: usize, packed: &PackedSession) {
    let Found::Session(Some(stored)) = scene.cluster.stored(Read::Session(packed.client)) else {
        panic!("the session is in the store")
    };
    let commit = take_session(writer_of(scene, at), &stored);
    scene.cluster.write(commit);
}

/// A node adopts a session from the store.
pub fn adopt(scene: &mut MigrationFixture, at: usize, packed: &PackedSession) {
    take(scene, at, packed);
    let now = scene.cluster.node(at).now;
    assert!(scene.cluster.node(at).shards[0].adopt(now, packed));
}

/// The same, and no other node hears of the offers.
pub fn stop_without_offers(scene: &mut MigrationFixture) -> Vec<PackedSession> {
    scene.cluster.set_fate(|_, _, packet| if step_name(packet) == "offer" { vec![] } else { vec![0] });
    let packed = stop(scene, 20_000);
    scene.cluster.heal();
    packed
}

#[test]
fn sessions_move_to_other_nodes_and_go_on_collecting_events() {
    let mut scene = MigrationFixture::new();
    scene.publish(2, "game#A", "1");
    scene.cluster.settle();
    let packed = stop(&mut scene, 5_000);
    assert!(packed.is_empty());
    assert_eq!(scene.cluster.node(0).closes(), [(scene.ann.link.id, CloseReason::Closing)]);
    for n in 2..5 {
        scene.publish(1, "game#A", &n.to_string());
        scene.publish(2, "chat#x", &n.to_string());
        scene.cluster.live(1_000);
    }
    // On any node.
    for at in [1, 2] {
        let ann = scene.resume(at, 0);
        assert_eq!(data(&scene.events(at, &ann)), ["1", "2", "2", "3", "3", "4", "4"]);
    }
}

#[test]
fn many_sessions_are_spread_over_the_other_nodes() {
    let mut scene = MigrationFixture::new();
    let mut memberships = Vec::new();
    for n in 0..600 {
        let (mut caller, hello) = scene.cluster.client(0, &format!("u{n}"));
        scene.cluster.send(0, &mut caller, &format!(r#"{{"op":"subscribe","channel":"own#{n}"}}"#));
        memberships.push(hello["session"].as_str().unwrap().to_owned());
    }
    assert!(stop(&mut scene, 5_000).is_empty());
    let counts = [1, 2].map(|at| scene.cluster.node(at).shards[0].core.listener_count());
    assert_eq!(counts.iter().sum::<usize>(), 601);
    assert!(counts.iter().all(|count| (250..=350).contains(count)), "{counts:?}");
    for n in (0..600).step_by(7) {
        scene.publish(1, &format!("own#{n}"), "\"hi\"");
        scene.cluster.settle();
        let mut caller = scene.cluster.node(2).socket();
        let hello = format!(r#"{{"op":"hello","token":"u{n}","session":"{}","seq":0}}"#, memberships[n]);
        assert_eq!(scene.cluster.send(2, &mut caller, &hello)["ok"]["resumed"], true);
        assert_eq!(data(&scene.events(2, &caller)), ["\"hi\""]);
    }
}

#[test]
fn drained_client_that_resumes_in_time_is_not_shown_offline() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A","state":1}"#);
    scene.events(2, &watcher);
    stop(&mut scene, 5_000);
    let stopped = scene.cluster.node(2).now;
    while scene.cluster.node(2).now.since(stopped) < DRAIN - 100 {
        scene.cluster.live(10);
        assert_eq!(scene.events(2, &watcher), [Value::Null; 0]);
    }
    let ann = scene.resume(1, 0);
    scene.cluster.live(30_000);
    assert_eq!(scene.events(2, &watcher), [Value::Null; 0], "ann came back in time");
    scene.cluster.node(1).detach(&ann);
    scene.cluster.live(30_000);
    let received: Vec<Value> = scene.events(2, &watcher).iter().map(|event| event["event"].clone()).collect();
    assert_eq!(
        received,
        ["client_offline", "user_offline"],
        "the next disconnect has the usual grace period"
    );
}

#[test]
fn client_lost_before_the_stop_is_shown_online_again_when_it_resumes() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A"}"#);
    scene.cluster.node(0).detach(&ann);
    scene.cluster.live(3_000);
    stop(&mut scene, 5_000);
    scene.cluster.live(2_000);
    let received = |scene: &mut MigrationFixture| -> Vec<Value> {
        scene.events(2, &watcher).iter().map(|event| event["event"].clone()).collect()
    };
    assert_eq!(received(&mut scene), ["user_online", "client_online", "client_offline"]);
    scene.resume(1, 0);
    scene.cluster.live(20_000);
    assert_eq!(received(&mut scene), ["client_online"]);
}

/// Ann joins the channel and loses the connection a second before the node stops. Returns the time of the disconnect.
pub fn disconnect_before_the_stop(scene: &mut MigrationFixture) -> u64 {
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A"}"#);
    scene.cluster.node(0).detach(&ann);
    let disconnected = scene.cluster.now().ms();
    scene.cluster.live(1_000);
    disconnected
}

fn told_last_seen(scene: &mut MigrationFixture, watcher: &Caller) -> Value {
    let received = scene.events(2, watcher);
    let events: Vec<&Value> = received.iter().map(|event| &event["event"]).collect();
    assert_eq!(events, ["user_online", "client_online", "client_offline", "user_offline"]);
    received[3]["last_seen"].clone()
}

#[test]
fn stop_keeps_the_time_of_an_earlier_disconnect() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let disconnected = disconnect_before_the_stop(&mut scene);
    assert!(stop(&mut scene, 5_000).is_empty());
    scene.cluster.live(DRAIN + 1_000);
    assert_eq!(told_last_seen(&mut scene, &watcher), disconnected);
}

#[test]
fn session_that_no_node_takes_keeps_the_time_of_its_disconnect() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let disconnected = disconnect_before_the_stop(&mut scene);
    scene.cluster.set_fate(|_, _, packet| if step_name(packet) == "offer" { vec![] } else { vec![0] });
    let packed = stop(&mut scene, 20_000);
    assert_eq!(packed[0].detached_at.ms(), disconnected);
    scene.cluster.heal();
    adopt(&mut scene, 1, &packed[0]);
    scene.cluster.live(DRAIN + 1_000);
    assert_eq!(told_last_seen(&mut scene, &watcher), disconnected);
}

#[test]
fn detached_client_does_not_survive_from_one_stop_to_the_next() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let disconnected = disconnect_before_the_stop(&mut scene);
    let mut at = 0;
    while scene.cluster.now().ms() < disconnected + 2 * DRAIN + 1_000 {
        // Each node that takes the session stops too.
        let next: Arc<str> = format!("next{at}").into();
        let to = scene.cluster.build(&next);
        scene.cluster.set_other_nodes();
        let now = scene.cluster.node(at).now;
        scene.cluster.node(at).shards[0].drain(now, &[next], DRAIN);
        scene.cluster.live(5_000);
        at = to;
    }
    assert_eq!(told_last_seen(&mut scene, &watcher), disconnected);
}

#[test]
fn client_that_arrives_before_its_session_waits_for_it() {
    let mut scene = MigrationFixture::new();
    scene.cluster.set_fate(|_, _, packet| vec![if step_name(packet).is_empty() { 0 } else { 200 }]);
    let living: Vec<Arc<str>> = ["two".into()].into();
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].drain(now, &living, DRAIN);
    scene.cluster.live(100);
    scene.resume(1, 0);
}

#[test]
fn session_offered_to_a_dead_node_goes_to_the_node_of_its_client() {
    let mut scene = MigrationFixture::new();
    scene.cluster.crash(1);
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].drain(now, &["two".into()], DRAIN);
    scene.cluster.settle();
    let mut caller = scene.cluster.node(2).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(2).flow(&mut caller, &hello).0, Flow::Wait);
    scene.cluster.live(500);
    assert_eq!(scene.owners(), [2]);
    assert_eq!(scene.cluster.send(2, &mut caller, &hello)["ok"]["resumed"], true);
}

#[test]
fn single_command_does_not_take_an_offered_session_from_its_connection() {
    let mut scene = MigrationFixture::new();
    scene.cluster.crash(1);
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].drain(now, &["two".into()], DRAIN);
    scene.cluster.settle();
    let (key, node) = read_session(&scene.session).unwrap();
    let node = node.to_owned();
    let command = SessionLookup { key, node: &node, identity: None, detached_only: true };
    let hello = SessionLookup { detached_only: false, ..command.clone() };
    for (lookup, link, owners) in [(command, LinkId(901), &[][..]), (hello, LinkId(902), &[2])] {
        let now = scene.cluster.node(2).now;
        assert_eq!(scene.cluster.node(2).shards[0].look_up(now, &lookup, link), LookupResult::Wait);
        scene.cluster.live(500);
        scene.cluster.node(2).shards[0].release_link(link);
        assert_eq!(scene.owners(), *owners);
    }
}

#[test]
fn client_that_waits_for_an_offer_that_comes_to_nothing_finds_its_session() {
    let mut scene = MigrationFixture::new();
    // The second node accepts the offer, but the first does not hear of it.
    scene.cluster.set_fate(|from, _, packet| match (from, step_name(packet)) {
        ("two", "give") => vec![],
        _ => vec![0],
    });
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].drain(now, &["two".into()], DRAIN);
    scene.cluster.live(50);
    scene.resume(2, 0);
    scene.cluster.heal();
    assert_eq!(scene.owners(), [2]);
    scene.resume(1, 0);
}

#[test]
fn late_copy_of_an_offer_does_not_lose_messages() {
    let mut scene = MigrationFixture::new();
    // The second node fails to take the session from the store, and its answer is lost. The offer arrives once more.
    scene.cluster.set_fate(|from, _, packet| match (from, step_name(packet)) {
        ("one", "offer") => vec![0, 2_000],
        ("two", "no") => vec![],
        _ => vec![0],
    });
    scene.cluster.set_work_fate(|node, work| {
        let session = |key: &RowKey| matches!(key, RowKey::Session(_));
        let takes = matches!(work, Work::Commit(commit) if commit.deletes.iter().any(session));
        let outcome = if node == "two" && takes { WorkOutcome::FailBefore } else { WorkOutcome::Perform };
        WorkFault { outcome, ..WorkFault::NONE }
    });
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].drain(now, &["two".into()], DRAIN);
    scene.cluster.live(1_000);
    scene.cluster.set_work_fate(|_, _| WorkFault::NONE);
    scene.publish(1, "game#A", "1");
    scene.cluster.live(10_000);
    let ann = scene.resume(2, 0);
    assert_eq!(data(&scene.events(2, &ann)), ["1"]);
}

#[test]
fn node_that_was_offered_a_session_and_adopts_it_finds_it() {
    let mut scene = MigrationFixture::new();
    // The nodes listen for it, but the owner is not notified.
    scene.cluster.set_fate(|_, _, packet| if step_name(packet) == "give" { vec![] } else { vec![0] });
    let packed = stop(&mut scene, 2_000);
    scene.cluster.heal();
    for at in [1, 2] {
        let now = scene.cluster.node(at).now;
        scene.cluster.node(at).shards[0].adopt(now, &packed[0]);
        scene.cluster.settle();
        assert!(scene.owners().contains(&at), "node {at} was offered the session and adopted it");
    }
}

#[test]
fn session_that_no_node_takes_is_packed_and_can_be_adopted_by_any_node() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A"}"#);
    scene.publish(2, "game#A", "1");
    scene.cluster.settle();
    scene.events(2, &watcher);
    scene.cluster.set_fate(|_, _, packet| if step_name(packet) == "offer" { vec![] } else { vec![0] });
    let packed = stop(&mut scene, 20_000);
    assert_eq!(packed.len(), 1);
    scene.cluster.heal();
    adopt(&mut scene, 1, &packed[0]);
    scene.cluster.live(10);
    let ann = scene.resume(2, 0);
    let received = scene.events(2, &ann);
    let events: Vec<&Value> = received.iter().map(|event| &event["event"]).collect();
    assert_eq!(events, ["user_online", "client_online", "message"]);
    scene.cluster.live(20_000);
    assert_eq!(scene.events(2, &watcher), [Value::Null; 0]);
}

#[test]
fn client_whose_session_is_being_adopted_waits_for_it() {
    for adopter in [1, 2] {
        let mut scene = MigrationFixture::new();
        let packed = stop_without_offers(&mut scene);
        for (at, other) in [(1, "three"), (2, "two")] {
            scene.cluster.node(at).shards[0].core.node().set_other_nodes(vec![other.into()]);
        }
        // One node has removed the session from the store and does not use it yet. Its client is on the third node.
        scene.cluster.node(adopter).shards[0].core.node().adoption.begin();
        take(&mut scene, adopter, &packed[0]);
        let mut caller = scene.cluster.node(2).socket();
        let hello = scene.hello("ann", 0);
        assert_eq!(scene.cluster.node(2).flow(&mut caller, &hello).0, Flow::Wait);
        scene.cluster.live(500);
        let now = scene.cluster.node(adopter).now;
        assert!(scene.cluster.node(adopter).shards[0].adopt(now, &packed[0]));
        scene.cluster.node(adopter).shards[0].core.node().adoption.end();
        scene.cluster.live(500);
        assert_eq!(scene.cluster.send(2, &mut caller, &hello)["ok"]["resumed"], true, "{adopter}");
    }
}

#[test]
fn adopted_watcher_gets_a_gap_for_missed_presence_changes() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    let packed = stop_without_offers(&mut scene);
    let (mut bob, _) = scene.cluster.client(2, "bob");
    scene.cluster.send(2, &mut bob, r#"{"op":"join","channel":"game#A"}"#);
    adopt(&mut scene, 1, &packed[0]);
    scene.cluster.live(10);
    let ann = scene.resume(1, 0);
    assert_eq!(scene.events(1, &ann), [json!({"seq": 1, "event": "gap", "channel": "game#A"})]);
}

#[test]
fn adopted_watcher_gets_changes_even_if_its_channel_could_not_be_read_at_first() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    let packed = stop_without_offers(&mut scene);
    scene.cluster.set_work_fate(|node, work| {
        let fails = node == "two" && matches!(work, Work::Read(Read::Roster { .. }));
        let outcome = if fails { WorkOutcome::FailBefore } else { WorkOutcome::Perform };
        WorkFault { outcome, ..WorkFault::NONE }
    });
    let now = scene.cluster.node(1).now;
    assert!(scene.cluster.node(1).shards[0].adopt(now, &packed[0]));
    scene.cluster.live(100);
    scene.cluster.heal();
    scene.cluster.live(2_000);
    let ann = scene.resume(1, 0);
    let (mut bob, _) = scene.cluster.client(2, "bob");
    scene.cluster.send(2, &mut bob, r#"{"op":"join","channel":"game#A"}"#);
    scene.cluster.live(100);
    assert_eq!(scene.events(1, &ann).len(), 2, "bob and bob's client");
}

#[test]
fn adopted_watcher_of_a_channel_that_became_empty_gets_a_gap() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    let (mut bob, _) = scene.cluster.client(2, "bob");
    scene.cluster.send(2, &mut bob, r#"{"op":"join","channel":"game#A"}"#);
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    let packed = stop_without_offers(&mut scene);
    scene.cluster.send(2, &mut bob, r#"{"op":"leave","channel":"game#A"}"#);
    adopt(&mut scene, 1, &packed[0]);
    scene.cluster.live(10);
    let ann = scene.resume(1, 0);
    assert_eq!(scene.events(1, &ann), [json!({"seq": 1, "event": "gap", "channel": "game#A"})]);
}

#[test]
fn session_adopted_late_gets_a_gap_for_each_subscription() {
    let mut scene = MigrationFixture::new();
    scene.publish(2, "game#A", "1");
    scene.cluster.settle();
    let packed = stop_without_offers(&mut scene);
    scene.publish(2, "game#A", "2");
    let now = scene.cluster.node(1).now;
    assert!(scene.cluster.node(1).shards[0].adopt_late(now, &packed[0]));
    scene.cluster.live(10);
    scene.publish(2, "game#A", "3");
    scene.cluster.settle();
    let ann = scene.resume(1, 0);
    let received = scene.events(1, &ann);
    let events: Vec<String> = received
        .iter()
        .map(|event| format!("{} {} {}", event["event"], event["channel"], event["pattern"]).replace('"', ""))
        .collect();
    assert_eq!(events, ["message game#A null", "gap game#A null", "gap null chat#*", "message game#A null"]);
    assert_eq!(data(&received[3..]), ["3"]);
}

#[test]
fn node_that_stops_declines_offers() {
    let mut scene = MigrationFixture::new();
    let living: Vec<Arc<str>> = ["three".into()].into();
    let now = scene.cluster.node(1).now;
    scene.cluster.node(1).shards[0].drain(now, &living, DRAIN);
    assert!(stop(&mut scene, 5_000).is_empty());
    assert_eq!(scene.owners(), [2], "the third node has it");
}

#[test]
fn client_that_waits_on_a_stopping_node_is_not_denied_its_session() {
    let mut scene = MigrationFixture::new();
    scene.cluster.set_fate(|_, _, packet| vec![if step_name(packet).is_empty() { 0 } else { 50 }]);
    let mut caller = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
    scene.cluster.live(10);
    let now = scene.cluster.node(1).now;
    scene.cluster.node(1).shards[0].drain(now, &["three".into()], DRAIN);
    scene.cluster.live(8_000);
    assert!(scene.cluster.node(1).shards[0].core.effects.ready.is_empty(), "it gets `closing` instead");
    scene.cluster.heal();
    scene.resume(2, 0);
}

#[test]
fn nodes_that_stop_together_lose_no_session() {
    for delay in 0..40 {
        let mut scene = MigrationFixture::new();
        scene.publish(2, "game#A", "1");
        scene.cluster.settle();
        scene
            .cluster
            .set_fate(move |_, _, packet| vec![if step_name(packet).is_empty() { 0 } else { delay % 7 }]);
        scene.cluster.set_work_fate(move |_, _| tavern_store::memory::WorkFault {
            before_ms: delay % 3,
            after_ms: delay % 5,
            ..tavern_store::memory::WorkFault::NONE
        });
        let names: [Arc<str>; 3] = ["one".into(), "two".into(), "three".into()];
        for at in 0..3 {
            let others: Vec<Arc<str>> = names.iter().filter(|name| **name != names[at]).cloned().collect();
            let now = scene.cluster.node(at).now;
            scene.cluster.node(at).shards[0].drain(now, &others, DRAIN);
            scene.cluster.live(delay / 2);
        }
        scene.cluster.live(12_000);
        let mut packed = Vec::new();
        for at in 0..3 {
            assert_eq!(scene.cluster.node(at).shards[0].in_transit(), 0);
            let now = scene.cluster.node(at).now;
            packed.extend(scene.cluster.node(at).shards[0].pack(now));
        }
        assert_eq!(packed.len(), 1, "delay {delay}");
        assert_eq!(packed[0].body.events.len(), 1);
    }
}
