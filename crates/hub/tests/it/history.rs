//! Channel history across nodes: order, recovery, holes on the bus, duplicates, mailboxes that overflow.

use crate::harness::code;
use crate::harness::history::{Scene, TTL_MS, numbers, settings};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tavern_hub::{Caller, Flow, LivenessTask, ShardEvent};
use tavern_store::memory::{WorkFault, WorkOutcome};
use tavern_store::{Read, Work};

#[test]
fn publish_is_answered_with_its_place_when_it_is_stored() {
    let mut scene = Scene::new(1);
    let first = scene.publish(0, 1);
    let epoch = first["ok"]["epoch"].as_u64().unwrap();
    assert_eq!((first["ok"]["offset"].as_u64(), first["ok"]["receivers"].as_u64()), (Some(1), Some(0)));
    let second = scene.publish(0, 2);
    assert_eq!((second["ok"]["offset"].as_u64(), second["ok"]["epoch"].as_u64()), (Some(2), Some(epoch)));
    let plain = scene.command(0, r#"{"op":"publish","channel":"game#1","data":1}"#);
    assert_eq!(plain["ok"].to_string(), r#"{"receivers":0}"#, "a channel without history");
}

#[test]
fn failed_store_refuses_the_publisher_and_nothing_is_delivered() {
    let mut scene = Scene::new(1);
    let (caller, _) = scene.subscriber(0, "ann", "");
    scene.cluster.set_work_fate(|_, work| match work {
        Work::Commit(commit) if !commit.history.is_empty() => {
            WorkFault { outcome: WorkOutcome::FailBefore, ..WorkFault::NONE }
        }
        _ => WorkFault::NONE,
    });
    assert_eq!(code(&scene.publish(0, 1)), "unavailable");
    assert_eq!(scene.received(0, &caller), Vec::<String>::new());
    scene.cluster.heal();
    assert_eq!(code(&scene.publish(0, 2)), "ok");
    assert_eq!(scene.received(0, &caller), ["2"]);
}

#[test]
fn message_whose_answer_was_lost_is_delivered_from_the_store() {
    let mut scene = Scene::new(1);
    let (caller, _) = scene.subscriber(0, "ann", "");
    scene.cluster.set_work_fate(|_, work| match work {
        Work::Commit(commit) if !commit.history.is_empty() => {
            WorkFault { outcome: WorkOutcome::FailAfter, ..WorkFault::NONE }
        }
        _ => WorkFault::NONE,
    });
    assert_eq!(code(&scene.publish(0, 1)), "unavailable");
    scene.cluster.heal();
    scene.cluster.live(1_000);
    assert_eq!(scene.received(0, &caller), ["1"]);
}

#[test]
fn subscribers_on_every_node_get_the_same_order() {
    let mut scene = Scene::new(2);
    let (ann, _) = scene.subscriber(0, "ann", "");
    let (bob, _) = scene.subscriber(1, "bob", "");
    // Messages from one node are late and overtaken on the other.
    let mut n = 0;
    scene.cluster.set_fate(move |from, _, _| {
        n += 1;
        vec![if from == "one" && n % 2 == 0 { 7 } else { 0 }]
    });
    for n in 1..=20 {
        scene.publish((n % 2) as usize, n);
        scene.cluster.pass(1);
    }
    scene.cluster.live(100);
    assert_eq!(scene.received(0, &ann), numbers(1..=20));
    assert_eq!(scene.received(1, &bob), numbers(1..=20));
}

#[test]
fn messages_lost_on_the_bus_are_read_from_the_store() {
    let mut scene = Scene::new(2);
    let (bob, _) = scene.subscriber(1, "bob", "");
    let mut n = 0;
    scene.cluster.set_fate(move |_, _, _| {
        n += 1;
        if n % 3 == 2 { Vec::new() } else { vec![0, 0] }
    });
    for n in 1..=30 {
        scene.publish(0, n);
    }
    scene.cluster.live(100);
    let received = scene.received(1, &bob);
    assert_eq!(received, numbers(1..=received.len() as u64), "no hole, no duplicate");
    assert!(received.len() >= 29);
    // The last one is noticed when the node compares with the store.
    scene.cluster.node(1).handle(ShardEvent::Liveness(LivenessTask::Compare));
    scene.cluster.settle();
    let rest = scene.received(1, &bob);
    assert_eq!([received, rest].concat(), numbers(1..=30));
}

#[test]
fn last_messages_come_first() {
    let mut scene = Scene::new(2);
    for n in 1..=5 {
        scene.publish(0, n);
    }
    let (bob, reply) = scene.subscriber(1, "bob", r#","last":3"#);
    assert_eq!(reply["ok"]["offset"].as_u64(), Some(2), "messages after this position follow");
    assert!(reply["ok"].get("recovered").is_none());
    scene.publish(0, 6);
    assert_eq!(scene.received(1, &bob), numbers(3..=6));
    let (cid, reply) = scene.subscriber(1, "cid", r#","last":1000"#);
    assert_eq!(reply["ok"]["offset"].as_u64(), Some(0));
    assert_eq!(scene.received(1, &cid), numbers(1..=6));
    let (dan, _) = scene.subscriber(1, "dan", r#","last":0"#);
    assert_eq!(scene.received(1, &dan), Vec::<String>::new());
    let (eve, _) = scene.subscriber(0, "eve", r#","last":5"#);
    assert_eq!(scene.received(0, &eve), numbers(2..=6));
}

#[test]
fn recovery_continues_without_hole_or_duplicate() {
    let mut scene = Scene::new(2);
    let first = scene.publish(0, 1);
    let epoch = first["ok"]["epoch"].as_u64().unwrap();
    for n in 2..=9 {
        scene.publish(0, n);
    }
    let since = format!(r#","since":{{"epoch":{epoch},"offset":4}}"#);
    let (mut bob, reply) = scene.subscriber(1, "bob", &since);
    assert_eq!(reply["ok"]["recovered"], Value::Bool(true));
    assert_eq!(reply["ok"]["offset"].as_u64(), Some(4));
    scene.publish(0, 10);
    assert_eq!(scene.received(1, &bob), numbers(5..=10));
    // It has everything: nothing follows.
    let since = format!(r#","since":{{"epoch":{epoch},"offset":10}}"#);
    assert_eq!(scene.subscribe(1, &mut bob, &since)["ok"]["recovered"], Value::Bool(true));
    assert_eq!(scene.received(1, &bob), Vec::<String>::new());
    for (epoch, offset) in [(epoch, 11), (epoch + 1, 3), (epoch - 1, 3)] {
        let since = format!(r#","since":{{"epoch":{epoch},"offset":{offset}}}"#);
        let reply = scene.subscribe(1, &mut bob, &since);
        assert_eq!(reply["ok"]["recovered"], Value::Bool(false), "{since}");
        assert_eq!(reply["ok"]["offset"].as_u64(), Some(10));
        assert_eq!(scene.received(1, &bob), Vec::<String>::new());
    }
}

#[test]
fn live_messages_wait_until_a_subscriber_has_recovered() {
    let mut scene = Scene::new(2);
    for n in 1..=4 {
        scene.publish(0, n);
    }
    // Reads of the history take a while; messages are published meanwhile.
    scene.cluster.set_work_fate(|_, work| match work {
        Work::Read(Read::History { .. }) => WorkFault { before_ms: 5, after_ms: 20, ..WorkFault::NONE },
        _ => WorkFault::NONE,
    });
    let mut bob = scene.cluster.client(1, "bob").0;
    let frame = r#"{"op":"subscribe","channel":"chat#1","last":3}"#;
    assert_eq!(scene.cluster.node(1).flow(&mut bob, frame).0, Flow::Wait);
    scene.cluster.settle();
    let node = scene.cluster.node(1);
    assert_eq!(node.run(0, &mut bob, frame).0, Flow::Wait);
    for n in 5..=9 {
        scene.publish(0, n);
        scene.cluster.pass(4);
    }
    let reply = scene.cluster.send(1, &mut bob, frame);
    assert!(reply["ok"]["offset"].as_u64().is_some(), "{reply}");
    scene.cluster.live(60);
    let received = scene.received(1, &bob);
    assert_eq!(received.last().map(String::as_str), Some("9"));
    let first: u64 = received[0].parse().unwrap();
    assert_eq!(received, numbers(first..=9));
    assert_eq!(first, reply["ok"]["offset"].as_u64().unwrap() + 1);
}

#[test]
fn what_is_not_stored_any_more_is_not_recovered() {
    let mut scene = Scene::with(1, &settings(3));
    let epoch = scene.publish(0, 1)["ok"]["epoch"].as_u64().unwrap();
    for n in 2..=6 {
        scene.publish(0, n);
    }
    let since = |offset: u64| format!(r#","since":{{"epoch":{epoch},"offset":{offset}}}"#);
    let (ann, reply) = scene.subscriber(0, "ann", &since(2));
    assert_eq!((&reply["ok"]["recovered"], reply["ok"]["offset"].as_u64()), (&Value::Bool(false), Some(6)));
    let (bob, reply) = scene.subscriber(0, "bob", &since(3));
    assert_eq!(reply["ok"]["recovered"], Value::Bool(true));
    scene.publish(0, 7);
    assert_eq!((scene.received(0, &ann), scene.received(0, &bob)), (numbers(7..=7), numbers(4..=7)));
    let (cid, reply) = scene.subscriber(0, "cid", r#","last":50"#);
    assert_eq!((reply["ok"]["offset"].as_u64(), scene.received(0, &cid)), (Some(4), numbers(5..=7)));
}

#[test]
fn expired_messages_are_not_shown() {
    let mut scene = Scene::new(1);
    let epoch = scene.publish(0, 1)["ok"]["epoch"].as_u64().unwrap();
    scene.cluster.pass(TTL_MS - 1_000);
    scene.publish(0, 2);
    scene.cluster.pass(2_000);
    let (ann, reply) = scene.subscriber(0, "ann", r#","last":10"#);
    assert_eq!((reply["ok"]["offset"].as_u64(), scene.received(0, &ann)), (Some(1), numbers(2..=2)));
    let since = format!(r#","since":{{"epoch":{epoch},"offset":0}}"#);
    let (_, reply) = scene.subscriber(0, "bob", &since);
    assert_eq!(reply["ok"]["recovered"], Value::Bool(false));
    let page = scene.command(0, r#"{"op":"history","channel":"chat#1"}"#);
    assert_eq!(page["ok"]["messages"].as_array().unwrap().len(), 1);
}

#[test]
fn history_is_read_in_pages() {
    let mut scene = Scene::new(1);
    for n in 1..=7 {
        scene.publish(0, n);
    }
    for (fields, expected, more) in [
        ("", vec![1, 2, 3, 4, 5, 6, 7], false),
        (r#","limit":3"#, vec![5, 6, 7], true),
        (r#","before":5,"limit":2"#, vec![3, 4], true),
        (r#","after":5"#, vec![6, 7], false),
        (r#","after":0,"limit":2"#, vec![1, 2], true),
        (r#","after":7"#, vec![], false),
    ] {
        let page = scene.command(0, &format!(r#"{{"op":"history","channel":"chat#1"{fields}}}"#));
        let messages = page["ok"]["messages"].as_array().unwrap();
        let offsets: Vec<u64> = messages.iter().map(|message| message["offset"].as_u64().unwrap()).collect();
        assert_eq!((offsets, page["ok"]["more"].as_bool()), (expected, Some(more)), "{fields}");
        assert_eq!(page["ok"]["offset"].as_u64(), Some(7));
        assert!(messages.iter().all(|message| message["from"]["user"] == "pub0"));
    }
    assert_eq!(code(&scene.command(0, r#"{"op":"history","channel":"game#1"}"#)), "not_found");
}

#[test]
fn reading_history_needs_a_right() {
    let mut scene = Scene::new(1);
    let mut try_with = |token: &str, channel: &str| {
        let mut caller = scene.cluster.client(0, token).0;
        let history = format!(r#"{{"op":"history","channel":"{channel}"}}"#);
        let last = format!(r#"{{"op":"subscribe","channel":"{channel}","last":1}}"#);
        let subscribe = format!(r#"{{"op":"subscribe","channel":"{channel}"}}"#);
        [history, last, subscribe].map(|frame| code(&scene.cluster.send(0, &mut caller, &frame)).to_owned())
    };
    assert_eq!(try_with("ann:vault#*=subscribe", "vault#1"), ["not_allowed", "not_allowed", "ok"]);
    assert_eq!(try_with("ann:vault#*=subscribe,history", "vault#1"), ["ok", "ok", "ok"]);
    assert_eq!(try_with("ann:vault#*=history", "vault#1"), ["ok", "not_allowed", "not_allowed"]);
    assert_eq!(try_with("ann:none=subscribe", "chat#1"), ["ok", "ok", "ok"]);
}

#[test]
fn message_id_is_published_once() {
    let mut scene = Scene::new(2);
    let (ann, _) = scene.subscriber(0, "ann", "");
    let frame = r#"{"op":"publish","channel":"chat#1","data":1,"message_id":"m-1"}"#;
    let first = scene.command(0, frame);
    assert!(first["ok"].get("duplicate").is_none());
    let mut elsewhere = scene.cluster.client(1, "pub0").0;
    let again = scene.cluster.send(1, &mut elsewhere, frame);
    assert_eq!(again["ok"]["duplicate"], Value::Bool(true));
    assert_eq!(again["ok"]["offset"], first["ok"]["offset"]);
    scene.cluster.settle();
    assert_eq!(scene.received(0, &ann), ["1"]);
    let page = scene.command(0, r#"{"op":"history","channel":"chat#1"}"#);
    assert_eq!(page["ok"]["messages"][0]["message_id"], "m-1", "{page}");
    let bad = scene.command(0, r#"{"op":"publish","channel":"chat#1","data":1,"message_id":""}"#);
    assert_eq!(code(&bad), "bad_request");
}

#[test]
fn message_ids_of_different_authors_do_not_meet() {
    let mut scene = Scene::new(1);
    let publish = |scene: &mut Scene, token: &str, data: u64| {
        let mut caller = scene.cluster.client(0, token).0;
        let frame = format!(r#"{{"op":"publish","channel":"chat#1","data":{data},"message_id":"m-1"}}"#);
        let reply = scene.cluster.send(0, &mut caller, &frame);
        assert_eq!(code(&reply), "ok", "{reply}");
        reply["ok"]["duplicate"] == true
    };
    assert!(!publish(&mut scene, "ann", 1));
    assert!(!publish(&mut scene, "bob", 2), "of another user");
    assert!(!publish(&mut scene, "nobody", 3), "of a client without a user");
    assert!(!publish(&mut scene, "nobody", 4), "of another one");
    assert!(publish(&mut scene, "ann", 5), "in another session of the same user");
    for (number, key) in [(7, Some("k1")), (8, Some("k2")), (9, Some("k1"))] {
        let order = tavern_hub::ServiceCommand::Publish {
            channel: "chat#1".into(),
            data: b"6"[..].into(),
            key: key.map(Into::into),
            message_id: Some("m-1".into()),
        };
        scene.cluster.node(0).handle(ShardEvent::Service { number, order });
        scene.cluster.live(5);
        let replies = std::mem::take(&mut scene.cluster.node(0).shards[0].core.effects.service_replies);
        let [(_, Ok(reply))] = &replies[..] else { panic!("{replies:?}") };
        let duplicate = String::from_utf8_lossy(reply).contains("\"duplicate\":true");
        assert_eq!(duplicate, number == 9, "{key:?}");
    }
}

#[test]
fn full_mailbox_is_healed_from_the_history() {
    let mut scene = Scene::new(1);
    let (ann, _) = scene.subscriber(0, "ann", "");
    for n in 1..=90 {
        scene.publish(0, n);
    }
    assert_eq!(scene.received(0, &ann), numbers(1..=90), "no gap, no hole, no duplicate");
    scene.publish(0, 91);
    assert_eq!(scene.received(0, &ann), ["91"]);
}

#[test]
fn other_events_of_a_full_mailbox_become_a_gap() {
    let mut scene = Scene::new(1);
    let (mut ann, _) = scene.subscriber(0, "ann", "");
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#1"}"#);
    for n in 1..=30 {
        scene.publish(0, n);
        scene.command(0, r#"{"op":"publish","channel":"game#1","data":1}"#);
    }
    let mut data = Vec::new();
    let mut gaps = 0;
    loop {
        let events = scene.cluster.node(0).events(&ann);
        scene.cluster.pass(1);
        if events.is_empty() {
            break;
        }
        for event in events {
            gaps += u64::from(event["event"] == "gap");
            if event["channel"] == "chat#1" {
                data.push(event["data"].to_string());
            }
        }
    }
    assert_eq!((data, gaps), (numbers(1..=30), 1));
}

#[test]
fn trimmed_history_of_a_slow_reader_is_a_gap() {
    let mut scene = Scene::with(1, &settings(30));
    let (ann, _) = scene.subscriber(0, "ann", "");
    // More than is kept for those who recover.
    for n in 1..=1_200 {
        scene.publish(0, n);
    }
    let received = scene.received(0, &ann);
    let at = received.iter().position(|event| event == "gap").unwrap();
    assert_eq!(received[..at], numbers(1..=at as u64));
    let next: u64 = received[at + 1].parse().unwrap();
    assert!(next > at as u64 + 1);
    assert_eq!(received[at + 1..], numbers(next..=1_200), "one gap");
}

#[test]
fn many_who_recover_read_the_store_once() {
    let mut scene = Scene::new(1);
    for n in 1..=50 {
        scene.publish(0, n);
    }
    let before = scene.cluster.reads();
    let callers: Vec<Caller> = (0..100).map(|n| scene.cluster.client(0, &format!("u{n}")).0).collect();
    let opening = scene.cluster.reads() - before;
    let before = scene.cluster.reads();
    let mut first = callers;
    const LAST: &str = r#"{"op":"subscribe","channel":"chat#1","last":10}"#;
    // They ask at once: first for the channel on the bus, then for its messages.
    for _ in 0..2 {
        for caller in &mut first {
            assert_eq!(scene.cluster.node(0).run(0, caller, LAST).0, Flow::Wait);
        }
        scene.cluster.settle();
    }
    for caller in &mut first {
        assert!(scene.cluster.send(0, caller, LAST)["ok"].is_object());
    }
    let read = scene.cluster.reads() - before;
    assert!(read <= 2, "{read} reads, {opening} to open the sessions");
    for caller in &first {
        assert_eq!(scene.received(0, caller), numbers(41..=50));
    }
}

#[test]
fn client_that_subscribed_before_the_first_message_recovers_all_of_them() {
    let mut scene = Scene::new(2);
    let (_, reply) = scene.subscriber(0, "ann", "");
    assert_eq!((&reply["ok"]["epoch"], &reply["ok"]["offset"]), (&Value::from(0), &Value::from(0)));
    for n in 1..=3 {
        scene.publish(0, n);
    }
    for at in [0, 1] {
        let (bob, reply) = scene.subscriber(at, "bob", r#","since":{"epoch":0,"offset":0}"#);
        assert_eq!(reply["ok"]["recovered"], Value::Bool(true), "node {at}");
        assert_eq!(scene.received(at, &bob), numbers(1..=3));
    }
}

/// Each commit is a write to every subscriber.
#[test]
fn what_is_published_in_one_turn_is_one_commit() {
    let mut scene = Scene::new(1);
    let (reader, _) = scene.subscriber(0, "reader", "");
    let mut publishers: Vec<Caller> =
        (0..3).map(|n| scene.cluster.client(0, &format!("publisher{n}")).0).collect();
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = commits.clone();
    scene.cluster.set_work_fate(move |_, work| {
        if let Work::Commit(commit) = work
            && !commit.history.is_empty()
        {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        WorkFault::NONE
    });
    for (n, publisher) in publishers.iter_mut().enumerate() {
        let frame = format!(r#"{{"op":"publish","channel":"chat#1","data":{}}}"#, n + 1);
        assert_eq!(scene.cluster.node(0).run(0, publisher, &frame).0, Flow::Wait);
    }
    scene.cluster.live(5);
    assert_eq!(scene.received(0, &reader), numbers(1..=3));
    assert_eq!(commits.load(Ordering::Relaxed), 1);
}
