//! Holds of apps, over two nodes in virtual time: with a carrier channel, and with a time.

use crate::harness::cluster::TestCluster;
use crate::harness::code;
use serde_json::Value;
use tavern_hub::{Caller, ServiceCommand};
use tavern_hub::{LivenessTask, ShardEvent};

const RESUME: u64 = 2_000;
const GRACE: u64 = 15_000;

struct HoldFixture {
    cluster: TestCluster,
    watcher: Caller,
    orders: u64,
}

impl HoldFixture {
    fn new() -> HoldFixture {
        let mut cluster = TestCluster::new(Some(0));
        let mut watcher = cluster.client(1, "watcher").0;
        cluster.settle();
        cluster.send(1, &mut watcher, r#"{"op":"subscribe","channel":"active#G","presence":true}"#);
        HoldFixture { cluster, watcher, orders: 0 }
    }

    fn client(&mut self, at: usize, user: &str) -> Caller {
        let caller = self.cluster.client(at, user).0;
        self.cluster.settle();
        caller
    }

    #[track_caller]
    fn say(&mut self, at: usize, caller: &mut Caller, op: &str, channel: &str) {
        let reply = self.cluster.send(at, caller, &format!(r#"{{"op":"{op}","channel":"{channel}"}}"#));
        assert_eq!(code(&reply), "ok", "{op} {channel}: {reply}");
    }

    /// Sends a service command to a node, and waits for its reply.
    fn order(&mut self, at: usize, order: ServiceCommand) -> String {
        self.orders += 1;
        let number = self.orders;
        let node = self.cluster.node(at);
        let now = node.now;
        node.shards[0].handle(now, ShardEvent::Service { number, order });
        self.cluster.settle();
        let done = std::mem::take(&mut self.cluster.node(at).shards[0].core.effects.service_replies);
        let (_, outcome) = done.into_iter().find(|(done, _)| *done == number).expect("an outcome");
        outcome.map_or_else(|refusal| refusal.code.as_str().to_owned(), |_| "ok".to_owned())
    }

    fn hold(&mut self, at: usize, with: Option<&str>, ttl_ms: Option<u64>) {
        let (channel, user) = ("active#G".into(), "ann".into());
        let order = ServiceCommand::Hold { channel, user, with: with.map(Into::into), ttl_ms };
        assert_eq!(self.order(at, order), "ok");
    }

    fn release(&mut self, at: usize) {
        assert_eq!(
            self.order(at, ServiceCommand::Release { channel: "active#G".into(), user: "ann".into() }),
            "ok"
        );
    }

    #[track_caller]
    fn check(&mut self, expected: &str) {
        let watcher = self.watcher.clone();
        let received: Vec<String> = self.cluster.node(1).events(&watcher).iter().map(words).collect();
        assert_eq!(received.join("; "), expected);
    }

    fn lose(&mut self, at: usize, caller: &Caller) {
        self.cluster.node(at).detach(caller);
    }
}

fn words(event: &Value) -> String {
    let mut text = event["event"].as_str().unwrap().to_owned();
    for name in ["user", "reason"] {
        if let Some(value) = event[name].as_str() {
            text.push_str(&format!(" {value}"));
        }
    }
    text
}

const CAME: &str = "user_online ann; client_online ann";

#[test]
fn hold_follows_the_clients_of_its_carrier() {
    let mut scene = HoldFixture::new();
    let mut ann = scene.client(0, "ann");
    scene.hold(1, Some("game#G"), None);
    scene.check("");
    scene.say(0, &mut ann, "join", "game#G");
    scene.check(CAME);
    let client = ann.listener.unwrap();
    let client = scene.cluster.node(0).shards[0].core.listener(client).unwrap().session().unwrap().client;
    let mut watcher = scene.watcher.clone();
    let who = scene.cluster.send(1, &mut watcher, r#"{"op":"who","channel":"active#G"}"#);
    assert_eq!(who["ok"]["users"][0]["clients"][0]["client"], client.to_string(), "the carrier's id");
    scene.hold(0, Some("game#G"), None);
    scene.say(0, &mut ann, "join", "game#G");
    scene.check("");
    let mut tab = scene.client(1, "ann");
    scene.say(1, &mut tab, "join", "game#G");
    scene.check("client_online ann");
    scene.say(1, &mut tab, "leave", "game#G");
    scene.check("client_offline ann left");
    scene.say(0, &mut ann, "leave", "game#G");
    scene.check("client_offline ann left; user_offline ann left");
    scene.say(0, &mut ann, "join", "game#G");
    scene.check(CAME);
    scene.release(1);
    scene.check("client_offline ann removed; user_offline ann removed");
    scene.say(0, &mut ann, "leave", "game#G");
    scene.say(0, &mut ann, "join", "game#G");
    scene.check("");
}

#[test]
fn user_held_while_online_is_present_at_once_with_all_clients() {
    let mut scene = HoldFixture::new();
    let (_one, two) = (scene.client(0, "ann"), scene.client(1, "ann"));
    scene.hold(0, None, None);
    scene.check("user_online ann; client_online ann; client_online ann");
    scene.lose(1, &two);
    scene.cluster.live(RESUME);
    scene.check("client_offline ann lost");
    let _three = scene.client(0, "ann");
    scene.check("client_online ann");
}

#[test]
fn reconnecting_client_is_in_the_held_channel_again() {
    let mut scene = HoldFixture::new();
    let mut ann = scene.client(0, "ann");
    scene.say(0, &mut ann, "join", "game#G");
    scene.hold(0, Some("game#G"), None);
    scene.check(CAME);
    scene.lose(0, &ann);
    scene.cluster.live(RESUME);
    scene.check("client_offline ann lost");
    scene.cluster.live(GRACE - RESUME - 1);
    scene.check("");
    scene.cluster.live(1);
    scene.check("user_offline ann lost");
    let mut back = scene.client(1, "ann");
    scene.say(1, &mut back, "join", "game#G");
    scene.check(CAME);
}

#[test]
fn timed_hold_without_a_client_ends_at_its_time() {
    let mut scene = HoldFixture::new();
    scene.hold(0, None, Some(5_000));
    scene.check(CAME);
    scene.cluster.live(4_000);
    scene.hold(1, None, Some(5_000));
    scene.check("");
    scene.cluster.live(4_999);
    scene.check("");
    scene.cluster.live(1);
    scene.check("client_offline ann expired; user_offline ann expired");
    scene.cluster.live(60_000);
    scene.check("");
    scene.hold(0, None, Some(5_000));
    scene.check(CAME);
    scene.release(1);
    scene.check("client_offline ann removed; user_offline ann removed");
    scene.cluster.live(10_000);
    scene.check("");
}

#[test]
fn hold_with_carrier_and_time_ends_at_that_time() {
    let mut scene = HoldFixture::new();
    let mut ann = scene.client(0, "ann");
    scene.say(0, &mut ann, "join", "game#G");
    scene.hold(1, Some("game#G"), Some(3_000));
    scene.check(CAME);
    scene.cluster.live(3_000);
    scene.check("client_offline ann expired; user_offline ann expired");
    scene.say(0, &mut ann, "leave", "game#G");
    scene.say(0, &mut ann, "join", "game#G");
    scene.check("");
}

#[test]
fn removed_user_does_not_rejoin() {
    let mut scene = HoldFixture::new();
    let mut ann = scene.client(0, "ann");
    scene.say(0, &mut ann, "join", "active#G");
    scene.check(CAME);
    scene.release(1);
    scene.check("client_offline ann removed; user_offline ann removed");
    let now = scene.cluster.node(0).now;
    scene.cluster.node(0).shards[0].handle(now, ShardEvent::Liveness(LivenessTask::Announce));
    scene.cluster.settle();
    scene.check("");
    scene.release(1);
    scene.check("");
}

#[test]
fn invalid_holds_are_refused() {
    let mut scene = HoldFixture::new();
    let mut check = |channel: &str, user: &str, with: Option<&str>, expected: &str| {
        let (channel, user) = (channel.into(), user.into());
        let order = ServiceCommand::Hold { channel, user, with: with.map(Into::into), ttl_ms: None };
        assert_eq!(scene.order(0, order), expected);
    };
    check("user#ann", "ann", None, "not_allowed");
    check("Bad", "ann", None, "bad_request");
    check("game#A", "", None, "bad_request");
    check("game#A", "ann", Some("game#A"), "bad_request");
    check("game#A", "ann", Some("#"), "bad_request");
}
