//! Two nodes on one bus: who hears whom, what a subscription waits for, what is let go, how a loss is told.

#[allow(dead_code, reason = "each binary uses a part of it")]
mod house;

use house::code;
use house::street::Street;
use serde_json::{Value, json};
use std::sync::Arc;
use tavern_engine::{Interest, Ticket};
use tavern_hub::*;

fn data(events: &[Value]) -> Vec<&Value> {
    events.iter().map(|event| &event["data"]).collect()
}

#[test]
fn a_message_is_heard_on_both_nodes_with_its_author() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    let (mut bob, hello) = street.house(1).guest("bob");
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    street.subscribe(1, &mut bob, r#""pattern":"game#*""#);
    let said = street.house(1).say(&mut bob, r#"{"op":"publish","channel":"game#A","data":{"n":1}}"#);
    assert_eq!(said["ok"]["receivers"], 1, "subscriptions on this node");
    street.settle();
    let heard = street.house(0).hear(&ann);
    assert_eq!(heard[0]["from"], json!({"user": "bob", "client": hello["client"]}));
    assert_eq!(data(&heard), [&json!({"n": 1})]);
    assert_eq!(street.house(1).hear(&bob).len(), 1, "once, and not again as an echo");
    street.house(0).publish("game#B", "plain");
    street.settle();
    assert_eq!(data(&street.house(1).hear(&bob)), [&json!("plain")], "nobody listens where it was said");
    assert!(street.house(0).hear(&ann).is_empty());
}

#[test]
fn a_subscription_is_answered_when_the_bus_carries_it() {
    let mut street = Street::new(Some(40));
    let (mut ann, _) = street.house(0).guest("ann");
    let (mut eve, _) = street.house(0).guest("eve");
    let frame = r#"{"op":"subscribe","channel":"game#A"}"#;
    assert_eq!(street.house(0).flow(&mut ann, frame).0, Flow::Wait);
    assert_eq!(street.house(0).flow(&mut eve, frame).0, Flow::Wait, "for the same question");
    street.pass(39);
    assert!(street.house(0).shards[0].effects.ready.is_empty());
    street.house(1).publish("game#A", "early");
    street.pass(1);
    let ready = std::mem::take(&mut street.house(0).shards[0].effects.ready);
    assert_eq!(ready, [ann.link.id, eve.link.id]);
    assert!(street.house(0).say(&mut ann, frame)["ok"].is_object());
    assert!(street.house(0).say(&mut eve, frame)["ok"].is_object());
    street.house(1).publish("game#A", "late");
    street.settle();
    assert_eq!(data(&street.house(0).hear(&ann)), [&json!("late")]);
    let (mut kim, _) = street.house(0).guest("kim");
    assert_eq!(street.house(0).flow(&mut kim, frame).0, Flow::Done, "it is carried already");
}

#[test]
fn a_bus_that_refuses_is_told_to_who_waited() {
    let mut street = Street::new(None);
    let (mut ann, _) = street.house(0).guest("ann");
    let reply = street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    assert_eq!(code(&reply), "unavailable");
    assert!(reply["error"]["retry_after_ms"].as_u64() > Some(0), "{reply}");
    street.house(0).publish("game#A", "hi");
    assert!(street.house(0).hear(&ann).is_empty(), "a refused command has changed nothing");
}

#[test]
fn a_name_lingers_and_is_let_go() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    let leave = r#"{"op":"unsubscribe","channel":"game#A"}"#;
    let carried = |street: &mut Street| {
        let bus = street.house(0).shards[0].node().carrier.bus().unwrap().clone();
        let interest = tavern_engine::Subject::of_channel("tavern", b"game#A").unwrap();
        bus.subscribe(vec![Interest::Subject(interest)], Ticket(u64::MAX))
    };
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    street.house(0).say(&mut ann, leave);
    street.pass(29_000);
    let frame = r#"{"op":"subscribe","channel":"game#A"}"#;
    assert_eq!(
        street.house(0).flow(&mut ann, frame).0,
        Flow::Done,
        "back within the time: nothing to wait for"
    );
    street.pass(60_000);
    assert!(carried(&mut street), "somebody listens");
    street.house(0).say(&mut ann, leave);
    street.pass(31_000);
    assert!(!carried(&mut street), "let go");
}

#[test]
fn a_loss_is_told_to_those_it_concerns() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    let (mut eve, _) = street.house(0).guest("eve");
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    street.subscribe(0, &mut eve, r#""channel":"game#B""#);
    let redis = tavern_hub::core::redis::open(
        &mut street.house(0).shards[0].core,
        Link { id: LinkId(99), format: Format::Resp2 },
    );
    street.house(0).shards[0].subscribe(redis, Space::Pattern, b"game#*");
    street.house(1).publish("game#A", "\"lost\"");
    street.settle();
    let heard = street.house(0).hear(&ann);
    assert_eq!(heard, [json!({"seq": 1, "event": "gap", "channel": "game#A"})]);
    assert!(street.house(0).hear(&eve).is_empty());
    assert_eq!(street.house(0).closes(), [(LinkId(99), Goodbye::SlowReader)], "it cannot be told");
    let now = street.house(0).now;
    street.house(0).shards[0].handle(now, Input::BusLost(None));
    assert_eq!(street.house(0).hear(&eve), [json!({"seq": 1, "event": "gap", "channel": "game#B"})]);
}

#[test]
fn shard_channels_are_not_channels_on_other_nodes_either() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    street.subscribe(0, &mut ann, r#""channel":"game#A""#);
    let redis = tavern_hub::core::redis::open(
        &mut street.house(0).shards[0].core,
        Link { id: LinkId(99), format: Format::Resp2 },
    );
    let node = street.house(0).shards[0].node().clone();
    node.carrier.hold().carry(Space::Shard, b"game#A", None);
    street.settle();
    street.house(0).shards[0].subscribe(redis, Space::Shard, b"game#A");
    let now = street.house(1).now;
    street.house(1).shards[0].publish(now, Space::Shard, b"game#A", b"x", false, None);
    street.settle();
    assert!(street.house(0).hear(&ann).is_empty());
    let mut scratch = Scratch::default();
    scratch.fill(&mut street.house(0).shards[0].core, redis, LinkId(99), usize::MAX);
    assert_eq!(scratch.bytes, b"*3\r\n$8\r\nsmessage\r\n$6\r\ngame#A\r\n$1\r\nx\r\n");
}

#[test]
fn outsiders_do_not_speak_for_the_server() {
    let mut street = Street::new(Some(0));
    let (mut ann, _) = street.house(0).guest("ann");
    street.subscribe(0, &mut ann, r#""channel":"user#bob""#);
    let subject = tavern_engine::Subject::of_channel("tavern", b"user#bob").unwrap();
    let from = tavern_engine::Writer::outsider();
    let parcel =
        tavern_engine::Parcel { subject, from, n: 0, note: Arc::from(*b""), payload: Arc::from(*b"x") };
    assert!(street.house(0).shards[0].node().receive(&parcel).is_none());
}
