//! Orders of apps about users, in virtual time on three nodes. Must hold: an order reaches every session, whatever is lost on
//! the bus; a session that moves meanwhile is found where it arrives; a banned user opens no session.

use crate::harness::cluster::TestCluster;
use crate::harness::migration::{MigrationFixture, step_name};
use serde_json::{Value, json};
use std::sync::Arc;
use tavern_domain::{ClientId, Time};
use tavern_hub::*;
use tavern_store::{Found, PresenceKey, Read};
use tavern_wire::bus::control::{Ban, ControlAction, Disconnect};

const NAMES: [&str; 3] = ["one", "two", "three"];

struct Scene {
    cluster: TestCluster,
    orders: u64,
}

impl Scene {
    fn new() -> Scene {
        Scene::on(TestCluster::of(3))
    }

    fn on(mut cluster: TestCluster) -> Scene {
        for at in 0..3 {
            let others = NAMES.iter().enumerate().filter(|(other, _)| *other != at);
            let others = others.map(|(_, name)| Arc::from(*name)).collect();
            cluster.node(at).shards[0].core.node().set_other_nodes(others);
        }
        Scene { cluster, orders: 0 }
    }

    /// Begins an order on a node.
    fn begin(&mut self, at: usize, user: &str, action: ControlAction) -> u64 {
        self.orders += 1;
        let order = ServiceCommand::Control { user: user.into(), action };
        self.cluster.node(at).handle(ShardEvent::Service { number: self.orders, order });
        self.orders
    }

    /// What an order was answered, if it was.
    fn reply(&mut self, at: usize, number: u64) -> Option<Value> {
        let replies = &mut self.cluster.node(at).shards[0].core.effects.service_replies;
        let found = replies.iter().position(|(known, _)| *known == number)?;
        Some(match replies.remove(found).1 {
            Ok(body) => serde_json::from_slice(&body).unwrap(),
            Err(refusal) => json!({"error": refusal.code.as_str()}),
        })
    }

    #[track_caller]
    fn order(&mut self, at: usize, user: &str, action: ControlAction) -> Value {
        let number = self.begin(at, user, action);
        for _ in 0..5_000 {
            self.cluster.settle();
            if let Some(reply) = self.reply(at, number) {
                return reply;
            }
            self.cluster.pass(1);
        }
        panic!("the order is not answered");
    }

    fn disconnect(&self) -> Disconnect {
        let at = self.cluster.now();
        Disconnect { code: 4006, reason: "go away".into(), except: Vec::new(), allow_resume: false, at }
    }

    fn sessions(&mut self, user: &str) -> usize {
        let reply = self.order(0, user, ControlAction::Sessions);
        reply["sessions"].as_array().unwrap().len()
    }

    fn is_online(&self, user: &str) -> bool {
        let key = PresenceKey::new(&format!("user#{user}"), user);
        matches!(self.cluster.stored(Read::Presence(key)), Found::Presence(Some(_)))
    }
}

fn closed(caller: &Caller, reason: &str) -> (LinkId, CloseReason) {
    (caller.link.id, CloseReason::Disconnected { code: 4006, reason: reason.into() })
}

#[test]
fn disconnect_ends_the_sessions_of_a_user_on_all_nodes() {
    let mut scene = Scene::new();
    let callers: Vec<Caller> = (0..3).map(|at| scene.cluster.client(at, "ann").0).collect();
    let bob = scene.cluster.client(1, "bob").0;
    scene.cluster.node(2).detach(&callers[2]);
    assert_eq!(scene.sessions("ann"), 3);
    let order = scene.disconnect();
    let reply = scene.order(1, "ann", ControlAction::Disconnect(order));
    assert_eq!(reply, json!({"sessions": 3, "missing_nodes": []}));
    scene.cluster.settle();
    for at in [0, 1] {
        assert_eq!(scene.cluster.node(at).closes(), [closed(&callers[at], "go away")]);
    }
    assert!(!scene.is_online("ann") && scene.is_online("bob"), "presence ends at once");
    assert_eq!((scene.sessions("ann"), scene.sessions("bob")), (0, 1));
    assert!(scene.cluster.node(1).shards[0].core.listener(bob.listener.unwrap()).is_some());
    // A new session may begin.
    scene.cluster.pass(1);
    scene.cluster.client(0, "ann");
    scene.cluster.live(2_000);
    assert_eq!(scene.sessions("ann"), 1);
}

#[test]
fn disconnect_leaves_the_clients_it_excepts_alone() {
    let mut scene = Scene::new();
    let (_, hello) = scene.cluster.client(0, "ann");
    scene.cluster.client(1, "ann");
    let keep = ClientId::parse(hello["client"].as_str().unwrap()).unwrap();
    let order = Disconnect { except: vec![keep], ..scene.disconnect() };
    let reply = scene.order(2, "ann", ControlAction::Disconnect(order));
    assert_eq!(reply["sessions"], 1);
    scene.cluster.live(2_000);
    let left = scene.order(2, "ann", ControlAction::Sessions);
    assert_eq!(left["sessions"][0]["client"], hello["client"]);
    assert_eq!(left["sessions"].as_array().unwrap().len(), 1);
    assert!(scene.is_online("ann"));
}

