//! Sessions that move between nodes, in virtual time. Must hold: no event is lost or delivered twice; whatever message is
//! lost, repeated or late and whichever node dies, at most one node has the session.

use crate::harness::cluster::TestCluster;
use crate::harness::migration::{MigrationFixture, data, step_name};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tavern_domain::Time;
use tavern_hub::*;
use tavern_store::{CloseProof, Commit, DocumentKey, Found, NodeChange, Read, Writer};

#[test]
fn session_moves_to_the_node_where_its_client_resumes() {
    let mut scene = MigrationFixture::new();
    scene.publish(2, "game#A", "1");
    scene.cluster.settle();
    assert_eq!(data(&scene.events(0, &scene.ann.clone())), ["1"]);
    scene.publish(1, "chat#x", "2");
    scene.cluster.settle();
    let ann = scene.resume(1, 1);
    assert_eq!(scene.cluster.node(0).closes(), [(scene.ann.link.id, CloseReason::Superseded)]);
    assert_eq!(data(&scene.events(1, &ann)), ["2"], "unread events move with the session");
    for at in [0, 1, 2] {
        scene.publish(at, "game#A", "3");
        scene.publish(at, "chat#y", "4");
    }
    scene.cluster.settle();
    let received = scene.events(1, &ann);
    assert_eq!(data(&received).len(), 6, "from every node, once");
    assert_eq!(received.last().unwrap()["seq"], 8, "seq continues");
    assert_eq!(scene.owners(), [1]);
    assert_eq!(scene.cluster.node(0).shards[0].core.listener_count(), 0);
}

#[test]
fn first_session_secret_resumes_on_every_node() {
    let mut scene = MigrationFixture::new();
    let old = scene.session.clone();
    for at in [1, 1, 0, 2, 0] {
        let (_, hello) = scene.connect(at, 0);
        assert_eq!(hello["resumed"], true);
        assert_eq!(hello["node"], ["one", "two", "three"][at]);
        let text = hello["session"].as_str().unwrap();
        assert!(text.ends_with(["~one", "~two", "~three"][at]), "{text}");
        assert_eq!(scene.owners(), [at]);
    }
    assert!(old.ends_with("~one"));
}

#[test]
fn lookup_by_another_user_or_with_a_wrong_secret_changes_nothing() {
    let mut scene = MigrationFixture::new();
    let mut eve = scene.cluster.node(1).socket();
    let reply = scene.cluster.send(1, &mut eve, &scene.hello("eve", 0));
    assert_eq!((&reply["ok"]["resumed"], &reply["ok"]["user"]), (&json!(false), &json!("eve")));
    let wrong = scene.session.replacen(&scene.session[1..5], "bcdf", 1);
    let right = std::mem::replace(&mut scene.session, wrong);
    let (_, hello) = scene.connect(1, 0);
    assert_eq!(hello["resumed"], false, "a wrong secret");
    scene.session = right;
    assert!(scene.cluster.node(0).closes().is_empty());
    scene.publish(1, "game#A", "1");
    scene.cluster.settle();
    assert_eq!(data(&scene.events(0, &scene.ann.clone())), ["1"]);
    assert_eq!(scene.owners(), [0]);
}

#[test]
fn unknown_session_is_denied_when_its_node_has_answered_or_after_a_second() {
    let mut scene = MigrationFixture::new();
    scene.session = scene.session.replacen(&scene.session[1..5], "bcdf", 1);
    let before = scene.cluster.node(1).now;
    scene.cluster.crash(2);
    assert_eq!(scene.connect(1, 0).1["resumed"], false);
    assert_eq!(scene.cluster.node(1).now, before);
    scene.cluster.crash(0);
    assert_eq!(scene.connect(1, 0).1["resumed"], false);
    let waited = scene.cluster.node(1).now.since(before);
    assert!((1_000..1_300).contains(&waited), "{waited}");
}

