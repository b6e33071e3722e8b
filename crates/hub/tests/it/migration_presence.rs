//! Presence of sessions that move between nodes. Must hold: watchers do not notice a move; a watcher that moves misses no
//! change and gets none twice.

use crate::harness::migration::{MigrationFixture, step_name, watch};
use serde_json::{Value, json};
use std::sync::Arc;
use tavern_hub::*;
use tavern_store::memory::{WorkFault, WorkOutcome};
use tavern_store::{Read, Row, Work};

fn hide_changes_from_the_second_node(scene: &mut MigrationFixture) {
    scene.cluster.set_fate(|_, to, packet| match (to, packet.subject.kind()) {
        ("two", "_presence") => vec![],
        _ => vec![0],
    });
}

#[test]
fn move_of_a_present_client_is_not_shown_to_watchers() {
    let mut scene = MigrationFixture::new();
    let watchers = [0, 1, 2].map(|at| watch(&mut scene.cluster, at));
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A","state":{"x":1}}"#);
    for (at, watcher) in watchers.iter().enumerate() {
        assert_eq!(scene.events(at, watcher).len(), 2, "ann is online");
    }
    for at in [1, 2, 0, 1] {
        scene.resume(at, 0);
        scene.cluster.live(20_000);
    }
    for (at, watcher) in watchers.iter().enumerate() {
        assert_eq!(scene.events(at, watcher), [Value::Null; 0], "watchers receive nothing");
    }
    let (_, hello) = scene.connect(1, 0);
    assert_eq!(hello["resumed"], true);
    let mut asker = watchers[2].clone();
    let who = scene.cluster.send(2, &mut asker, r#"{"op":"who","channel":"game#A"}"#);
    assert_eq!(who["ok"]["users"][0]["clients"][0]["state"], json!({"x": 1}));
    // The new node reports the client as lost when its transport is lost there.
    let ann = scene.resume(2, 0);
    scene.cluster.node(2).detach(&ann);
    scene.cluster.live(2_010);
    assert_eq!(scene.events(0, &watchers[0])[0]["event"], "client_offline");
}

#[test]
fn client_that_reconnects_at_once_is_not_reported_lost_by_its_old_node() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A"}"#);
    scene.events(2, &watcher);
    for at in [1, 0, 1, 0, 2, 0] {
        scene.resume(at, 0);
        scene.cluster.live(900);
    }
    scene.cluster.live(20_000);
    assert_eq!(scene.events(2, &watcher), [Value::Null; 0]);
}

#[test]
fn client_whose_new_node_dies_during_the_move_is_reported_lost_by_the_old_one() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A"}"#);
    scene.events(2, &watcher);
    let mut caller = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
    // The new node takes the session and dies before it announces the client.
    scene.cluster.stop_when_taken(1);
    scene.cluster.live(60_000);
    let received: Vec<Value> = scene.events(2, &watcher).iter().map(|event| event["event"].clone()).collect();
    assert_eq!(received, ["client_offline", "user_offline"]);
    assert_eq!(scene.owners().into_iter().filter(|at| *at != 1).count(), 0);
}

