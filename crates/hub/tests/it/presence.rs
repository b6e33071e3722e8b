//! Presence over two nodes in virtual time, with times to the millisecond: the exact events of the specification.

use crate::harness::cluster::TestCluster;
use crate::harness::code;
use serde_json::Value;
use std::collections::BTreeMap;
use tavern_hub::Caller;
use tavern_hub::{LivenessTask, ShardEvent};
use tavern_store::{Found, PresenceKey, Read};

const RESUME: u64 = 2_000;
const GRACE: u64 = 15_000;

fn summary(event: &Value) -> String {
    let mut text = event["event"].as_str().unwrap().to_owned();
    for name in ["user", "state", "reason"] {
        if let Some(value) = event.get(name) {
            text.push_str(&format!(" {}", value.as_str().map_or(value.to_string(), str::to_owned)));
        }
    }
    text
}

struct PresenceFixture {
    cluster: TestCluster,
    /// One on each node.
    watchers: [Caller; 2],
    seen: [u64; 2],
}

impl PresenceFixture {
    fn new() -> PresenceFixture {
        PresenceFixture::on(TestCluster::new(Some(0)))
    }

    fn on(mut cluster: TestCluster) -> PresenceFixture {
        let watchers = [0, 1].map(|at| {
            let (mut caller, _) = cluster.client(at, "watcher");
            let reply =
                cluster.send(at, &mut caller, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
            assert_eq!(reply["ok"]["members"]["count"], 0, "{reply}");
            caller
        });
        PresenceFixture { cluster, watchers, seen: [0, 0] }
    }

    fn client(&mut self, at: usize, user: &str) -> Caller {
        self.cluster.client(at, user).0
    }

    fn send(&mut self, at: usize, caller: &mut Caller, frame: &str) {
        let reply = self.cluster.send(at, caller, frame);
        assert_eq!(code(&reply), "ok", "{frame}: {reply}");
    }

    fn join(&mut self, at: usize, user: &str) -> Caller {
        let mut caller = self.client(at, user);
        self.send(at, &mut caller, r#"{"op":"join","channel":"game#A"}"#);
        caller
    }

    /// The events the watcher of one node received since the last call.
    fn events(&mut self, at: usize) -> Vec<Value> {
        let watcher = self.watchers[at].clone();
        self.cluster.node(at).events(&watcher)
    }

    /// Both watchers received these events, with versions without holes.
    #[track_caller]
    fn check(&mut self, expected: &str) {
        for at in [0, 1] {
            let events = self.events(at);
            for event in &events {
                let version = event["version"].as_u64().unwrap();
                assert!(
                    self.seen[at] == 0 || version == self.seen[at] + 1 || event["event"] == "user_online"
                );
                self.seen[at] = version;
            }
            let received: Vec<String> = events.iter().map(summary).collect();
            assert_eq!(received.join("; "), expected, "the watcher of node {at}");
        }
    }

    fn drop_socket(&mut self, at: usize, caller: &Caller) {
        self.cluster.node(at).detach(caller);
    }
}

#[test]
fn arrivals_and_departures_reach_watchers_on_both_nodes() {
    let mut scene = PresenceFixture::new();
    let mut ann = scene.join(0, "ann");
    scene.check("user_online ann; client_online ann null");
    let mut bob = scene.join(1, "bob");
    scene.send(0, &mut ann, r#"{"op":"update","channel":"game#A","state":{"x":1}}"#);
    scene.send(1, &mut bob, r#"{"op":"leave","channel":"game#A"}"#);
    scene.check(
        r#"user_online bob; client_online bob null; client_updated ann {"x":1}; client_offline bob left; user_offline bob left"#,
    );
    scene.send(0, &mut ann, r#"{"op":"bye"}"#);
    scene.check("client_offline ann bye; user_offline ann bye");
}

#[test]
fn loss_is_sent_at_its_time_and_not_before() {
    let mut scene = PresenceFixture::new();
    let ann = scene.join(0, "ann");
    scene.check("user_online ann; client_online ann null");
    scene.drop_socket(0, &ann);
    scene.cluster.live(RESUME - 1);
    scene.check("");
    scene.cluster.live(1);
    scene.check("client_offline ann lost");
    scene.cluster.live(GRACE - RESUME - 1);
    scene.check("");
    scene.cluster.live(1);
    scene.check("user_offline ann lost");
}

#[test]
fn session_that_ends_with_its_connection_is_lost_at_once() {
    let mut scene = PresenceFixture::new();
    let ann = scene.join(0, "ann");
    scene.check("user_online ann; client_online ann null");
    scene.cluster.node(0).shards[0].end(ann.listener.unwrap());
    scene.cluster.live(1);
    scene.check("client_offline ann lost");
    scene.cluster.live(GRACE - 2);
    scene.check("");
    scene.cluster.live(1);
    scene.check("user_offline ann lost");
}

#[test]
fn client_can_be_lost_in_one_channel_and_come_back() {
    let mut scene = PresenceFixture::new();
    let mut ann = scene.join(0, "ann");
    scene.check("user_online ann; client_online ann null");
    let lose = |scene: &mut PresenceFixture, ann: &Caller| {
        let lost = ShardEvent::LosePresence { session: ann.listener.unwrap(), channel: "game#A".into() };
        scene.cluster.node(0).handle(lost);
        scene.cluster.settle();
    };
    lose(&mut scene, &ann);
    scene.check("client_offline ann lost");
    lose(&mut scene, &ann);
    scene.check("");
    scene.send(0, &mut ann, r#"{"op":"join","channel":"game#A"}"#);
    scene.check("client_online ann null");
    scene.cluster.live(60_000);
    scene.check("");
    lose(&mut scene, &ann);
    scene.cluster.live(GRACE);
    scene.check("client_offline ann lost; user_offline ann lost");
}

#[test]
fn another_tab_on_another_node_ends_the_grace_period() {
    let mut scene = PresenceFixture::new();
    let ann = scene.join(0, "ann");
    scene.drop_socket(0, &ann);
    scene.cluster.live(5_000);
    scene.check("user_online ann; client_online ann null; client_offline ann lost");
    let mut other = scene.join(1, "ann");
    scene.cluster.live(60_000);
    scene.check("client_online ann null");
    scene.send(1, &mut other, r#"{"op":"leave","channel":"game#A"}"#);
    scene.check("client_offline ann left; user_offline ann left");
}

#[test]
fn explicit_departure_waits_for_the_tab_that_was_lost_elsewhere() {
    let mut scene = PresenceFixture::new();
    let lost = scene.join(0, "ann");
    let mut other = scene.join(1, "ann");
    scene.drop_socket(0, &lost);
    scene.cluster.live(3_000);
    scene.send(1, &mut other, r#"{"op":"leave","channel":"game#A"}"#);
    scene.check(
        "user_online ann; client_online ann null; client_online ann null; client_offline ann lost; client_offline ann left",
    );
    scene.cluster.live(GRACE - 3_000 - 1);
    scene.check("");
    scene.cluster.live(1);
    scene.check("user_offline ann left");
}

#[test]
fn session_resumed_in_time_was_never_away() {
    let mut scene = PresenceFixture::new();
    let ann = scene.join(0, "ann");
    let id = ann.listener.unwrap();
    let session = scene.cluster.node(0).shards[0].core.listener(id).unwrap().session().unwrap().key;
    let identity =
        scene.cluster.node(0).shards[0].core.listener(id).unwrap().session().unwrap().identity.clone();
    scene.check("user_online ann; client_online ann null");
    for (away, expected) in
        [(RESUME - 1, ""), (RESUME + 1, "client_offline ann lost; client_online ann null")]
    {
        scene.drop_socket(0, &ann);
        scene.cluster.live(away);
        let node = scene.cluster.node(0);
        let now = node.now;
        assert!(node.shards[0].attach(now, session, &identity, ann.link, None).is_some());
        scene.cluster.live(GRACE * 2);
        scene.check(expected);
    }
}

#[test]
fn lost_presence_changes_are_read_from_the_store() {
    (2..8).for_each(heal);
}

fn heal(lose_every: u64) {
    let mut scene = PresenceFixture::on(TestCluster::losing(Some(0), Some(lose_every)));
    let mut known: [BTreeMap<String, Vec<String>>; 2] = [BTreeMap::new(), BTreeMap::new()];
    let mut users: Vec<(usize, Caller)> =
        (0..6).map(|n| (n % 2, scene.client(n % 2, &format!("user{n}")))).collect();
    for turn in 0..12 {
        for (n, (at, caller)) in users.iter_mut().enumerate() {
            let op = if (turn + n) % 3 == 0 { "leave" } else { "join" };
            scene.send(*at, caller, &format!(r#"{{"op":"{op}","channel":"game#A"}}"#));
        }
        scene.cluster.live(1_200);
        for at in [0, 1] {
            for event in scene.events(at) {
                follow(&mut known[at], &event);
            }
        }
    }
    // The last change may be the one that was lost: the heartbeat finds out.
    for at in [0, 1] {
        scene.cluster.node(at).handle(ShardEvent::Liveness(LivenessTask::Compare));
    }
    scene.cluster.live(1_200);
    for at in [0, 1] {
        for event in scene.events(at) {
            follow(&mut known[at], &event);
        }
    }
    let (at, asker) = &mut users[0];
    let who = scene.cluster.send(*at, asker, r#"{"op":"who","channel":"game#A"}"#);
    let there = by_user(&who["ok"]["users"]);
    assert_eq!(known, [there.clone(), there]);
}

/// The clients of each user in a list of members.
fn by_user(users: &Value) -> BTreeMap<String, Vec<String>> {
    let clients = |user: &Value| {
        let clients = user["clients"].as_array().unwrap().iter();
        (text(&user["user"]), clients.map(|client| text(&client["client"])).collect())
    };
    users.as_array().unwrap().iter().map(clients).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Applies an event as a client does.
fn follow(known: &mut BTreeMap<String, Vec<String>>, event: &Value) {
    let user = || text(&event["user"]);
    match event["event"].as_str().unwrap() {
        "user_online" => drop(known.insert(user(), Vec::new())),
        "user_offline" => drop(known.remove(&user())),
        "client_online" => known.entry(user()).or_default().push(text(&event["client"])),
        "client_offline" => known.entry(user()).or_default().retain(|client| *client != event["client"]),
        "presence" => {
            for gone in event["left"].as_array().unwrap() {
                match gone.get("client") {
                    None => drop(known.remove(&text(&gone["user"]))),
                    Some(client) => {
                        known.entry(text(&gone["user"])).or_default().retain(|known| known != client)
                    }
                }
            }
            for entry in event["joined"].as_array().unwrap() {
                let clients = known.entry(text(&entry["user"])).or_default();
                clients.extend(entry.get("client").map(text));
            }
        }
        _ => {}
    }
}

#[test]
fn swept_user_goes_offline_with_all_events_once() {
    let mut scene = PresenceFixture::new();
    scene.join(1, "ann");
    scene.join(0, "bob");
    scene.check("user_online ann; client_online ann null; user_online bob; client_online bob null");
    let epoch = scene.cluster.node(1).shards[0].core.node().epoch();
    let node_epoch = tavern_domain::presence::NodeEpoch { node: "two".into(), epoch };
    let before = scene.cluster.commits();
    for user in ["ann", "bob", "ann"] {
        let stale = tavern_hub::StaleUser { user: user.into(), nodes: vec![node_epoch.clone()] };
        scene.cluster.node(0).handle(ShardEvent::Liveness(LivenessTask::Sweep(stale)));
        let commits = scene.cluster.commits();
        scene.cluster.settle();
        assert_eq!(
            scene.cluster.commits() - commits,
            u64::from(user == "ann" && commits == before),
            "{user}"
        );
    }
    scene.check("client_offline ann node_down; user_offline ann node_down");
    let swept = scene.cluster.node(0).shards[0].core.node().stats[0].presences_swept.get();
    assert_eq!(swept, 2, "there and in her own channel");
}

#[test]
fn invalid_commands_are_refused() {
    let mut scene = PresenceFixture::new();
    let mut ann = scene.client(0, "ann");
    for (frame, refused) in [
        (r#"{"op":"update","channel":"game#A","state":1}"#, "not_found"),
        (r#"{"op":"join","channel":"user#bob"}"#, "not_allowed"),
        (r#"{"op":"join","channel":"No"}"#, "bad_request"),
        (r#"{"op":"leave","channel":"game#A"}"#, "ok"),
        (r#"{"op":"who","channel":"game#A"}"#, "ok"),
    ] {
        assert_eq!(code(&scene.cluster.send(0, &mut ann, frame)), refused, "{frame}");
    }
    let long = format!(r#"{{"op":"join","channel":"game#A","state":"{}"}}"#, "x".repeat(4_095));
    assert_eq!(code(&scene.cluster.send(0, &mut ann, &long)), "too_large");
    scene.check("");
}

#[test]
fn answer_reaches_only_the_connection_that_waited_for_it() {
    let mut scene = PresenceFixture::new();
    let mut ann = scene.client(0, "ann");
    let (flow, _) = scene.cluster.node(0).flow(&mut ann, r#"{"op":"join","channel":"game#A"}"#);
    assert_eq!(flow, tavern_hub::Flow::Wait);
    scene.drop_socket(0, &ann);
    scene.cluster.settle();
    // Another client with the number of the connection that is closed.
    let mut eve = scene.client(0, "eve");
    eve.link = ann.link;
    let reply = scene.cluster.send(0, &mut eve, r#"{"op":"update","channel":"game#A","state":1}"#);
    assert_eq!(code(&reply), "not_found", "not the answer to another client's command");
}

#[test]
fn changes_are_routed_from_the_moment_a_channel_is_read_for_a_watcher() {
    let mut scene = PresenceFixture::new();
    let node = scene.cluster.node(0).shards[0].core.node().clone();
    let is_routed = || {
        node.registry.find(tavern_hub::Namespace::Presence, b"game#B").is_some_and(|entry| entry.mask() == 1)
    };
    let mut eve = scene.client(0, "eve");
    let frame = r#"{"op":"subscribe","channel":"game#B","presence":true}"#;
    while scene.cluster.node(0).shards[0].core.effects.work.is_empty() {
        assert_eq!(scene.cluster.node(0).flow(&mut eve, frame).0, tavern_hub::Flow::Wait);
        if scene.cluster.node(0).shards[0].core.effects.work.is_empty() {
            scene.cluster.settle();
        }
    }
    assert!(is_routed(), "changes during the read must be received");
    scene.cluster.settle();
    assert!(is_routed(), "and until the watcher is subscribed");
    scene.drop_socket(0, &eve);
    scene.cluster.live(3_000);
    assert!(!is_routed(), "but not for a watcher who has left");
}

/// Arrivals and departures of many users, in random order, on both nodes.
fn flap(settings: &tavern_hub::Settings, users: usize, turns: usize) {
    let mut scene = PresenceFixture::on(TestCluster::with(Some(0), None, settings));
    let mut memberships: Vec<(usize, Caller)> =
        (0..users).map(|n| (n % 2, scene.client(n % 2, &format!("user{n}")))).collect();
    let mut known: [BTreeMap<String, Vec<String>>; 2] = [BTreeMap::new(), BTreeMap::new()];
    let mut rng = 7u64;
    for turn in 0..turns {
        for _ in 0..users / 4 {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let n = (rng >> 33) as usize % users;
            let (at, caller) = &mut memberships[n];
            let op = if (rng >> 60).is_multiple_of(3) { "leave" } else { "join" };
            scene.send(*at, caller, &format!(r#"{{"op":"{op}","channel":"game#A"}}"#));
        }
        scene.cluster.live(300);
        let (at, asker) = &mut memberships[turn];
        let who = scene.cluster.send(*at, asker, r#"{"op":"who","channel":"game#A","limit":1000}"#);
        let there = by_user(&who["ok"]["users"]);
        for (at, known) in known.iter_mut().enumerate() {
            for event in scene.events(at) {
                follow(known, &event);
            }
            assert_eq!(*known, there, "node {at}, turn {turn}");
        }
    }
}

#[test]
fn snapshot_plus_events_equals_the_next_snapshot_while_a_thousand_users_flap() {
    let all = tavern_domain::presence::Thresholds { coalesce_at: 5_000, counts_at: 50_000 };
    flap(&tavern_hub::Settings { crowds: all, ..tavern_hub::Settings::default() }, 1_000, 6);
    flap(&tavern_hub::Settings::default(), 1_000, 6);
}

#[test]
fn crowd_gets_one_event_per_tick_however_evenly_users_join() {
    let mut scene = PresenceFixture::new();
    for n in 0..200 {
        scene.join(0, &format!("early-{n}"));
    }
    scene.cluster.live(300);
    scene.events(0);
    for n in 0..50 {
        scene.join(0, &format!("late-{n}"));
        scene.cluster.live(20);
    }
    let received = scene.events(0);
    assert!(received.iter().all(|event| event["event"] == "presence"));
    assert!((3..=5).contains(&received.len()), "{} times in a second", received.len());
}

#[test]
fn lost_client_leaves_the_store_at_its_deadline_although_another_is_present() {
    let mut scene = PresenceFixture::new();
    let (tab, _other) = (scene.join(0, "ann"), scene.join(1, "ann"));
    let clients = |scene: &PresenceFixture| {
        let key = PresenceKey::new("game#A", "ann");
        let Found::Presence(Some(found)) = scene.cluster.stored(Read::Presence(key)) else {
            panic!("no row")
        };
        found.row.attendance.clients().len()
    };
    scene.cluster.node(0).detach(&tab);
    scene.cluster.live(GRACE - 1);
    assert_eq!(clients(&scene), 2);
    scene.events(1);
    scene.cluster.live(1);
    assert_eq!(clients(&scene), 1);
    assert!(scene.events(1).is_empty(), "watchers know already");
}
