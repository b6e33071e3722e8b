//! Two nodes on one bus: who receives which messages, what a subscription waits for, when a name is released, how a
//! loss is reported.

use crate::harness::cluster::TestCluster;
use crate::harness::code;
use serde_json::{Value, json};
use std::sync::Arc;
use tavern_hub::*;
use tavern_store::{Interest, Ticket};

fn data(events: &[Value]) -> Vec<&Value> {
    events.iter().map(|event| &event["data"]).collect()
}

#[test]
fn message_reaches_both_nodes_with_its_author() {
    let mut cluster = TestCluster::new(Some(0));
    let (mut ann, _) = cluster.client(0, "ann");
    let (mut bob, hello) = cluster.client(1, "bob");
    cluster.subscribe(0, &mut ann, r#""channel":"game#A""#);
    cluster.subscribe(1, &mut bob, r#""pattern":"game#*""#);
    let reply = cluster.node(1).send(&mut bob, r#"{"op":"publish","channel":"game#A","data":{"n":1}}"#);
    assert_eq!(reply["ok"]["receivers"], 1, "subscriptions on this node");
    cluster.settle();
    let received = cluster.node(0).events(&ann);
    assert_eq!(received[0]["from"], json!({"user": "bob", "client": hello["client"]}));
    assert_eq!(data(&received), [&json!({"n": 1})]);
    assert_eq!(cluster.node(1).events(&bob).len(), 1, "once, and not again as an echo");
    cluster.node(0).publish("game#B", "plain");
    cluster.settle();
    assert_eq!(
        data(&cluster.node(1).events(&bob)),
        [&json!("plain")],
        "there is no listener where it was published"
    );
    assert!(cluster.node(0).events(&ann).is_empty());
}

#[test]
fn subscription_is_answered_when_the_bus_has_confirmed_it() {
    let mut cluster = TestCluster::new(Some(40));
    let (mut ann, _) = cluster.client(0, "ann");
    let (mut eve, _) = cluster.client(0, "eve");
    let frame = r#"{"op":"subscribe","channel":"game#A"}"#;
    assert_eq!(cluster.node(0).flow(&mut ann, frame).0, Flow::Wait);
    assert_eq!(cluster.node(0).flow(&mut eve, frame).0, Flow::Wait, "for the same question");
    cluster.pass(39);
    assert!(cluster.node(0).shards[0].core.effects.ready.is_empty());
    cluster.node(1).publish("game#A", "early");
    cluster.pass(1);
    let ready = std::mem::take(&mut cluster.node(0).shards[0].core.effects.ready);
    assert_eq!(ready, [ann.link.id, eve.link.id]);
    assert!(cluster.node(0).send(&mut ann, frame)["ok"].is_object());
    assert!(cluster.node(0).send(&mut eve, frame)["ok"].is_object());
    cluster.node(1).publish("game#A", "late");
    cluster.settle();
    assert_eq!(data(&cluster.node(0).events(&ann)), [&json!("late")]);
    let (mut kim, _) = cluster.client(0, "kim");
    assert_eq!(cluster.node(0).flow(&mut kim, frame).0, Flow::Done, "it is carried already");
}

#[test]
fn refusal_of_the_bus_reaches_the_waiting_client() {
    let mut cluster = TestCluster::new(None);
    let (mut ann, _) = cluster.client(0, "ann");
    let reply = cluster.subscribe(0, &mut ann, r#""channel":"game#A""#);
    assert_eq!(code(&reply), "unavailable");
    assert!(reply["error"]["retry_after_ms"].as_u64() > Some(0), "{reply}");
    cluster.node(0).publish("game#A", "hi");
    assert!(cluster.node(0).events(&ann).is_empty(), "a refused command has changed nothing");
}

#[test]
fn unused_name_is_kept_for_a_while_and_then_released() {
    let mut cluster = TestCluster::new(Some(0));
    let (mut ann, _) = cluster.client(0, "ann");
    let leave = r#"{"op":"unsubscribe","channel":"game#A"}"#;
    let carried = |cluster: &mut TestCluster| {
        let bus = cluster.node(0).shards[0].core.node().bus_interests.bus().unwrap().clone();
        let interest = tavern_store::Subject::of_channel("tavern", b"game#A").unwrap();
        bus.subscribe(vec![Interest::Subject(interest)], Ticket(u64::MAX))
    };
    cluster.subscribe(0, &mut ann, r#""channel":"game#A""#);
    cluster.node(0).send(&mut ann, leave);
    cluster.pass(29_000);
    let frame = r#"{"op":"subscribe","channel":"game#A"}"#;
    assert_eq!(
        cluster.node(0).flow(&mut ann, frame).0,
        Flow::Done,
        "back within the time: nothing to wait for"
    );
    cluster.pass(60_000);
    assert!(carried(&mut cluster), "there is a listener");
    cluster.node(0).send(&mut ann, leave);
    cluster.pass(31_000);
    assert!(!carried(&mut cluster), "released");
}

#[test]
fn loss_is_reported_as_a_gap_to_its_subscribers() {
    let mut cluster = TestCluster::new(Some(0));
    let (mut ann, _) = cluster.client(0, "ann");
    let (mut eve, _) = cluster.client(0, "eve");
    cluster.subscribe(0, &mut ann, r#""channel":"game#A""#);
    cluster.subscribe(0, &mut eve, r#""channel":"game#B""#);
    let redis = tavern_hub::core::redis::open(
        &mut cluster.node(0).shards[0].core,
        Link { id: LinkId(99), format: EventFormat::Resp2 },
    );
    cluster.node(0).shards[0].core.subscribe(redis, Namespace::Pattern, b"game#*");
    cluster.node(1).publish("game#A", "\"lost\"");
    cluster.settle();
    let received = cluster.node(0).events(&ann);
    assert_eq!(received, [json!({"seq": 1, "event": "gap", "channel": "game#A"})]);
    assert!(cluster.node(0).events(&eve).is_empty());
    assert_eq!(cluster.node(0).closes(), [(LinkId(99), CloseReason::SlowReader)], "it cannot receive a gap");
    let now = cluster.node(0).now;
    cluster.node(0).shards[0].handle(now, ShardEvent::BusLost(None));
    assert_eq!(cluster.node(0).events(&eve), [json!({"seq": 1, "event": "gap", "channel": "game#B"})]);
}

#[test]
fn shard_channels_are_separate_on_other_nodes_too() {
    let mut cluster = TestCluster::new(Some(0));
    let (mut ann, _) = cluster.client(0, "ann");
    cluster.subscribe(0, &mut ann, r#""channel":"game#A""#);
    let redis = tavern_hub::core::redis::open(
        &mut cluster.node(0).shards[0].core,
        Link { id: LinkId(99), format: EventFormat::Resp2 },
    );
    let node = cluster.node(0).shards[0].core.node().clone();
    node.bus_interests.lock().request(Namespace::Shard, b"game#A", None);
    cluster.settle();
    cluster.node(0).shards[0].core.subscribe(redis, Namespace::Shard, b"game#A");
    let now = cluster.node(1).now;
    cluster.node(1).shards[0].core.publish(now, Namespace::Shard, b"game#A", b"x", false, None);
    cluster.settle();
    assert!(cluster.node(0).events(&ann).is_empty());
    let mut scratch = Scratch::default();
    scratch.fill(&mut cluster.node(0).shards[0].core, redis, LinkId(99), usize::MAX);
    assert_eq!(scratch.bytes, b"*3\r\n$8\r\nsmessage\r\n$6\r\ngame#A\r\n$1\r\nx\r\n");
}

#[test]
fn messages_of_outsiders_are_not_taken_for_the_servers() {
    let mut cluster = TestCluster::new(Some(0));
    let (mut ann, _) = cluster.client(0, "ann");
    cluster.subscribe(0, &mut ann, r#""channel":"user#bob""#);
    let subject = tavern_store::Subject::of_channel("tavern", b"user#bob").unwrap();
    let from = tavern_store::Writer::outsider();
    let packet =
        tavern_store::BusPacket { subject, from, n: 0, header: Arc::from(*b""), payload: Arc::from(*b"x") };
    assert!(cluster.node(0).shards[0].core.node().receive(&packet).is_none());
}