#[test]
fn disconnect_that_allows_resume_closes_connections_only() {
    let mut scene = Scene::new();
    let (_, hello) = scene.cluster.client(0, "ann");
    let order = Disconnect { allow_resume: true, code: 4504, ..scene.disconnect() };
    assert_eq!(scene.order(1, "ann", ControlAction::Disconnect(order))["sessions"], 1);
    assert_eq!(scene.cluster.node(0).closes().len(), 1);
    assert!(scene.is_online("ann"));
    let session = hello["session"].as_str().unwrap();
    let mut ann = Caller::new(Link { id: LinkId(77), format: EventFormat::WebSocket }, None);
    let frame = format!(r#"{{"op":"hello","token":"ann","session":"{session}"}}"#);
    let resumed = scene.cluster.send(0, &mut ann, &frame);
    assert_eq!(resumed["ok"]["resumed"], true);
}

#[test]
fn ended_session_is_not_resumed_on_any_node() {
    for at in [0, 1] {
        let mut scene = Scene::new();
        let (_, hello) = scene.cluster.client(0, "ann");
        let order = scene.disconnect();
        scene.order(2, "ann", ControlAction::Disconnect(order));
        scene.cluster.pass(1);
        let session = hello["session"].as_str().unwrap();
        let frame = format!(r#"{{"op":"hello","token":"ann","session":"{session}"}}"#);
        let mut caller = scene.cluster.node(at).socket();
        let reply = scene.cluster.send(at, &mut caller, &frame);
        assert_eq!(reply["ok"]["resumed"], false, "{reply}");
        assert_ne!(reply["ok"]["client"], hello["client"]);
    }
}

#[test]
fn order_reaches_every_node_although_packets_are_lost() {
    let mut scene = Scene::new();
    for at in 0..3 {
        scene.cluster.client(at, "ann");
    }
    let mut carried: u32 = 1;
    scene.cluster.set_fate(move |_, _, packet| {
        carried = carried.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let is_order = matches!(packet.subject.kind(), "_control" | "_node");
        if is_order && (carried >> 16).is_multiple_of(2) { Vec::new() } else { vec![0] }
    });
    let order = scene.disconnect();
    let reply = scene.order(0, "ann", ControlAction::Disconnect(order));
    assert_eq!(reply["missing_nodes"], json!([]));
    scene.cluster.heal();
    assert_eq!(scene.sessions("ann"), 0);
}

#[test]
fn node_that_does_not_answer_is_named() {
    let mut scene = Scene::new();
    scene.cluster.client(1, "ann");
    scene.cluster.crash(2);
    let began = scene.cluster.now();
    let order = scene.disconnect();
    let reply = scene.order(0, "ann", ControlAction::Disconnect(order));
    assert_eq!(reply, json!({"sessions": 1, "missing_nodes": ["three"]}));
    assert!(scene.cluster.now().since(began) <= 2_100);
}

/// The session is on its way when the order arrives, at each step of the move.
#[test]
fn moving_session_ends_where_it_arrives() {
    for step in ["ask", "here", "give", "given", "taken"] {
        let mut moving = MigrationFixture::new();
        let mut caller = moving.cluster.node(1).socket();
        let hello = moving.hello("ann", 0);
        moving.cluster.set_fate(
            move |_, _, packet| {
                if step_name(packet) == step { vec![300] } else { vec![0] }
            },
        );
        let (flow, _) = moving.cluster.node(1).run(0, &mut caller, &hello);
        assert_eq!(flow, Flow::Wait, "{step}");
        moving.cluster.settle();
        let client = moving.client.clone();
        let mut scene = Scene::on(moving.cluster);
        let order = scene.disconnect();
        scene.order(2, "ann", ControlAction::Disconnect(order));
        scene.cluster.live(1_000);
        scene.cluster.heal();
        // The hello that waited gets a new session, or none; the old one is gone.
        let frame = r#"{"op":"ping"}"#;
        let _ = scene.cluster.node(1).run(0, &mut caller, frame);
        scene.cluster.live(6_000);
        let left = scene.order(0, "ann", ControlAction::Sessions);
        let clients: Vec<&Value> =
            left["sessions"].as_array().unwrap().iter().map(|session| &session["client"]).collect();
        assert!(!clients.contains(&&client), "{step}: {left}");
    }
}

#[test]
fn subscribe_and_unsubscribe_concern_every_session() {
    let mut scene = Scene::new();
    let callers: Vec<Caller> = (0..2).map(|at| scene.cluster.client(at, "ann").0).collect();
    let reply = scene.order(2, "ann", ControlAction::Subscribe("news#1".into()));
    assert_eq!(reply, json!({"failed": 0, "missing_nodes": [], "sessions": 2}));
    scene.cluster.node(2).publish("news#1", "1");
    scene.cluster.settle();
    for (at, caller) in callers.iter().enumerate() {
        let events = scene.cluster.node(at).events(caller);
        let words: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
        assert_eq!(words, ["subscribed", "message"]);
    }
    // Asked again it changes nothing.
    assert_eq!(scene.order(0, "ann", ControlAction::Subscribe("news#1".into()))["sessions"], 2);
    let reply = scene.order(1, "ann", ControlAction::Unsubscribe("news#1".into()));
    assert_eq!(reply["sessions"], 2);
    scene.cluster.node(2).publish("news#1", "2");
    scene.cluster.settle();
    for (at, caller) in callers.iter().enumerate() {
        let events = scene.cluster.node(at).events(caller);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((&events[0]["event"], &events[0]["channel"]), (&json!("unsubscribed"), &json!("news#1")));
    }
    let reserved = scene.order(0, "ann", ControlAction::Subscribe("user#bob".into()));
    assert_eq!(reserved["error"], "not_allowed");
}

#[test]
fn session_with_too_many_channels_is_not_subscribed() {
    let settings = Settings { channels_per_session: 1, ..Settings::default() };
    let mut scene = Scene::on(TestCluster::sized(3, &settings));
    let (mut ann, _) = scene.cluster.client(0, "ann");
    scene.cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"a#1"}"#);
    let reply = scene.order(0, "ann", ControlAction::Subscribe("b#1".into()));
    assert_eq!((&reply["sessions"], &reply["failed"]), (&json!(0), &json!(1)));
}

fn ban(until: Time) -> ControlAction {
    ControlAction::Ban(Ban { until, reason: "spam".into(), at: Time(1) })
}

#[test]
fn banned_user_opens_no_session_until_the_ban_ends() {
    let mut scene = Scene::new();
    let ann = scene.cluster.client(1, "ann").0;
    let until = scene.cluster.now() + 60_000;
    let reply = scene.order(0, "ann", ban(until));
    assert_eq!(reply["sessions"], 1);
    scene.cluster.settle();
    let reason = CloseReason::Banned { reason: "this user is banned: spam".into() };
    assert_eq!(scene.cluster.node(1).closes(), [(ann.link.id, reason)]);
    assert!(!scene.is_online("ann"));
    for at in 0..3 {
        let mut caller = scene.cluster.node(at).socket();
        let reply = scene.cluster.send(at, &mut caller, r#"{"op":"hello","token":"ann"}"#);
        assert_eq!(reply["error"]["code"], "blocked", "{reply}");
        assert!(reply["error"]["retry_after_ms"].as_u64().unwrap() <= 60_000);
    }
    scene.cluster.client(0, "bob");
    scene.cluster.live(60_000);
    scene.cluster.client(2, "ann");
}

#[test]
fn lifted_ban_lets_the_user_in_and_is_gone_from_the_store() {
    let mut scene = Scene::new();
    assert_eq!(scene.order(1, "ann", ControlAction::Unban)["error"], "not_found");
    scene.order(0, "ann", ban(Time::NEVER));
    scene.order(0, "bob", ban(Time::NEVER));
    let count = |scene: &Scene| {
        let key = tavern_store::DocumentKey::new("bans", "all");
        match scene.cluster.stored(Read::Document(key)) {
            Found::Document(Some(found)) => String::from_utf8(found.row.body.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(count(&scene), r#"{"bans":2}"#);
    let reply = scene.order(2, "ann", ControlAction::Unban);
    assert_eq!(reply["sessions"], 0);
    assert_eq!(count(&scene), r#"{"bans":1}"#);
    scene.cluster.client(1, "ann");
}

#[test]
fn users_and_sessions_are_counted_as_they_come_and_go() {
    let mut scene = Scene::new();
    let counts = |scene: &mut Scene| {
        let population = &scene.cluster.node(0).shards[0].core.node().clone().population;
        (population.users(), population.sessions())
    };
    let first = scene.cluster.client(0, "ann").0;
    let mut second = scene.cluster.client(0, "ann").0;
    scene.cluster.client(0, "bob");
    assert_eq!(counts(&mut scene), (2, 3));
    scene.cluster.send(0, &mut second, r#"{"op":"bye"}"#);
    assert_eq!(counts(&mut scene), (2, 2));
    let order = scene.disconnect();
    scene.order(1, "ann", ControlAction::Disconnect(order));
    assert_eq!(counts(&mut scene), (1, 1));
    assert!(scene.cluster.node(0).shards[0].core.listener(first.listener.unwrap()).is_none());
    let totals = |scene: &Scene| match scene.cluster.stored(Read::Totals) {
        Found::Totals(totals) => totals.users,
        other => panic!("{other:?}"),
    };
    scene.cluster.settle();
    assert_eq!(totals(&scene), 1);
}
