//! Channels: delivery, rights, the app's authorize hook, messages between shards.

use crate::harness::{TestNode, code, frames};
use tavern_domain::Verb;
use tavern_hub::*;

fn node() -> TestNode {
    TestNode::new(Settings { commands_per_second: 0, ..Settings::default() })
}

#[test]
fn session_that_matches_twice_gets_one_event_and_redis_two() {
    let mut node = node();
    let (mut ann, _) = node.client("ann");
    node.send(&mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
    node.send(&mut ann, r#"{"op":"subscribe","pattern":"game#*"}"#);
    node.send(&mut ann, r#"{"op":"subscribe","pattern":"*"}"#);
    let redis = tavern_hub::core::redis::open(
        &mut node.shards[0].core,
        Link { id: LinkId(99), format: EventFormat::Resp2 },
    );
    node.shards[0].core.subscribe(redis, Namespace::Channel, b"game#A");
    node.shards[0].core.subscribe(redis, Namespace::Pattern, b"game#*");
    assert_eq!(node.publish("game#A", "hi"), 5, "receivers are subscriptions");
    assert_eq!(node.event_numbers(&ann), [1]);
    let mut scratch = Scratch::default();
    scratch.fill(&mut node.shards[0].core, redis, LinkId(99), usize::MAX);
    let text = String::from_utf8(scratch.bytes.clone()).unwrap();
    let expected = "*3\r\n$7\r\nmessage\r\n$6\r\ngame#A\r\n$2\r\nhi\r\n\
                    *4\r\n$8\r\npmessage\r\n$6\r\ngame#*\r\n$6\r\ngame#A\r\n$2\r\nhi\r\n";
    assert_eq!(text, expected);
}

#[test]
fn names_outside_the_grammar_are_for_redis_only() {
    let mut node = node();
    let (mut ann, _) = node.client("ann");
    node.send(&mut ann, r#"{"op":"subscribe","pattern":"*"}"#);
    node.publish("News Sport", "hi");
    assert!(node.events(&ann).is_empty());
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"subscribe","channel":"News Sport"}"#)), "bad_request");
}

#[test]
fn data_is_delivered_byte_for_byte() {
    let mut node = node();
    let (mut ann, hello) = node.client("ann");
    node.send(&mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
    let data = r#"{ "n" : 1.50e3, "t":"\u00fc" }"#;
    let reply =
        node.send(&mut ann, &format!(r#"{{"id":"x","op":"publish","channel":"game#A","data":{data}}}"#));
    assert_eq!(reply, serde_json::json!({"id": "x", "ok": {"receivers": 1}}));
    let mut scratch = Scratch::default();
    scratch.fill(&mut node.shards[0].core, ann.listener.unwrap(), ann.link.id, usize::MAX);
    let text = String::from_utf8_lossy(&scratch.bytes).into_owned();
    assert!(
        text.contains(&format!(r#"{{"seq":1,"event":"message","channel":"game#A","data":{data},"from":{{"#))
    );
    let event = &frames(&scratch.bytes)[0];
    assert_eq!(event["from"], serde_json::json!({"user": "ann", "client": hello["client"]}));
}

#[test]
fn every_verb_needs_its_right() {
    let mut node = node();
    let (mut ann, _) = node.client("ann:game#*=subscribe");
    let (mut bob, _) = node.client("bob:game#*=publish");
    for (frame, ann_may, bob_may) in [
        (r#"{"op":"subscribe","channel":"game#A"}"#, true, false),
        (r#"{"op":"subscribe","pattern":"game#A*"}"#, true, false),
        (r#"{"op":"subscribe","pattern":"gam*"}"#, false, false),
        (r#"{"op":"subscribe","channel":"lobby"}"#, false, false),
        (r#"{"op":"publish","channel":"game#A","data":1}"#, false, true),
        (r#"{"op":"publish","channel":"lobby","data":1}"#, false, false),
    ] {
        for (caller, may) in [(&mut ann, ann_may), (&mut bob, bob_may)] {
            let expected = if may { "ok" } else { "not_allowed" };
            assert_eq!(code(&node.send(caller, frame)), expected, "{frame}");
        }
    }
}

#[test]
fn publishing_to_reserved_kinds_is_refused() {
    let mut node = node();
    let (mut ann, _) = node.client("ann");
    for channel in ["user#ann", "party#1", "tavern", "tavern#x"] {
        let reply = node.send(&mut ann, &format!(r#"{{"op":"publish","channel":"{channel}","data":1}}"#));
        assert_eq!(code(&reply), "not_allowed", "{channel}");
    }
}

#[test]
fn subscriptions_are_idempotent_and_bounded() {
    let mut node = TestNode::new(Settings { channels_per_session: 2, ..Settings::default() });
    let (mut ann, _) = node.client("ann");
    for channel in ["a", "a", "b", "b"] {
        let reply = node.send(&mut ann, &format!(r#"{{"op":"subscribe","channel":"{channel}"}}"#));
        assert_eq!(code(&reply), "ok");
    }
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"subscribe","channel":"c"}"#)), "too_large");
    assert_eq!(node.publish("a", "1"), 1);
    for _ in 0..2 {
        assert_eq!(code(&node.send(&mut ann, r#"{"op":"unsubscribe","channel":"a"}"#)), "ok");
    }
    assert_eq!(node.publish("a", "1"), 0);
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"subscribe","channel":"c"}"#)), "ok");
}

#[test]
fn too_large_message_is_refused() {
    let mut node = TestNode::new(Settings { message_bytes: 10, ..Settings::default() });
    let (mut ann, _) = node.client("ann");
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"publish","channel":"a","data":"12345678"}"#)), "ok");
    assert_eq!(
        code(&node.send(&mut ann, r#"{"op":"publish","channel":"a","data":"123456789"}"#)),
        "too_large"
    );
}

#[test]
fn authorize_hook_may_substitute_a_channel() {
    let rules = AuthorizeRules { cache_ms: 5_000 };
    let mut node = TestNode::new(Settings { authorize: Some(rules), ..Settings::default() });
    let (mut ann, _) = node.client("ann:none=subscribe");
    let frame = r#"{"id":1,"op":"subscribe","channel":"game#G"}"#;
    let (flow, reply) = node.flow(&mut ann, frame);
    assert_eq!((flow, reply.is_null()), (Flow::Wait, true));
    assert_eq!(node.flow(&mut ann, frame).0, Flow::Wait, "asked once, waited for twice");
    let questions = std::mem::take(&mut node.shards[0].core.effects.authorize_queries);
    assert_eq!(questions.len(), 1);
    assert_eq!((questions[0].user.as_deref(), questions[0].verb), (Some("ann"), Verb::Subscribe));
    tavern_hub::core::authorize::answer(
        &mut node.shards[0].core,
        questions[0].clone(),
        AuthorizeAnswer::Instead("gametv#G".into()),
    );
    assert!(node.shards[0].core.effects.ready.contains(&ann.link.id));
    assert_eq!(node.send(&mut ann, frame)["ok"]["channel"], "gametv#G");
    assert_eq!(node.publish("game#G", "1"), 0);
    assert_eq!(node.publish("gametv#G", "1"), 1);
    node.pass(5_000);
    assert_eq!(node.flow(&mut ann, frame).0, Flow::Wait, "the answer has aged");
}

#[test]
fn messages_reach_listeners_of_the_other_shard_in_order() {
    let mut node = TestNode::new(Settings { shards: 2, ..Settings::default() });
    let mut ann = node.socket();
    for frame in [r#"{"op":"hello","token":"ann"}"#, r#"{"op":"subscribe","channel":"game#A"}"#] {
        assert_ne!(node.flow_on(1, &mut ann, frame).0, Flow::Wait);
    }
    for n in 0..3 {
        assert_eq!(node.publish("game#A", &n.to_string()), 1);
    }
    assert_eq!(node.publish("game#B", "x"), 0);
    let messages = std::mem::take(&mut node.shards[0].core.effects.shard_messages[1]);
    assert_eq!(messages.len(), 3, "only messages with a listener there");
    for message in messages {
        node.shards[1].handle(node.now, ShardEvent::Message(message));
    }
    let mut scratch = Scratch::default();
    scratch.fill(&mut node.shards[1].core, ann.listener.unwrap(), ann.link.id, usize::MAX);
    let data: Vec<u64> = frames(&scratch.bytes).iter().map(|event| event["data"].as_u64().unwrap()).collect();
    assert_eq!(data, [0, 1, 2]);
}

#[test]
fn redis_connection_that_never_reads_is_closed() {
    let mut node = TestNode::new(Settings { redis_pending_bytes: 5_000, ..Settings::default() });
    let redis = tavern_hub::core::redis::open(
        &mut node.shards[0].core,
        Link { id: LinkId(9), format: EventFormat::Resp3 },
    );
    node.shards[0].core.subscribe(redis, Namespace::Channel, b"a");
    for _ in 0..100 {
        node.publish("a", "0123456789");
    }
    assert_eq!(node.closes(), [(LinkId(9), CloseReason::SlowReader)]);
}

/// A gateway whose frames are the numbers in messages: an odd one is not for `ann`, and a text is not a frame.
fn number_frame(tail: &[u8]) -> Option<GatewayFrame> {
    let text = std::str::from_utf8(tail).unwrap();
    let number: u64 = text.split_once(r#""data":"#)?.1.trim_end_matches('}').parse().ok()?;
    let except = (!number.is_multiple_of(2)).then(|| "ann".into());
    Some(GatewayFrame { bytes: format!("[{number}]").into_bytes().into(), except })
}

#[test]
fn frames_of_a_gateway_are_filled_until_one_is_for_its_task() {
    let mut node = node();
    let (mut ann, _) = node.client("ann");
    node.send(&mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
    for payload in ["1", "2", "3", "4", r#""text""#, "6"] {
        node.publish("game#A", payload);
    }
    let (id, link) = (ann.listener.unwrap(), ann.link.id);
    let mut scratch = Scratch::default();
    let mut fill = |node: &mut TestNode, to, name, room| {
        let filled = scratch.fill_frames(&mut node.shards[0].core, (id, to), room, (number_frame, name));
        (String::from_utf8_lossy(&scratch.bytes).into_owned(), filled)
    };
    let found = |last, more, rest| FilledFrames { last, more, rest };
    // A connection that is not attached any more gets nothing.
    assert_eq!(fill(&mut node, LinkId(99), "ann", 100), (String::new(), FilledFrames::default()));
    assert_eq!(fill(&mut node, link, "bob", 100), ("[1][2][3][4]".into(), found(4, false, true)));
    assert_eq!(fill(&mut node, link, "bob", 4), ("[1][2]".into(), found(2, true, false)));
    assert_eq!(fill(&mut node, link, "ann", 100), ("[2][4]".into(), found(4, false, true)));
    scratch.settle_frames(&mut node.shards[0].core, id, 4);
    // The task gets what is left.
    assert_eq!(node.event_numbers(&ann), [5, 6]);
}

#[test]
fn a_gap_is_for_the_task_of_a_gateway() {
    let mut node =
        TestNode::new(Settings { mailbox_events: 2, commands_per_second: 0, ..Settings::default() });
    let (mut ann, _) = node.client("ann");
    node.send(&mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
    for payload in ["2", "4", "6"] {
        node.publish("game#A", payload);
    }
    let target = (ann.listener.unwrap(), ann.link.id);
    let mut scratch = Scratch::default();
    let filled = scratch.fill_frames(&mut node.shards[0].core, target, 100, (number_frame, "bob"));
    assert_eq!((filled.last, filled.rest, scratch.bytes.is_empty()), (0, true, true));
}