#[test]
fn watcher_that_moves_gets_every_change_once() {
    for slow in 0..40u64 {
        let mut scene = MigrationFixture::new();
        let mut ann = scene.ann.clone();
        scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
        let other = if slow % 2 == 0 { Some(watch(&mut scene.cluster, 1)) } else { None };
        let mut clients: Vec<(usize, Caller)> =
            (0..30).map(|n| (n % 3, scene.cluster.client(n % 3, &format!("u{n}")).0)).collect();
        scene.cluster.set_fate(move |from, to, packet| match (step_name(packet), from, to) {
            ("", _, "two") => vec![slow % 7],
            ("", _, "one") => vec![slow % 3],
            _ => vec![slow % 5],
        });
        let join = |scene: &mut MigrationFixture, (at, caller): &mut (usize, Caller)| {
            assert_eq!(
                scene.cluster.node(*at).flow(caller, r#"{"op":"join","channel":"game#A"}"#).0,
                Flow::Wait
            );
            scene.cluster.pass(1);
        };
        for client in &mut clients[..10] {
            join(&mut scene, client);
        }
        let mut caller = scene.cluster.node(1).socket();
        let hello = scene.hello("ann", 0);
        let mut flow = scene.cluster.node(1).flow(&mut caller, &hello).0;
        for client in &mut clients[10..] {
            join(&mut scene, client);
            let ready = std::mem::take(&mut scene.cluster.node(1).shards[0].core.effects.ready);
            if ready.contains(&caller.link.id) {
                flow = scene.cluster.node(1).flow(&mut caller, &hello).0;
            }
        }
        scene.cluster.live(100);
        if flow == Flow::Wait {
            scene.cluster.send(1, &mut caller, &hello);
        }
        scene.cluster.live(2_000);
        let events = scene.events(1, &caller);
        let versions: Vec<u64> = events.iter().map(|event| event["version"].as_u64().unwrap_or(0)).collect();
        let first = versions[0];
        assert_eq!(versions, (first..first + 60).collect::<Vec<_>>(), "slow {slow}");
        drop(other);
    }
}

/// Ann joins on the first node, whose commits take `ms`.
fn begin_slow_join(scene: &mut MigrationFixture, ms: u64) {
    scene.cluster.set_work_fate(move |node, work| {
        let slow = node == "one" && matches!(work, Work::Commit(_));
        WorkFault { before_ms: if slow { ms } else { 0 }, ..WorkFault::NONE }
    });
    let mut ann = scene.ann.clone();
    let join = r#"{"op":"join","channel":"game#A"}"#;
    assert_eq!(scene.cluster.node(0).flow(&mut ann, join).0, Flow::Wait);
}

#[test]
fn session_moves_after_its_undecided_join_is_committed() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    begin_slow_join(&mut scene, 1_000);
    let ann = scene.resume(1, 0);
    scene.cluster.heal();
    let events = |scene: &mut MigrationFixture| -> Vec<Value> {
        scene.events(2, &watcher).iter().map(|event| event["event"].clone()).collect()
    };
    scene.cluster.live(20_000);
    assert_eq!(events(&mut scene), ["user_online", "client_online"]);
    scene.cluster.node(1).detach(&ann);
    scene.cluster.live(20_000);
    assert_eq!(events(&mut scene), ["client_offline", "user_offline"], "the new node reports the loss");
}

#[test]
fn session_with_a_pending_join_does_not_migrate() {
    let mut scene = MigrationFixture::new();
    begin_slow_join(&mut scene, 30_000);
    assert_eq!(scene.connect(1, 0).1["resumed"], false);
    assert_eq!(scene.owners(), [0]);
}

#[test]
fn session_with_an_undecided_join_is_usable_again_when_the_new_node_dies() {
    let mut scene = MigrationFixture::new();
    begin_slow_join(&mut scene, 30_000);
    let mut caller = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
    scene.cluster.live(100);
    scene.cluster.crash(1);
    assert_eq!(scene.owners(), [0usize; 0], "frozen");
    scene.cluster.live(5_000);
    assert_eq!(scene.owners(), [0]);
}

