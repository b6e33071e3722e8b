//! What is cleared, evicted or expired is gone, on every node.

use crate::harness::history::{Scene, TTL_MS, numbers, settings};
use serde_json::Value;
use tavern_hub::ShardEvent;
use tavern_store::Read;

#[test]
fn cleared_history_begins_in_another_epoch() {
    let mut scene = Scene::new(1);
    let (ann, _) = scene.subscriber(0, "ann", "");
    let epoch = scene.publish(0, 1)["ok"]["epoch"].as_u64().unwrap();
    let order = tavern_hub::ServiceCommand::ClearHistory { channel: "chat#1".into() };
    scene.cluster.node(0).handle(ShardEvent::Service { number: 7, order });
    scene.cluster.settle();
    let replies = std::mem::take(&mut scene.cluster.node(0).shards[0].core.effects.service_replies);
    assert!(matches!(&replies[..], [(7, Ok(_))]));
    let second = scene.publish(0, 2);
    assert!(second["ok"]["epoch"].as_u64().unwrap() > epoch && second["ok"]["offset"].as_u64() == Some(1));
    assert_eq!(scene.received(0, &ann), ["1", "2"]);
    let since = format!(r#","since":{{"epoch":{epoch},"offset":1}}"#);
    assert_eq!(scene.subscriber(0, "bob", &since).1["ok"]["recovered"], Value::Bool(false));
}

#[test]
fn cleared_messages_do_not_come_back_on_any_node() {
    let mut scene = Scene::new(2);
    let epoch = scene.publish(0, 1)["ok"]["epoch"].as_u64().unwrap();
    (2..=5).for_each(|n| drop(scene.publish(0, n)));
    // Both nodes have a subscriber and keep recent messages.
    for at in [0, 1] {
        let (ann, _) = scene.subscriber(at, "ann", r#","last":10"#);
        assert_eq!(scene.received(at, &ann), numbers(1..=5));
    }
    // No node hears of it from the other.
    scene.cluster.set_fate(|_, _, _| Vec::new());
    let order = tavern_hub::ServiceCommand::ClearHistory { channel: "chat#1".into() };
    scene.cluster.node(0).handle(ShardEvent::Service { number: 7, order });
    scene.cluster.settle();
    for at in [0, 1] {
        let since = format!(r#","since":{{"epoch":{epoch},"offset":2}}"#);
        let (bob, reply) = scene.subscriber(at, "bob", &since);
        assert_eq!(reply["ok"]["recovered"], Value::Bool(false), "node {at}: {reply}");
        assert_eq!(scene.received(at, &bob), [""; 0], "node {at}");
        let (cid, _) = scene.subscriber(at, "cid", r#","last":10"#);
        assert_eq!(scene.received(at, &cid), [""; 0], "node {at}");
    }
}

#[test]
fn evicted_and_expired_messages_do_not_come_back_on_any_node() {
    for evicts in [true, false] {
        let mut settings = settings(100);
        settings.history_max_bytes = if evicts { 300 } else { settings.history_max_bytes };
        let mut scene = Scene::with(2, &settings);
        let epoch = scene.publish(0, 1)["ok"]["epoch"].as_u64().unwrap();
        (2..=5).for_each(|n| drop(scene.publish(0, n)));
        scene.cluster.live(if evicts { 8_000 } else { TTL_MS - 2_000 });
        // Both nodes keep recent messages for others that recover too.
        for at in [0, 1] {
            let (ann, _) = scene.subscriber(at, "ann", r#","last":10"#);
            assert_eq!(scene.received(at, &ann), numbers(1..=5));
        }
        // No node hears of it from the other.
        scene.cluster.set_fate(|_, _, _| Vec::new());
        scene.cluster.live(2_500);
        for at in [0, 1] {
            let since = format!(r#","since":{{"epoch":{epoch},"offset":2}}"#);
            for (user, how) in [("bob", since.as_str()), ("cid", r#","last":10"#)] {
                let (caller, reply) = scene.subscriber(at, user, how);
                assert_ne!(
                    reply["ok"]["recovered"],
                    Value::Bool(true),
                    "evicts {evicts}, node {at}: {reply}"
                );
                assert_eq!(scene.received(at, &caller), [""; 0], "evicts {evicts}, node {at}: {how}");
            }
        }
    }
}

#[test]
fn expired_histories_are_removed_and_large_ones_evicted() {
    let mut settings = settings(100);
    settings.history_max_bytes = 300;
    let mut scene = Scene::with(1, &settings);
    for channel in ["chat#1", "chat#2", "chat#3"] {
        scene.command(0, &format!(r#"{{"op":"publish","channel":"{channel}","data":"four"}}"#));
        scene.cluster.pass(10);
    }
    scene.cluster.live(10_100);
    let stored = |scene: &Scene, channel: &str| {
        let read =
            Read::History { channel: channel.into(), after: 0, before: u64::MAX, newest: false, limit: 9 };
        match scene.cluster.stored(read) {
            tavern_store::Found::History(page) => page.page.rows.len(),
            other => panic!("{other:?}"),
        }
    };
    let kept = ["chat#1", "chat#2", "chat#3"].map(|channel| stored(&scene, channel));
    assert_eq!(kept, [0, 0, 1], "the channels that expire first lose theirs");
    // With a clock that may be wrong, nothing is removed by age.
    scene.cluster.node(0).shards[0].core.node().set_deletion_lag(None);
    scene.cluster.pass(TTL_MS);
    scene.cluster.live(10_100);
    assert_eq!(stored(&scene, "chat#3"), 1);
    scene.cluster.node(0).shards[0].core.node().set_deletion_lag(Some(0));
    scene.cluster.live(10_100);
    assert_eq!(stored(&scene, "chat#3"), 0);
}