#[test]
fn session_of_a_node_that_ended_is_denied_at_once() {
    let mut scene = MigrationFixture::new();
    let node = scene.cluster.node(0).shards[0].core.node().clone();
    let node = Writer::new(&node.settings.node, node.epoch());
    scene.cluster.crash(0);
    let close = NodeChange::Close { node, proof: CloseProof::ProcessGone };
    scene.cluster.write(Commit { node: Some(close), ..Commit::default() });
    scene.cluster.node(1).shards[0].core.node().set_other_nodes(vec!["three".into()]);
    let before = scene.cluster.node(1).now;
    assert_eq!(scene.connect(1, 0).1["resumed"], false);
    assert_eq!(scene.cluster.node(1).now, before);
}

#[test]
fn session_of_a_node_that_is_not_known_yet_is_asked_for() {
    let mut scene = MigrationFixture::new();
    scene.cluster.node(1).shards[0].core.node().set_other_nodes(vec!["three".into()]);
    scene.resume(1, 0);
    assert_eq!(scene.owners(), [1]);
}

/// The steps of all migration messages while a client resumes on the last of so many nodes, and the reads of the store. Its session
/// had moved from the first node to the second since the client's hello.
fn cost_of_a_resume(nodes: usize, first_is_gone: bool) -> (Vec<&'static str>, u64) {
    let mut scene = MigrationFixture::on(TestCluster::of(nodes));
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].drain(now, &["two".into()], 60_000);
    scene.cluster.live(10_000);
    assert_eq!(scene.owners(), [1]);
    if first_is_gone {
        scene.cluster.crash(0);
        let others = (1..nodes - 1).map(|at| ["one", "two", "three"][at].into()).collect();
        scene.cluster.node(nodes - 1).shards[0].core.node().set_other_nodes(others);
    }
    let steps: Arc<Mutex<Vec<&str>>> = Arc::default();
    let seen = steps.clone();
    scene.cluster.set_fate(move |_, _, packet| {
        seen.lock().unwrap().extend(Some(step_name(packet)).filter(|step| !step.is_empty()));
        vec![0]
    });
    let before = scene.cluster.reads();
    scene.resume(nodes - 1, 0);
    let reads = scene.cluster.reads() - before;
    let steps = steps.lock().unwrap().clone();
    (steps, reads)
}

#[test]
fn resume_costs_the_same_on_any_number_of_nodes() {
    let steps = ["ask", "here", "give", "given", "taken"];
    for first_is_gone in [true, false] {
        let (few, many) = (cost_of_a_resume(3, first_is_gone), cost_of_a_resume(4, first_is_gone));
        assert_eq!(few, many);
        let expected = if first_is_gone { steps.to_vec() } else { [&["ask", "no"][..], &steps].concat() };
        assert_eq!(few.0, expected);
    }
}

#[test]
fn a_polling_client_keeps_its_forward() {
    let mut scene = MigrationFixture::new();
    scene.resume(1, 0);
    let key = read_session(&scene.session).unwrap().0;
    let forward = |scene: &MigrationFixture| {
        let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 10 };
        let Found::Deadlines(page) = scene.cluster.stored(read) else { panic!() };
        page.rows.into_iter().find(|deadline| &*deadline.kind == "moved").expect("a forward")
    };
    let first = forward(&scene);
    scene.cluster.live(400_000);
    // A request that names the first node finds the session here.
    let lookup = SessionLookup { key, node: "one", identity: None, detached_only: false };
    let now = scene.cluster.node(1).now;
    assert_eq!(scene.cluster.node(1).shards[0].look_up(now, &lookup, LinkId(77)), LookupResult::Here);
    scene.cluster.live(1);
    let renewed = forward(&scene);
    assert!(renewed.due > first.due + 300_000, "{first:?} {renewed:?} {now:?}");
    // It is deleted when it is due, by one of the nodes, and not by the earlier deadline.
    for deadline in [first, forward(&scene)] {
        for at in [0, 1, 2] {
            let (now, deadline) = (scene.cluster.node(at).now, deadline.clone());
            let task = ShardEvent::Liveness(LivenessTask::Overdue(deadline.clone()));
            scene.cluster.node(at).shards[0].core.node().set_deletion_lag(Some(0));
            scene.cluster.node(at).shards[0].handle(now.max(deadline.due), task);
        }
        scene.cluster.live(1);
    }
    let name = format!("{:016x}", key.half());
    let Found::Document(left) = scene.cluster.stored(Read::Document(DocumentKey::new("moved", &name))) else {
        panic!()
    };
    assert!(left.is_none());
}