#[test]
fn watcher_that_knows_more_than_its_new_node_gets_a_gap_instead_of_a_difference() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    let (mut cid, _) = scene.cluster.client(2, "cid");
    scene.cluster.send(2, &mut cid, r#"{"op":"join","channel":"game#A"}"#);
    let stale = watch(&mut scene.cluster, 1);
    // The second node misses the changes made on the third.
    hide_changes_from_the_second_node(&mut scene);
    let (mut bob, _) = scene.cluster.client(2, "bob");
    scene.cluster.send(2, &mut bob, r#"{"op":"join","channel":"game#A"}"#);
    scene.cluster.send(2, &mut bob, r#"{"op":"leave","channel":"game#A"}"#);
    scene.cluster.settle();
    assert_eq!(scene.events(0, &ann).len(), 6, "cid came, bob came and went");
    let ann = scene.resume(1, 6);
    // Bob's changes cancel out for the second node, but not for ann, who has received a part of them.
    scene.cluster.send(2, &mut bob, r#"{"op":"join","channel":"game#A"}"#);
    let now = scene.cluster.node(1).now;
    scene.cluster.node(1).shards[0].handle(now, ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.live(2_000);
    assert_eq!(scene.events(1, &stale)[0]["event"], "presence");
    assert_eq!(scene.events(1, &ann), [json!({"seq": 7, "event": "gap", "channel": "game#A"})]);
}

#[test]
fn watcher_that_reads_the_members_again_on_a_node_that_knows_less_gets_the_changes_again() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    let watch_game = r#"{"op":"subscribe","channel":"game#A","presence":true}"#;
    scene.cluster.send(0, &mut ann, watch_game);
    let stale = watch(&mut scene.cluster, 1);
    hide_changes_from_the_second_node(&mut scene);
    let (mut bob, _) = scene.cluster.client(2, "bob");
    scene.cluster.send(2, &mut bob, r#"{"op":"join","channel":"game#A"}"#);
    scene.cluster.settle();
    assert_eq!(scene.events(0, &ann).len(), 2, "bob and bob's client");
    let mut ann = scene.resume(1, 2);
    let reply = scene.cluster.send(1, &mut ann, watch_game);
    assert_eq!(reply["ok"]["members"]["count"], 0, "the second node does not know of bob: {reply}");
    let now = scene.cluster.node(1).now;
    scene.cluster.node(1).shards[0].handle(now, ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.live(2_000);
    let (told, received) = (scene.events(1, &stale).len(), scene.events(1, &ann).len());
    assert!(told > 0 && received == told, "{told} events for others, {received} for ann");
}

#[test]
fn watcher_that_passes_through_a_node_that_knows_less_gets_no_change_twice() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    let _stale = watch(&mut scene.cluster, 1);
    hide_changes_from_the_second_node(&mut scene);
    let (mut bob, _) = scene.cluster.client(2, "bob");
    scene.cluster.send(2, &mut bob, r#"{"op":"join","channel":"game#A"}"#);
    scene.cluster.settle();
    assert_eq!(scene.events(0, &ann).len(), 2, "bob and bob's client");
    scene.resume(1, 2);
    let ann = scene.resume(2, 2);
    scene.cluster.live(2_000);
    assert_eq!(scene.events(2, &ann), [Value::Null; 0]);
}

#[test]
fn client_that_was_lost_on_a_node_that_never_announced_it_is_shown_offline() {
    let mut scene = MigrationFixture::new();
    let watcher = watch(&mut scene.cluster, 2);
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"join","channel":"game#A"}"#);
    assert_eq!(scene.events(2, &watcher).len(), 2, "ann is online");
    // The second node can take the session, but not store that its client is there.
    scene.cluster.set_work_fate(|node, work| {
        let presence = |row: &Row| matches!(row, Row::Presence(_));
        let fails = matches!(work, Work::Commit(commit) if commit.puts.iter().any(presence));
        let outcome = if node == "two" && fails { WorkOutcome::FailBefore } else { WorkOutcome::Perform };
        WorkFault { outcome, ..WorkFault::NONE }
    });
    let ann = scene.resume(1, 0);
    scene.cluster.node(1).detach(&ann);
    scene.cluster.live(2_010);
    // It stops, and the session returns to the first node before that one checks.
    let now = scene.cluster.node(1).now;
    scene.cluster.node(1).shards[0].drain(now, &["one".into()], 15_000);
    scene.cluster.live(400);
    assert_eq!(scene.owners(), [0]);
    assert_eq!(scene.events(2, &watcher), [Value::Null; 0]);
    scene.cluster.live(5_000);
    let events = scene.events(2, &watcher);
    assert_eq!(events.first().map(|event| &event["event"]), Some(&json!("client_offline")), "{events:?}");
}

#[test]
fn session_that_moves_while_its_user_follows_another_gets_their_status() {
    let mut scene = MigrationFixture::new();
    let (mut tab, _) = scene.cluster.client(0, "ann");
    let _bob = scene.cluster.client(2, "bob");
    scene.cluster.set_work_fate(|_, work| {
        let session = |row: &Row| matches!(row, Row::Session(_));
        let slow = matches!(work, Work::Commit(commit) if commit.puts.iter().any(session));
        WorkFault { before_ms: if slow { 50 } else { 0 }, ..WorkFault::NONE }
    });
    let mut caller = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
    scene.cluster.live(20);
    assert_eq!(scene.owners(), [0usize; 0], "it is on its way");
    scene.cluster.send(0, &mut tab, r#"{"op":"follow","user":"bob"}"#);
    scene.cluster.send(1, &mut caller, &hello);
    scene.cluster.live(100);
    let received = scene.events(1, &caller);
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!((&received[0]["event"], &received[0]["status"]["online"]), (&json!("status"), &json!(true)));
}

#[test]
fn session_that_moves_before_it_got_the_status_of_a_new_followee_gets_it_on_the_new_node() {
    let mut scene = MigrationFixture::new();
    let _bob = scene.cluster.client(2, "bob");
    let mut ann = scene.ann.clone();
    // The followee is known here already, whether they follow back is not.
    let (mut tab, _) = scene.cluster.client(0, "cid");
    scene.cluster.send(0, &mut tab, r#"{"op":"follow","user":"bob"}"#);
    scene.cluster.set_work_fate(|node, work| {
        let slow = node == "one" && matches!(work, Work::Read(Read::People { .. }));
        WorkFault { before_ms: if slow { 500 } else { 0 }, ..WorkFault::NONE }
    });
    scene.cluster.send(0, &mut ann, r#"{"op":"follow","user":"bob"}"#);
    let ann = scene.resume(1, 0);
    scene.cluster.live(100);
    let received = scene.events(1, &ann);
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!((&received[0]["event"], &received[0]["status"]["online"]), (&json!("status"), &json!(true)));
}

#[test]
fn session_that_moves_before_it_got_its_statuses_gets_all_of_them_on_the_new_node() {
    let mut scene = MigrationFixture::new();
    let _bob = scene.cluster.client(2, "bob");
    let (mut tab, _) = scene.cluster.client(2, "dan");
    for whom in ["bob", "cid"] {
        scene.cluster.send(2, &mut tab, &format!(r#"{{"op":"follow","user":"{whom}"}}"#));
    }
    // Bob is known on the first node, because ann follows bob. Cid is not, and is read slowly.
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"follow","user":"bob"}"#);
    scene.cluster.set_work_fate(|node, work| {
        let cid = |users: &Vec<Arc<str>>| users.iter().any(|user| &**user == "cid");
        let slow = node == "one" && matches!(work, Work::Read(Read::People { users, .. }) if cid(users));
        WorkFault { before_ms: if slow { 5_000 } else { 0 }, ..WorkFault::NONE }
    });
    let mut dan = scene.cluster.node(0).socket();
    let hello = scene.cluster.send(0, &mut dan, r#"{"op":"hello","token":"dan","status":true}"#);
    scene.session = hello["ok"]["session"].as_str().unwrap().to_owned();
    scene.cluster.live(100);
    assert_eq!(scene.events(0, &dan), [Value::Null; 0], "it waits for cid");
    let mut moved = scene.cluster.node(1).socket();
    let resume = scene.hello("dan", 0);
    let hello = scene.cluster.send(1, &mut moved, &resume);
    assert_eq!(hello["ok"]["resumed"], true);
    scene.cluster.live(100);
    let received = scene.events(1, &moved);
    let status = |event: &Value| (event["user"].clone(), event["status"]["online"].clone());
    let received: Vec<(Value, Value)> = received.iter().map(status).collect();
    assert_eq!(received, [(json!("bob"), json!(true)), (json!("cid"), json!(false))]);
}

#[test]
fn watcher_who_waits_for_the_same_channel_as_a_session_that_does_not_come_is_answered() {
    let mut scene = MigrationFixture::new();
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
    let (mut bob, _) = scene.cluster.client(1, "bob");
    scene.cluster.set_work_fate(|node, work| {
        let slow = node == "two" && matches!(work, Work::Read(Read::Roster { .. }));
        WorkFault { before_ms: if slow { 7_000 } else { 0 }, ..WorkFault::NONE }
    });
    let mut caller = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
    scene.cluster.live(10);
    // The channel is read for the session, whose node dies before it is read.
    scene.cluster.crash(0);
    let watch = r#"{"op":"subscribe","channel":"game#A","presence":true}"#;
    assert_eq!(scene.cluster.node(1).flow(&mut bob, watch).0, Flow::Wait);
    scene.cluster.live(7_500);
    let ready = std::mem::take(&mut scene.cluster.node(1).shards[0].core.effects.ready);
    assert!(ready.contains(&bob.link.id), "it can run again");
    assert!(scene.cluster.send(1, &mut bob, watch)["ok"]["members"].is_object());
}
