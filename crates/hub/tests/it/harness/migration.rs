//! Ann and her session on three nodes: she connects to one of them and resumes it.

use super::cluster::TestCluster;
use serde_json::{Value, json};
use tavern_hub::*;
use tavern_store::BusPacket;
use tavern_wire::bus::BusMessage;
use tavern_wire::bus::migration::MigrationAction;

/// The step of a migration request, in one word; nothing for other packets.
pub fn step_name(packet: &BusPacket) -> &'static str {
    if !matches!(packet.subject.kind(), "_node" | "_session") {
        return "";
    }
    let Some(BusMessage::Session(request)) = BusMessage::decode(&packet.payload) else {
        return "";
    };
    match request.step {
        MigrationAction::Ask { .. } => "ask",
        MigrationAction::No => "no",
        MigrationAction::Moving => "moving",
        MigrationAction::Refused => "refused",
        MigrationAction::Attached => "attached",
        MigrationAction::Here { .. } => "here",
        MigrationAction::Offer { .. } => "offer",
        MigrationAction::Give { .. } => "give",
        MigrationAction::Given { .. } => "given",
        MigrationAction::Ended => "ended",
        MigrationAction::Taken => "taken",
    }
}

pub fn data(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| event["data"].to_string()).collect()
}

/// Ann on the first node, listening to a channel and a pattern.
pub struct MigrationFixture {
    pub cluster: TestCluster,
    pub ann: Caller,
    pub session: String,
    pub client: Value,
}

impl MigrationFixture {
    pub fn new() -> MigrationFixture {
        MigrationFixture::on(TestCluster::of(3))
    }

    pub fn on(mut cluster: TestCluster) -> MigrationFixture {
        let (mut ann, hello) = cluster.client(0, "ann");
        cluster.send(0, &mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
        cluster.send(0, &mut ann, r#"{"op":"subscribe","pattern":"chat#*"}"#);
        let session = hello["session"].as_str().unwrap().to_owned();
        MigrationFixture { cluster, ann, session, client: hello["client"].clone() }
    }

    pub fn hello(&self, user: &str, seq: u64) -> String {
        format!(r#"{{"op":"hello","token":"{user}","session":"{}","seq":{seq}}}"#, self.session)
    }

    /// A new connection to a node, which resumes the session.
    pub fn connect(&mut self, at: usize, seq: u64) -> (Caller, Value) {
        let mut caller = self.cluster.node(at).socket();
        let hello = self.hello("ann", seq);
        let reply = self.cluster.send(at, &mut caller, &hello);
        (caller, reply["ok"].clone())
    }

    /// The same, and it must succeed.
    pub fn resume(&mut self, at: usize, seq: u64) -> Caller {
        let (caller, hello) = self.connect(at, seq);
        assert_eq!((&hello["resumed"], &hello["client"]), (&json!(true), &self.client), "{hello}");
        caller
    }

    pub fn publish(&mut self, at: usize, channel: &str, payload: &str) {
        self.cluster.node(at).publish(channel, payload);
    }

    pub fn events(&mut self, at: usize, caller: &Caller) -> Vec<Value> {
        self.cluster.node(at).events(caller)
    }

    /// The nodes on which the session can be used.
    pub fn owners(&mut self) -> Vec<usize> {
        let key = read_session(&self.session).unwrap().0;
        (0..3).filter(|&at| self.cluster.node(at).shards[0].core.find_session(key).is_some()).collect()
    }
}

/// A client on a node who watches the channel.
pub fn watch(cluster: &mut TestCluster, at: usize) -> Caller {
    let (mut caller, _) = cluster.client(at, "watcher");
    let frame = r#"{"op":"subscribe","channel":"game#A","presence":true}"#;
    assert_eq!(super::code(&cluster.send(at, &mut caller, frame)), "ok");
    caller
}
