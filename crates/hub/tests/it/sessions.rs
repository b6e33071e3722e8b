//! Sessions by the protocol: hello, resume, supersede, bye, acknowledgement, gaps, polls, limits.

use crate::harness::{TestNode, code};
use tavern_hub::*;

fn node() -> TestNode {
    TestNode::new(Settings { commands_per_second: 0, ..Settings::default() })
}

const SUBSCRIBE: &str = r#"{"id":1,"op":"subscribe","channel":"game#A"}"#;

#[test]
fn commands_before_hello_are_refused() {
    let mut node = node();
    let mut caller = node.socket();
    for frame in [SUBSCRIBE, r#"{"op":"publish","channel":"a","data":1}"#, r#"{"op":"ack","seq":1}"#] {
        assert_eq!(code(&node.send(&mut caller, frame)), "unauthenticated");
    }
    assert_eq!(code(&node.send(&mut caller, r#"{"op":"hello","token":"bad"}"#)), "unauthenticated");
    assert_eq!(code(&node.send(&mut caller, r#"{"op":"hello"}"#)), "unauthenticated");
    assert_eq!(code(&node.send(&mut caller, r#"{"op":"ping"}"#)), "ok");
}

#[test]
fn hello_names_the_user_the_client_and_the_node() {
    let mut node = node();
    let (_, hello) = node.client("ann");
    assert_eq!(hello["user"], "ann");
    assert_eq!(hello["node"], "node");
    assert_eq!(hello["resumed"], false);
    assert_eq!(hello["seq"], 0);
    assert!(hello["party"].is_null());
    assert_eq!(hello["client"].as_str().unwrap().len(), 16);
    assert!(hello["session"].as_str().unwrap().ends_with("~node"));
}

#[test]
fn a_resumed_session_misses_nothing_and_keeps_its_client() {
    let mut node = node();
    let (mut first, hello) = node.client("ann");
    node.send(&mut first, SUBSCRIBE);
    node.publish("game#A", "1");
    assert_eq!(node.event_numbers(&first), [1]);
    node.detach(&first);
    node.publish("game#A", "2");
    node.publish("game#A", "3");
    node.pass(60_000);
    let mut second = node.socket();
    let session = hello["session"].as_str().unwrap();
    let again =
        node.send(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":1}}"#));
    assert_eq!(again["ok"]["resumed"], true);
    assert_eq!(again["ok"]["client"], hello["client"]);
    assert_eq!(again["ok"]["seq"], 3);
    assert_eq!(node.event_numbers(&second), [2, 3]);
}

#[test]
fn a_session_is_forgotten_after_its_window() {
    let mut node = node();
    let (mut first, hello) = node.client("ann");
    node.send(&mut first, SUBSCRIBE);
    node.detach(&first);
    node.pass(74_000);
    assert_eq!(node.shards[0].core.listener_count(), 1);
    node.pass(3_000);
    assert_eq!(node.shards[0].core.listener_count(), 0);
    assert_eq!(node.publish("game#A", "1"), 0);
    let session = hello["session"].as_str().unwrap();
    let mut second = node.socket();
    let again =
        node.send(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(again["ok"]["resumed"], false);
    assert_ne!(again["ok"]["client"], hello["client"]);
}

#[test]
fn another_user_cannot_resume_and_changes_nothing() {
    let mut node = node();
    let (mut ann, hello) = node.client("ann");
    node.send(&mut ann, SUBSCRIBE);
    let mut bob = node.socket();
    let session = hello["session"].as_str().unwrap();
    let reply = node.send(&mut bob, &format!(r#"{{"op":"hello","token":"bob","session":"{session}"}}"#));
    assert_eq!(reply["ok"]["resumed"], false);
    assert_eq!(reply["ok"]["user"], "bob");
    assert!(node.closes().is_empty(), "ann keeps her transport");
    node.publish("game#A", "1");
    assert_eq!(node.event_numbers(&ann), [1]);
}

#[test]
fn newer_connection_supersedes_the_older() {
    let mut node = node();
    let (mut first, hello) = node.client("ann");
    node.send(&mut first, SUBSCRIBE);
    let mut second = node.socket();
    let session = hello["session"].as_str().unwrap();
    node.send(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(node.closes(), [(first.link.id, CloseReason::Superseded)]);
    // Closing the older one later changes nothing for the newer.
    node.detach(&first);
    node.publish("game#A", "1");
    assert_eq!(node.shards[0].core.effects.dirty.len(), 1);
    assert_eq!(node.event_numbers(&second), [1]);
}

#[test]
fn connection_superseded_in_the_same_turn_gets_nothing() {
    let mut node = node();
    let (mut first, hello) = node.client("ann");
    node.send(&mut first, SUBSCRIBE);
    node.publish("game#A", "1");
    assert_eq!(node.event_numbers(&first), [1]);
    let mut second = node.socket();
    let session = hello["session"].as_str().unwrap();
    node.send(&mut second, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    // The older one is written to before it is closed: the newer one would never get those events.
    assert!(node.events(&first).is_empty());
    assert_eq!(node.event_numbers(&second), [1]);
}

#[test]
fn bye_ends_the_session_at_once() {
    let mut node = node();
    let (mut ann, hello) = node.client("ann");
    node.send(&mut ann, SUBSCRIBE);
    let (flow, reply) = node.flow(&mut ann, r#"{"id":9,"op":"bye"}"#);
    assert_eq!(flow, Flow::Close(CloseReason::Bye));
    assert_eq!(reply["id"], 9);
    assert_eq!(node.publish("game#A", "1"), 0);
    let mut again = node.socket();
    let session = hello["session"].as_str().unwrap();
    let reply = node.send(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}"}}"#));
    assert_eq!(reply["ok"]["resumed"], false);
}

#[test]
fn slow_reader_gets_a_gap_in_place_of_dropped_events() {
    let mut node = TestNode::new(Settings { mailbox_events: 4, ..Settings::default() });
    let (mut ann, _) = node.client("ann");
    node.send(&mut ann, SUBSCRIBE);
    for n in 1..=10 {
        node.publish("game#A", &n.to_string());
    }
    let events = node.events(&ann);
    assert_eq!(events[0]["event"], "gap");
    assert_eq!((&events[0]["seq"], &events[0]["from"], &events[0]["to"]), (&6.into(), &1.into(), &6.into()));
    let data: Vec<u64> = events[1..].iter().map(|event| event["data"].as_u64().unwrap()).collect();
    assert_eq!(data, [7, 8, 9, 10]);
}

fn node_that_closes_slow_readers() -> TestNode {
    let mut settings = Settings { mailbox_events: 4, ..Settings::default() };
    settings
        .kinds
        .insert("game".into(), KindRules { slow_reader: SlowReader::Close, ..KindRules::default() });
    TestNode::new(settings)
}

#[test]
fn slow_reader_is_closed_if_its_kind_is_configured_so() {
    let mut node = node_that_closes_slow_readers();
    let (mut ann, hello) = node.client("ann");
    node.send(&mut ann, SUBSCRIBE);
    for n in 1..=10 {
        node.publish("game#A", &n.to_string());
    }
    assert_eq!(node.closes(), [(ann.link.id, CloseReason::SlowReader)], "once");
    node.detach(&ann);
    let mut again = node.socket();
    let session = hello["session"].as_str().unwrap();
    let reply =
        node.send(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(reply["ok"]["resumed"], true, "the session may be resumed");
    assert_eq!(node.events(&again)[0]["event"], "gap");
}

#[test]
fn session_of_a_slow_reader_does_not_expire_before_its_connection_is_closed() {
    let mut node = node_that_closes_slow_readers();
    let (mut ann, hello) = node.client("ann");
    node.send(&mut ann, SUBSCRIBE);
    node.pass(200_000);
    for n in 1..=10 {
        node.publish("game#A", &n.to_string());
    }
    // Sessions are checked before the socket is closed.
    node.pass(5_000);
    node.detach(&ann);
    let mut again = node.socket();
    let session = hello["session"].as_str().unwrap();
    let reply =
        node.send(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(reply["ok"]["resumed"], true);
}

#[test]
fn acknowledged_events_are_freed_and_claims_beyond_what_was_sent_refused() {
    let mut node = node();
    let (mut ann, _) = node.client("ann");
    node.send(&mut ann, SUBSCRIBE);
    node.publish("game#A", "1");
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"ack","seq":1}"#)), "bad_request");
    node.events(&ann);
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"ack","seq":1}"#)), "ok");
    assert!(node.shards[0].core.listener(ann.listener.unwrap()).unwrap().mailbox.is_empty());
}

#[test]
fn sent_history_is_kept_for_a_while_only() {
    let mut node = node();
    let (mut ann, _) = node.client("ann");
    node.send(&mut ann, SUBSCRIBE);
    node.publish("game#A", "1");
    node.events(&ann);
    let kept = |node: &TestNode| node.shards[0].core.listener(ann.listener.unwrap()).unwrap().mailbox.len();
    node.pass(29_000);
    assert_eq!(kept(&node), 1);
    node.pass(3_000);
    assert_eq!(kept(&node), 0);
}

#[test]
fn all_mailboxes_together_stay_within_their_budget() {
    let budget = 200_000;
    let mut node = TestNode::new(Settings { mailbox_total_bytes: budget, ..Settings::default() });
    let mut clients: Vec<Caller> = (0..20).map(|n| node.client(&format!("user{n}")).0).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        node.send(client, &format!(r#"{{"op":"subscribe","channel":"room#{}"}}"#, n % 10));
    }
    let payload = "x".repeat(1000);
    for n in 0..2000 {
        node.publish(&format!("room#{}", n % 10), &payload);
    }
    node.pass(2_000);
    let held = node.shards[0].core.node().stats[0].event_bytes.get() as usize;
    assert!(held <= budget + budget / 4, "{held} bytes are held");
    for client in &clients {
        let events = node.events(client);
        assert_eq!(events[0]["event"], "gap", "nothing is dropped in silence");
        assert_eq!(events.last().unwrap()["seq"], 200);
    }
}

#[test]
fn too_many_commands_are_refused_with_a_retry_time_then_closed() {
    let mut node = TestNode::new(Settings { commands_per_second: 10, ..Settings::default() });
    let (mut ann, _) = node.client("ann");
    let mut refused = None;
    for _ in 0..25 {
        let reply = node.send(&mut ann, r#"{"op":"ping"}"#);
        if code(&reply) == "rate_limited" {
            refused = Some(reply);
            break;
        }
    }
    let wait = refused.expect("refused")["error"]["retry_after_ms"].as_u64().unwrap();
    node.pass(wait);
    assert_eq!(code(&node.send(&mut ann, r#"{"op":"ping"}"#)), "ok");
    let mut flow = Flow::Done;
    for _ in 0..1100 {
        flow = node.flow(&mut ann, "{broken").0;
        if flow != Flow::Done {
            break;
        }
    }
    assert_eq!(flow, Flow::Close(CloseReason::Abuse));
}

#[test]
fn connection_with_only_bad_commands_before_hello_is_closed() {
    let mut node = node();
    let mut stranger = node.socket();
    let refusals = (0..2000).take_while(|_| node.flow(&mut stranger, "{broken").0 == Flow::Done).count();
    assert_eq!(refusals, 999);
}

#[test]
fn expired_token_ends_its_session_unless_it_is_renewed() {
    let mut node = node();
    let (mut ann, _) = node.client("ann@1010");
    let (mut bob, _) = node.client("bob@1010");
    node.pass(5_000);
    assert_eq!(code(&node.send(&mut bob, r#"{"op":"hello","token":"bob@1100"}"#)), "ok");
    assert_eq!(code(&node.send(&mut bob, r#"{"op":"hello","token":"ann"}"#)), "conflict");
    node.now = node.now + 5_000;
    assert_eq!(code(&node.send(&mut ann, SUBSCRIBE)), "unauthenticated");
    node.pass(2_000);
    assert_eq!(node.closes(), [(ann.link.id, CloseReason::TokenExpired)]);
    assert_eq!(code(&node.send(&mut bob, SUBSCRIBE)), "ok");
}

#[test]
fn hello_for_a_session_of_another_shard_moves_the_connection() {
    let mut node = TestNode::new(Settings { shards: 2, ..Settings::default() });
    let mut ann = node.socket();
    let hello = node.flow_on(1, &mut ann, r#"{"op":"hello","token":"ann"}"#).1;
    let session = hello["ok"]["session"].as_str().unwrap();
    let mut again = node.socket();
    let (flow, reply) =
        node.flow(&mut again, &format!(r#"{{"op":"hello","token":"ann","session":"{session}","seq":0}}"#));
    assert_eq!(flow, Flow::Move(1));
    assert!(reply.is_null(), "the other shard answers");
}
