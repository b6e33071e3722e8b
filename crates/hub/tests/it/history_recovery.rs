//! Recovering the history of a channel: what was sent and not received, sessions that move, nodes that are behind, clients that
//! subscribe again, retained messages.

use crate::harness::history::{Scene, numbers, settings};
use crate::harness::{TestNode, code};
use serde_json::{Value, json};
use tavern_hub::{Caller, Flow, LinkId, ListenerId, Poll, PollFlags, read_session};

fn since(position: &Value) -> String {
    format!(r#","since":{{"epoch":{},"offset":{}}}"#, position["epoch"], position["offset"])
}

/// A connection that resumes a session, and the reply.
fn resume(scene: &mut Scene, at: usize, user: &str, session: &str, seq: u64) -> (Caller, Value) {
    let mut caller = scene.cluster.node(at).socket();
    let hello = format!(r#"{{"op":"hello","token":"{user}","session":"{session}","seq":{seq}}}"#);
    let reply = scene.cluster.send(at, &mut caller, &hello);
    (caller, reply["ok"].clone())
}

fn subscriber(scene: &mut Scene, at: usize, user: &str) -> (Caller, String) {
    let (mut caller, hello) = scene.cluster.client(at, user);
    scene.subscribe(at, &mut caller, "");
    (caller, hello["session"].as_str().unwrap().to_owned())
}

#[test]
fn messages_that_were_sent_and_not_received_are_recovered() {
    let mut scene = Scene::new(1);
    let (ann, session) = subscriber(&mut scene, 0, "ann");
    for n in 1..=60 {
        scene.publish(0, n);
        // Everything is written; the network loses it after the fifth.
        scene.cluster.node(0).events(&ann);
        scene.cluster.pass(1);
    }
    let (ann, hello) = resume(&mut scene, 0, "ann", &session, 5);
    assert_eq!((&hello["resumed"], hello.get("reset")), (&json!(true), None));
    assert_eq!(scene.received(0, &ann), numbers(6..=60), "no gap, although the mailbox holds 20 events");
}

#[test]
fn other_events_that_were_dropped_are_a_gap_and_messages_are_recovered() {
    let mut scene = Scene::new(1);
    let (mut ann, session) = subscriber(&mut scene, 0, "ann");
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#1"}"#);
    for n in 1..=40 {
        scene.publish(0, n);
        if n == 3 {
            scene.command(0, r#"{"op":"publish","channel":"game#1","data":1}"#);
        }
        scene.cluster.node(0).events(&ann);
        scene.cluster.pass(1);
    }
    let (ann, _) = resume(&mut scene, 0, "ann", &session, 1);
    let received = scene.received(0, &ann);
    assert_eq!(received[0], "gap");
    assert_eq!(received[1..], numbers(2..=40));
}

fn render(node: &mut TestNode, id: ListenerId, link: LinkId, body: &mut Vec<u8>) -> bool {
    node.shards[0].render_poll(node.now, id, link, PollFlags::default(), body)
}

#[test]
fn what_a_poll_was_given_keeps_its_numbers() {
    let mut scene = Scene::new(1);
    let (ann, session) = subscriber(&mut scene, 0, "ann");
    let key = read_session(&session).unwrap().0;
    scene.cluster.node(0).detach(&ann);
    for n in 1..=8 {
        scene.publish(0, n);
    }
    let poll = |scene: &mut Scene, cursor: u64| {
        scene.cluster.pass(1);
        let node = scene.cluster.node(0);
        let (now, link) = (node.now, LinkId(900 + cursor as u32));
        assert_eq!(node.shards[0].poll(now, key, None, link, Some(cursor), 0), Poll::Ready { reset: false });
        let id = node.shards[0].core.find_session(key).unwrap();
        let mut body = Vec::new();
        // It waits until the party of the user is read.
        while !render(scene.cluster.node(0), id, link, &mut body) {
            scene.cluster.settle();
        }
        let answer: Value = serde_json::from_slice(&body).unwrap();
        let events = answer["events"].as_array().unwrap();
        let data: Vec<String> = events.iter().map(|event| event["data"].to_string()).collect();
        (answer["cursor"].as_u64().unwrap(), data)
    };
    let (cursor, data) = poll(&mut scene, 0);
    assert_eq!((cursor, data), (8, numbers(1..=8)));
    // The mailbox overflows before the client says that it has these.
    for n in 9..=70 {
        scene.publish(0, n);
    }
    let (mut cursor, mut all) = (8, numbers(1..=8));
    while all.len() < 70 {
        let (next, data) = poll(&mut scene, cursor);
        assert!(next >= cursor && data.len() < 30, "{all:?}");
        cursor = next;
        all.extend(data);
    }
    assert_eq!(all, numbers(1..=70));
}

#[test]
fn session_that_moves_keeps_its_place() {
    let mut scene = Scene::new(2);
    let (ann, session) = subscriber(&mut scene, 0, "ann");
    for n in 1..=50 {
        scene.publish(1, n);
        scene.cluster.live(3);
        if n == 4 {
            assert_eq!(scene.received(0, &ann), numbers(1..=4));
        }
    }
    scene.cluster.node(0).detach(&ann);
    let (ann, hello) = resume(&mut scene, 1, "ann", &session, 4);
    assert_eq!(hello["resumed"], json!(true));
    scene.publish(0, 51);
    scene.cluster.live(100);
    assert_eq!(scene.received(1, &ann), numbers(5..=51));
}

#[test]
fn client_that_knows_more_than_its_node_recovers() {
    let mut scene = Scene::new(2);
    let (bob, _) = subscriber(&mut scene, 1, "bob");
    scene.publish(0, 1);
    scene.cluster.live(30);
    // Node 1 misses what follows, and does not know it.
    scene.cluster.set_fate(|_, _, _| Vec::new());
    let mut last = Value::Null;
    for n in 2..=9 {
        last = scene.publish(0, n)["ok"].clone();
    }
    let (ann, reply) = scene.subscriber(1, "ann", &since(&last));
    assert_eq!((&reply["ok"]["recovered"], &reply["ok"]["offset"]), (&json!(true), &json!(9)));
    scene.cluster.live(100);
    assert_eq!(scene.received(1, &ann), Vec::<String>::new(), "it has everything");
    assert_eq!(scene.received(1, &bob), numbers(1..=9), "the node has caught up");
    scene.cluster.heal();
    scene.publish(0, 10);
    scene.cluster.live(30);
    assert_eq!((scene.received(1, &ann), scene.received(1, &bob)), (numbers(10..=10), numbers(10..=10)));
    let ahead = json!({"epoch": last["epoch"], "offset": 11});
    let (_, reply) = scene.subscriber(1, "cid", &since(&ahead));
    assert_eq!(reply["ok"]["recovered"], json!(false), "the store does not have it");
}

#[test]
fn several_channels_recover_side_by_side() {
    let mut scene = Scene::new(1);
    for n in 1..=60 {
        scene.publish(0, n);
        scene.command(0, &format!(r#"{{"op":"publish","channel":"chat#2","data":{n}}}"#));
    }
    let mut ann = scene.cluster.client(0, "ann").0;
    scene.subscribe(0, &mut ann, r#","last":50"#);
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"chat#2","last":50}"#);
    assert_eq!(scene.received(0, &ann).len(), 100);
}

#[test]
fn subscribing_again_repeats_and_loses_nothing() {
    let mut scene = Scene::new(1);
    let (mut ann, _) = subscriber(&mut scene, 0, "ann");
    for n in 1..=60 {
        scene.publish(0, n);
    }
    let again = scene.subscribe(0, &mut ann, "");
    assert_eq!(again["ok"]["offset"], json!(0), "it has read nothing yet");
    assert_eq!(scene.received(0, &ann), numbers(1..=60));
    let position = scene.publish(0, 61)["ok"].clone();
    let before = json!({"epoch": position["epoch"], "offset": 59});
    scene.subscribe(0, &mut ann, &since(&before));
    assert_eq!(scene.received(0, &ann), numbers(60..=61), "what was unread comes once");
}

#[test]
fn messages_follow_the_answer_of_a_second_subscribe_that_comes_at_once() {
    let mut scene = Scene::new(1);
    (1..=3).for_each(|n| drop(scene.publish(0, n)));
    let mut ann = scene.cluster.client(0, "ann").0;
    let first = scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"chat#1","last":3}"#);
    let again = format!(r#"{{"op":"subscribe","channel":"chat#1"{}}}"#, since(&first["ok"]));
    assert_eq!(scene.cluster.node(0).run(0, &mut ann, &again).0, Flow::Wait, "the store is asked");
    let node = scene.cluster.node(0);
    node.shards[0].wake(node.now);
    scene.cluster.settle();
    assert!(scene.cluster.node(0).events(&ann).is_empty(), "it is not answered yet");
    let (_, reply) = scene.cluster.node(0).run(0, &mut ann, &again);
    assert_eq!(reply["ok"]["recovered"], json!(true), "{reply}");
    assert_eq!(scene.received(0, &ann), numbers(1..=3));
}

#[test]
fn short_memory_costs_no_message() {
    let mut settings = settings(100);
    settings.mailbox_total_bytes = 4_000;
    let mut scene = Scene::with(1, &settings);
    let readers: Vec<Caller> = (0..8).map(|n| subscriber(&mut scene, 0, &format!("u{n}")).0).collect();
    for n in 1..=80 {
        scene.publish(0, n);
    }
    for reader in &readers {
        assert_eq!(scene.received(0, reader), numbers(1..=80));
    }
}

#[test]
fn listener_by_pattern_does_not_spoil_the_position_of_a_subscriber() {
    let mut scene = Scene::new(1);
    let mut eve = scene.cluster.client(0, "eve").0;
    scene.cluster.send(0, &mut eve, r#"{"op":"subscribe","pattern":"chat#*"}"#);
    let first = scene.publish(0, 1)["ok"].clone();
    scene.cluster.send(0, &mut eve, r#"{"op":"unsubscribe","pattern":"chat#*"}"#);
    for n in 2..=5 {
        scene.publish(0, n);
    }
    let fourth = json!({"epoch": first["epoch"], "offset": 4});
    let (ann, reply) = scene.subscriber(0, "ann", &since(&fourth));
    assert_eq!(reply["ok"]["recovered"], json!(true));
    assert_eq!(scene.received(0, &ann), numbers(5..=5));
}

/// What a subscriber of `game#1` gets: data, and whether it has a place.
fn values(scene: &mut Scene, at: usize, caller: &Caller) -> Vec<(String, bool)> {
    let mut values = Vec::new();
    for _ in 0..3 {
        scene.cluster.live(30);
        let events = scene.cluster.node(at).events(caller);
        values.extend(events.iter().map(|event| (event["data"].to_string(), event.get("offset").is_some())));
    }
    values
}

#[test]
fn retained_message_is_the_first_of_a_newcomer() {
    let mut scene = Scene::new(2);
    let subscribe = r#"{"op":"subscribe","channel":"game#1","last":1}"#;
    let mut bob = scene.cluster.client(1, "bob").0;
    assert_eq!(scene.cluster.send(1, &mut bob, subscribe)["ok"], json!({}), "no position");
    scene.cluster.pass(1);
    for n in 1..=3 {
        let reply =
            scene.command(0, &format!(r#"{{"op":"publish","channel":"game#1","data":{n},"retain":true}}"#));
        assert!(reply["ok"].get("offset").is_none() && reply["ok"]["receivers"].is_u64(), "{reply}");
    }
    scene.command(0, r#"{"op":"publish","channel":"game#1","data":4}"#);
    let got = values(&mut scene, 1, &bob);
    assert_eq!(got.iter().map(|(data, _)| data.as_str()).collect::<Vec<_>>(), ["1", "2", "3", "4"]);
    assert!(got.iter().all(|(_, has_place)| !has_place), "{got:?}");
    let mut ann = scene.cluster.client(1, "ann").0;
    scene.cluster.send(1, &mut ann, subscribe);
    assert_eq!(values(&mut scene, 1, &ann), [("3".to_owned(), false)], "the last retained one");
    let mut eve = scene.cluster.client(0, "eve").0;
    scene.cluster.send(0, &mut eve, r#"{"op":"subscribe","channel":"game#1"}"#);
    assert_eq!(values(&mut scene, 0, &eve), [], "only for those who ask");
    let page = scene.command(0, r#"{"op":"history","channel":"game#1"}"#);
    assert_eq!(code(&page), "not_found");
    let since = r#"{"op":"subscribe","channel":"game#1","since":{"epoch":1,"offset":1}}"#;
    assert_eq!(code(&scene.command(0, since)), "not_found");
}

#[test]
fn retained_messages_keep_the_order_of_their_publisher() {
    let mut scene = Scene::new(1);
    let mut bob = scene.cluster.client(0, "bob").0;
    scene.cluster.send(0, &mut bob, r#"{"op":"subscribe","channel":"game#1"}"#);
    for n in 1..=6 {
        let retain = n % 2 == 0;
        scene.command(0, &format!(r#"{{"op":"publish","channel":"game#1","data":{n},"retain":{retain}}}"#));
    }
    let got = values(&mut scene, 0, &bob);
    assert_eq!(got.into_iter().map(|(data, _)| data).collect::<Vec<_>>(), numbers(1..=6));
}
