//! A cluster whose kind `chat` keeps history, with a publisher on each node.

use super::cluster::TestCluster;
use serde_json::Value;
use tavern_domain::{HistoryLimits, Verbs};
use tavern_hub::{Caller, HistoryRules, KindRules, Settings};

pub const TTL_MS: u64 = 60_000;

pub fn settings(messages: u64) -> Settings {
    let limits = HistoryLimits { messages, bytes: 1 << 20, ttl_ms: TTL_MS };
    let history = Some(HistoryRules { limits, with_subscribe: true });
    let strict = Some(HistoryRules { limits, with_subscribe: false });
    let open = KindRules { allow: Verbs::ALL, ..KindRules::default() };
    let mut settings = Settings { mailbox_events: 20, ..Settings::default() };
    settings.kinds.insert("chat".into(), KindRules { history, ..open });
    settings.kinds.insert("vault".into(), KindRules { history: strict, ..KindRules::default() });
    settings.kinds.insert("game".into(), open);
    settings
}

pub struct Scene {
    pub cluster: TestCluster,
    pub publishers: Vec<Caller>,
}

impl Scene {
    pub fn new(nodes: usize) -> Scene {
        Scene::with(nodes, &settings(100))
    }

    pub fn with(nodes: usize, settings: &Settings) -> Scene {
        let mut cluster = TestCluster::sized(nodes, settings);
        let publishers = (0..nodes).map(|at| cluster.client(at, &format!("pub{at}")).0).collect();
        Scene { cluster, publishers }
    }

    pub fn publish(&mut self, at: usize, data: u64) -> Value {
        let frame = format!(r#"{{"op":"publish","channel":"chat#1","data":{data}}}"#);
        self.command(at, &frame)
    }

    /// A command of the publisher on a node.
    pub fn command(&mut self, at: usize, frame: &str) -> Value {
        self.cluster.send(at, &mut self.publishers[at], frame)
    }

    pub fn subscriber(&mut self, at: usize, user: &str, how: &str) -> (Caller, Value) {
        let mut caller = self.cluster.client(at, user).0;
        let reply = self.subscribe(at, &mut caller, how);
        (caller, reply)
    }

    pub fn subscribe(&mut self, at: usize, caller: &mut Caller, how: &str) -> Value {
        let reply =
            self.cluster.send(at, caller, &format!(r#"{{"op":"subscribe","channel":"chat#1"{how}}}"#));
        // Messages follow the reply by a timer.
        self.cluster.pass(1);
        reply
    }

    /// The data of the messages and `gap` for gaps that a subscriber gets.
    pub fn received(&mut self, at: usize, caller: &Caller) -> Vec<String> {
        let mut received = Vec::new();
        loop {
            // A subscriber's messages follow its reply by a timer.
            self.cluster.pass(1);
            let events = self.cluster.node(at).events(caller);
            let done = events.is_empty();
            received.extend(events.iter().map(|event| match event["event"].as_str() {
                Some("message") => {
                    assert!(
                        event["offset"].as_u64().is_some() && event["epoch"].as_u64().is_some(),
                        "{event}"
                    );
                    event["data"].to_string()
                }
                other => other.unwrap_or("?").to_owned(),
            }));
            if done {
                return received;
            }
        }
    }
}

pub fn numbers(of: std::ops::RangeInclusive<u64>) -> Vec<String> {
    of.map(|n| n.to_string()).collect()
}