#[test]
fn unanswered_lookup_opens_a_new_session_after_a_second() {
    let mut scene = MigrationFixture::new();
    scene.cluster.set_fate(|_, _, packet| if step_name(packet) == "ask" { vec![] } else { vec![0] });
    let before = scene.cluster.node(1).now;
    let (_, hello) = scene.connect(1, 0);
    assert_eq!(hello["resumed"], false);
    let waited = scene.cluster.node(1).now.since(before);
    assert!((1_000..1_300).contains(&waited), "{waited}");
    assert_eq!(scene.owners(), [0]);
    assert!(scene.cluster.node(0).closes().is_empty());
    scene.cluster.heal();
    scene.resume(2, 0);
    assert_eq!(scene.owners(), [2]);
}

#[test]
fn every_message_may_be_lost_once_repeated_or_late() {
    for lost in ["ask", "here", "give", "given", "taken"] {
        for (kind, copies) in
            [("lost", vec![]), ("twice", vec![0, 0]), ("late", vec![120]), ("again", vec![0, 400])]
        {
            let mut scene = MigrationFixture::new();
            scene.publish(2, "game#A", "1");
            scene.cluster.settle();
            let mut first = true;
            let fate = copies.clone();
            scene.cluster.set_fate(move |_, _, packet| {
                let hit = step_name(packet) == lost && std::mem::take(&mut first);
                if hit { fate.clone() } else { vec![0] }
            });
            let ann = scene.resume(1, 0);
            scene.publish(0, "game#A", "2");
            scene.cluster.settle();
            assert_eq!(data(&scene.events(1, &ann)), ["1", "2"], "{lost} {kind}");
            scene.cluster.live(6_000);
            assert_eq!(scene.owners(), [1], "{lost} {kind}");
            assert_eq!(scene.cluster.node(0).shards[0].core.listener_count(), 0, "{lost} {kind}");
        }
    }
}

#[test]
fn session_stays_on_one_node_when_a_message_never_arrives() {
    for lost in ["here", "give", "given", "taken"] {
        let mut scene = MigrationFixture::new();
        scene.cluster.set_fate(move |_, _, packet| if step_name(packet) == lost { vec![] } else { vec![0] });
        let (_, hello) = scene.connect(1, 0);
        assert_eq!(hello["resumed"], lost == "taken", "{lost}");
        scene.cluster.live(8_000);
        scene.cluster.heal();
        assert_eq!(scene.owners(), [usize::from(lost == "taken")], "{lost}");
        scene.resume(2, 0);
        scene.cluster.live(8_000);
        assert_eq!(scene.owners(), [2], "{lost}");
    }
}

#[test]
fn two_nodes_that_ask_at_once_get_the_session_one_after_the_other() {
    let mut scene = MigrationFixture::new();
    scene.publish(0, "game#A", "1");
    let hello = scene.hello("ann", 0);
    let mut callers = [1, 2].map(|at| (at, scene.cluster.node(at).socket()));
    for (at, caller) in &mut callers {
        assert_eq!(scene.cluster.node(*at).flow(caller, &hello).0, Flow::Wait);
    }
    let mut resumed = 0;
    for _ in 0..3_000 {
        scene.cluster.pass(1);
        for (at, caller) in &mut callers {
            let ready = std::mem::take(&mut scene.cluster.node(*at).shards[0].core.effects.ready);
            if ready.contains(&caller.link.id) {
                let (flow, reply) = scene.cluster.node(*at).flow(caller, &hello);
                if flow != Flow::Wait {
                    resumed += usize::from(reply["ok"]["resumed"] == true);
                }
            }
        }
        assert!(scene.owners().len() <= 1);
    }
    assert_eq!(resumed, 2, "the second node took it from the first");
    assert_eq!(scene.owners().len(), 1);
}

