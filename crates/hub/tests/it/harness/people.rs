//! A fixture for status events: two nodes, users, and short texts for the events they receive.

use super::cluster::TestCluster;
use super::code;
use serde_json::Value;
use tavern_domain::presence::Activities;
use tavern_hub::{Caller, Settings};

pub const RESUME: u64 = 2_000;
pub const GRACE: u64 = 15_000;
pub const HOLD: u64 = 1_000;

pub fn settings() -> Settings {
    let pairs = |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    let activities = Activities {
        kinds: pairs(&[("activegame", "playing"), ("game", "in_game_channel")]),
        others: "online".into(),
        priority: vec!["playing".into()],
        arrivals: pairs(&[("activegame", "started_game"), ("game", "in_game_channel")]),
        departures: pairs(&[("activegame", "ended_game")]),
        ..Activities::default()
    };
    Settings { activities, ..Settings::default() }
}

pub struct PeopleFixture {
    pub cluster: TestCluster,
}

impl PeopleFixture {
    pub fn new() -> PeopleFixture {
        PeopleFixture { cluster: TestCluster::with(Some(0), None, &settings()) }
    }

    pub fn client(&mut self, at: usize, user: &str) -> Caller {
        let caller = self.cluster.client(at, user).0;
        self.cluster.settle();
        caller
    }

    #[track_caller]
    pub fn ask(&mut self, at: usize, caller: &mut Caller, frame: &str) -> Value {
        let reply = self.cluster.send(at, caller, frame);
        assert_eq!(code(&reply), "ok", "{frame}: {reply}");
        reply["ok"].clone()
    }

    #[track_caller]
    pub fn send(&mut self, at: usize, caller: &mut Caller, frame: &str) {
        self.ask(at, caller, frame);
    }

    pub fn join(&mut self, at: usize, caller: &mut Caller, channel: &str) {
        self.send(at, caller, &format!(r#"{{"op":"join","channel":"{channel}"}}"#));
    }

    pub fn follow(&mut self, at: usize, caller: &mut Caller, whom: &str) {
        self.send(at, caller, &format!(r#"{{"op":"follow","user":"{whom}"}}"#));
    }

    /// The events a session received since the last call.
    pub fn events(&mut self, at: usize, caller: &Caller) -> Vec<Value> {
        self.cluster.node(at).events(caller)
    }

    #[track_caller]
    pub fn check(&mut self, at: usize, caller: &Caller, expected: &str) {
        let received: Vec<String> = self.events(at, caller).iter().map(summary).collect();
        assert_eq!(received.join("; "), expected);
    }

    /// Closes the socket, and lets the session expire.
    pub fn lose(&mut self, at: usize, caller: &Caller) {
        self.cluster.node(at).detach(caller);
    }

    pub fn count(&mut self, at: usize, name: &str) -> u64 {
        let all = self.cluster.node(at).shards[0].core.node().stats[0].all();
        all.iter().find(|(known, _)| *known == name).unwrap().1
    }
}

/// `ann online game#A in_game_channel`
pub fn summary(event: &Value) -> String {
    if event["event"] != "status" {
        return presence_words(event);
    }
    let mut text = shown(&event["status"]);
    text.push_str(&format!(" {}", event["change"].as_str().unwrap()));
    if let Some(channel) = event["channel"].as_str() {
        text.push_str(&format!(" {channel}"));
    }
    text
}

pub fn presence_words(event: &Value) -> String {
    let mut text = event["event"].as_str().unwrap().to_owned();
    for name in ["user", "joined", "left", "count", "statuses"] {
        if let Some(value) = event.get(name) {
            text.push_str(&format!(" {}", value.as_str().map_or(value.to_string(), str::to_owned)));
        }
    }
    text
}

pub fn shown(status: &Value) -> String {
    let online = match (status["online"].as_bool().unwrap(), status["leaving"].as_bool().unwrap()) {
        (true, false) => "online",
        (true, true) => "leaving",
        (false, _) => "offline",
    };
    let channels = status["channels"].as_array().unwrap();
    let channels: Vec<&str> = channels.iter().map(|channel| channel.as_str().unwrap()).collect();
    let mut text = format!("{} {online}", status["user"].as_str().unwrap());
    if !channels.is_empty() {
        text.push_str(&format!(" [{}]", channels.join(",")));
    }
    text
}
