//! Ann and her session on three nodes: she comes to one of them and asks for it.

use super::street::Street;
use serde_json::{Value, json};
use tavern_engine::Parcel;
use tavern_hub::*;
use tavern_wire::bus::BusMessage;
use tavern_wire::bus::letter::Says;

/// What a letter says, in one word; nothing for other parcels.
pub fn word(parcel: &Parcel) -> &'static str {
    if !matches!(parcel.subject.kind(), "_node" | "_session") {
        return "";
    }
    let Some(BusMessage::Session(letter)) = BusMessage::decode(&parcel.payload) else { panic!("{parcel:?}") };
    match letter.says {
        Says::Ask { .. } => "ask",
        Says::No => "no",
        Says::Moving => "moving",
        Says::Refused => "refused",
        Says::Attached => "attached",
        Says::Here { .. } => "here",
        Says::Offer { .. } => "offer",
        Says::Give { .. } => "give",
        Says::Given { .. } => "given",
        Says::Taken => "taken",
    }
}

pub fn data(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| event["data"].to_string()).collect()
}

/// Ann on the first node, listening to a channel and a pattern.
pub struct Scene {
    pub street: Street,
    pub ann: Caller,
    pub session: String,
    pub client: Value,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::on(Street::of(3))
    }

    pub fn on(mut street: Street) -> Scene {
        let (mut ann, hello) = street.house(0).guest("ann");
        street.say(0, &mut ann, r#"{"op":"subscribe","channel":"game#A"}"#);
        street.say(0, &mut ann, r#"{"op":"subscribe","pattern":"chat#*"}"#);
        let session = hello["session"].as_str().unwrap().to_owned();
        Scene { street, ann, session, client: hello["client"].clone() }
    }

    pub fn hello(&self, user: &str, seq: u64) -> String {
        format!(r#"{{"op":"hello","token":"{user}","session":"{}","seq":{seq}}}"#, self.session)
    }

    /// A new transport on a node, which asks for the session.
    pub fn come(&mut self, at: usize, seq: u64) -> (Caller, Value) {
        let mut caller = self.street.house(at).socket();
        let hello = self.hello("ann", seq);
        let reply = self.street.say(at, &mut caller, &hello);
        (caller, reply["ok"].clone())
    }

    /// The same, and it must be there.
    pub fn resume(&mut self, at: usize, seq: u64) -> Caller {
        let (caller, hello) = self.come(at, seq);
        assert_eq!((&hello["resumed"], &hello["client"]), (&json!(true), &self.client), "{hello}");
        caller
    }

    pub fn publish(&mut self, at: usize, channel: &str, payload: &str) {
        self.street.house(at).publish(channel, payload);
    }

    pub fn hear(&mut self, at: usize, caller: &Caller) -> Vec<Value> {
        self.street.house(at).hear(caller)
    }

    /// On how many nodes the session can be used.
    pub fn owners(&mut self) -> Vec<usize> {
        let key = read_session(&self.session).unwrap().0;
        (0..3).filter(|&at| self.street.house(at).shards[0].find_session(key).is_some()).collect()
    }
}

/// Somebody on a node who watches the channel.
pub fn watch(street: &mut Street, at: usize) -> Caller {
    let (mut caller, _) = street.house(at).guest("watcher");
    let frame = r#"{"op":"subscribe","channel":"game#A","presence":true}"#;
    assert_eq!(super::code(&street.say(at, &mut caller, frame)), "ok");
    caller
}