#[test]
fn client_that_returns_to_the_old_node_during_the_move_keeps_its_session() {
    let mut scene = MigrationFixture::new();
    scene.cluster.set_fate(|_, _, packet| if step_name(packet) == "give" { vec![] } else { vec![0] });
    let mut away = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(1).flow(&mut away, &hello).0, Flow::Wait);
    scene.cluster.settle();
    assert_eq!(scene.owners(), [0usize; 0], "frozen");
    scene.resume(0, 0);
    scene.cluster.heal();
    scene.cluster.live(8_000);
    assert_eq!(scene.owners(), [0]);
    let ready = std::mem::take(&mut scene.cluster.node(1).shards[0].core.effects.ready);
    assert_eq!(ready, [away.link.id]);
    assert_eq!(scene.cluster.send(1, &mut away, &hello)["ok"]["resumed"], false);
}

#[test]
fn old_node_may_die_at_any_step() {
    for dies in ["here", "give", "given", "taken"] {
        let mut scene = MigrationFixture::new();
        scene.publish(0, "game#A", "1");
        scene.cluster.settle();
        // From this message on everything to and from the old node is lost.
        let mut gone = false;
        scene.cluster.set_fate(move |from, to, packet| {
            gone |= step_name(packet) == dies;
            if gone && (from == "one" || to == "one") { vec![] } else { vec![0] }
        });
        let (_, hello) = scene.connect(1, 0);
        assert_eq!(hello["resumed"], dies == "taken", "{dies}");
        scene.cluster.crash(0);
        scene.cluster.live(8_000);
        let owners: Vec<usize> = scene.owners().into_iter().filter(|at| *at != 0).collect();
        assert_eq!(owners, if dies == "taken" { vec![1] } else { vec![] }, "{dies}");
        let listeners = scene.cluster.node(1).shards[0].core.listener_count();
        assert_eq!(listeners, 1, "{dies}: only the new session");
    }
}

#[test]
fn new_node_may_die_at_any_step() {
    for dies in ["ask", "here", "give", "given", "taken"] {
        let mut scene = MigrationFixture::new();
        let mut gone = false;
        scene.cluster.set_fate(move |from, to, packet| {
            gone |= step_name(packet) == dies;
            if gone && (from == "two" || to == "two") { vec![] } else { vec![0] }
        });
        let mut caller = scene.cluster.node(1).socket();
        let hello = scene.hello("ann", 0);
        assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
        scene.cluster.settle();
        scene.cluster.crash(1);
        scene.cluster.live(8_000);
        let owners: Vec<usize> = scene.owners().into_iter().filter(|at| *at != 1).collect();
        assert_eq!(owners, if dies == "taken" { vec![] } else { vec![0] }, "{dies}");
    }
}

#[test]
fn messages_published_during_the_move_arrive_once_and_in_publish_order() {
    // Each pair of nodes has its own delay, so that each connection is the slow one in some run.
    for seed in 0..60u64 {
        let mut scene = MigrationFixture::new();
        if seed % 2 == 0 {
            // The new node receives these channels already, for another session.
            let (mut bob, _) = scene.cluster.client(1, "bob");
            scene.cluster.send(1, &mut bob, r#"{"op":"subscribe","channel":"game#A"}"#);
            scene.cluster.send(1, &mut bob, r#"{"op":"subscribe","pattern":"chat#*"}"#);
        }
        let delay = move |from: &str, to: &str| {
            let sum = from
                .bytes()
                .chain(to.bytes())
                .fold(seed, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
            (sum.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 12
        };
        // No delay towards the old node: it can only store what it has received.
        scene.cluster.set_fate(move |from, to, _| vec![if to == "one" { 0 } else { delay(from, to) }]);
        let mut published = 0;
        let mut publish = |scene: &mut MigrationFixture| {
            for at in [0, 1, 2] {
                scene.publish(at, ["game#A", "chat#x"][published % 2], &format!("[{at},{published}]"));
            }
            published += 1;
        };
        let mut caller = scene.cluster.node(1).socket();
        let hello = scene.hello("ann", 0);
        let mut done = Value::Null;
        for turn in 0..400 {
            if turn < 200 {
                publish(&mut scene);
            }
            if turn == 20 {
                // The client has read and acknowledged a part.
                let old = scene.ann.clone();
                let received = scene.events(0, &old);
                let seq = received.last().unwrap()["seq"].as_u64().unwrap();
                scene.cluster.send(0, &mut old.clone(), &format!(r#"{{"op":"ack","seq":{seq}}}"#));
                let hello = hello.replace("\"seq\":0", &format!("\"seq\":{seq}"));
                assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
                check_order(&received, &mut [None; 3]);
                done = json!({"hello": hello, "received": received});
            }
            scene.cluster.pass(1);
            let ready = std::mem::take(&mut scene.cluster.node(1).shards[0].core.effects.ready);
            if ready.contains(&caller.link.id) {
                let hello = done["hello"].as_str().unwrap().to_owned();
                let reply = scene.cluster.send(1, &mut caller, &hello);
                assert_eq!(reply["ok"]["resumed"], true, "seed {seed}: {reply}");
            }
        }
        let mut last = [None; 3];
        check_order(done["received"].as_array().unwrap(), &mut last);
        let rest = scene.events(1, &caller);
        check_order(&rest, &mut last);
        assert_eq!(last, [Some(199); 3], "seed {seed}: up to the last message");
    }
}

/// The messages of each publisher without gaps and duplicates.
fn check_order(events: &[Value], last: &mut [Option<u64>; 3]) {
    for event in events {
        let (at, n) = (event["data"][0].as_u64().unwrap() as usize, event["data"][1].as_u64().unwrap());
        assert_eq!(n, last[at].map_or(0, |last| last + 1), "{event}");
        last[at] = Some(n);
    }
}

#[test]
fn large_mailbox_moves_completely() {
    let mut scene = MigrationFixture::new();
    let payload = format!("\"{}\"", "x".repeat(800));
    for _ in 0..1_000 {
        scene.publish(2, "game#A", &payload);
    }
    scene.cluster.settle();
    let ann = scene.resume(1, 0);
    assert_eq!(scene.events(1, &ann).len(), 1_000);
}

#[test]
fn mailbox_that_overflows_during_the_move_has_a_gap() {
    let mut scene = MigrationFixture::new();
    scene.publish(2, "game#A", "0");
    scene.cluster.settle();
    scene
        .cluster
        .set_fate(|_, to, packet| vec![if step_name(packet) == "given" && to == "two" { 500 } else { 0 }]);
    let mut caller = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    assert_eq!(scene.cluster.node(1).flow(&mut caller, &hello).0, Flow::Wait);
    scene.cluster.settle();
    for n in 1..=1_100 {
        scene.publish(2, "game#A", &n.to_string());
    }
    scene.cluster.settle();
    let reply = scene.cluster.send(1, &mut caller, &hello);
    assert_eq!(reply["ok"]["resumed"], true);
    let received = scene.events(1, &caller);
    assert_eq!(received[0], json!({"seq": 77, "event": "gap", "from": 1, "to": 77}));
    assert_eq!((received.len(), &received[1024]["data"]), (1 + 1_024, &json!(1_100)));
}

#[test]
fn poll_moves_a_session_and_a_single_command_does_not_take_it_from_its_socket() {
    let mut scene = MigrationFixture::new();
    let (key, node) = read_session(&scene.session).unwrap();
    let node = node.to_owned();
    let detached = SessionLookup { key, node: &node, identity: None, detached_only: true };
    let look_up = |scene: &mut MigrationFixture, lookup: &SessionLookup<'_>, link| {
        let now = scene.cluster.node(1).now;
        assert_eq!(scene.cluster.node(1).shards[0].look_up(now, lookup, link), LookupResult::Wait);
        scene.cluster.live(20);
        assert_eq!(scene.cluster.node(1).shards[0].core.effects.ready.pop(), Some(link));
        scene.cluster.node(1).shards[0].look_up(now, lookup, link)
    };
    assert_eq!(look_up(&mut scene, &detached, LinkId(901)), LookupResult::AttachedTo("one".into()));
    assert_eq!(scene.owners(), [0]);
    let poll = SessionLookup { detached_only: false, ..detached };
    assert_eq!(look_up(&mut scene, &poll, LinkId(902)), LookupResult::Here);
    assert_eq!(scene.owners(), [1]);
}

/// A poll that was on its way when its session ended would begin a new session, and the user would be online again.
#[test]
fn every_node_knows_that_a_session_ended_with_bye() {
    let mut scene = MigrationFixture::new();
    let (key, node) = read_session(&scene.session).unwrap();
    let node = node.to_owned();
    let mut ann = scene.ann.clone();
    scene.cluster.send(0, &mut ann, r#"{"op":"bye"}"#);
    let lookup = SessionLookup { key, node: &node, identity: None, detached_only: false };
    let now = scene.cluster.node(0).now;
    let here = scene.cluster.node(0).shards[0].look_up(now, &lookup, LinkId(900));
    assert_eq!(here, LookupResult::Ended);
    assert_eq!(scene.cluster.node(1).shards[0].look_up(now, &lookup, LinkId(901)), LookupResult::Wait);
    scene.cluster.live(20);
    assert_eq!(scene.cluster.node(1).shards[0].core.effects.ready.pop(), Some(LinkId(901)));
    let elsewhere = scene.cluster.node(1).shards[0].look_up(now, &lookup, LinkId(901));
    assert_eq!(elsewhere, LookupResult::Ended);
}

/// Its client is elsewhere by now: the session must not be taken away from there.
#[test]
fn lookup_ends_when_its_connection_is_closed() {
    let mut scene = MigrationFixture::new();
    let (key, node) = read_session(&scene.session).unwrap();
    let node = node.to_owned();
    let lookup = SessionLookup { key, node: &node, identity: None, detached_only: false };
    let now = scene.cluster.node(1).now;
    assert_eq!(scene.cluster.node(1).shards[0].look_up(now, &lookup, LinkId(901)), LookupResult::Wait);
    scene.cluster.node(1).shards[0].release_link(LinkId(901));
    assert_eq!(scene.cluster.node(1).shards[0].in_transit(), 0);
    scene.cluster.live(2_000);
    assert_eq!(scene.owners(), [0]);
}

/// Another shard of the new node saw no listener here, and its message is not on the bus yet.
#[test]
fn message_that_another_shard_was_publishing_when_the_session_arrived_is_delivered() {
    let settings = Settings { shards: 2, ..Settings::default() };
    let mut scene = MigrationFixture::on(TestCluster::with(Some(0), None, &settings));
    let now = scene.cluster.node(1).now;
    scene.cluster.node(1).shards[1].core.publish(now, Namespace::Channel, b"game#A", b"\"late\"", true, None);
    let mut caller = scene.cluster.node(1).socket();
    let hello = scene.hello("ann", 0);
    let (flow, _) = scene.cluster.node(1).flow(&mut caller, &hello);
    assert_eq!(flow, Flow::Wait);
    scene.cluster.live(100);
    assert!(scene.cluster.node(1).shards[0].core.effects.ready.is_empty(), "not before it is on the bus");
    assert!(scene.cluster.node(1).shards[1].core.end_publishing());
    scene.cluster.live(100);
    assert_eq!(scene.cluster.send(1, &mut caller, &hello)["ok"]["resumed"], true);
    assert_eq!(data(&scene.events(1, &caller)), ["\"late\""]);
}
