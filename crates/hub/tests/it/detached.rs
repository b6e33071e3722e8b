//! Sessions without a connection share logs: what they get when they come back is what each would have got alone.

use crate::harness::TestNode;
use proptest::prelude::*;
use serde_json::Value;
use tavern_hub::*;

const SESSIONS: usize = 3;
const CHANNELS: [&str; 3] = ["room#a", "room#b", "hall#c"];

#[derive(Clone, Debug)]
enum Step {
    Publish {
        channel: usize,
        bytes: usize,
    },
    /// An event of this session alone.
    Own(usize),
    Subscribe {
        session: usize,
        channel: usize,
    },
    Unsubscribe {
        session: usize,
        channel: usize,
    },
    SubscribePattern(usize),
    Detach(usize),
    /// Some(n): it names a cursor n events before the last one it saw.
    Return {
        session: usize,
        back: Option<u64>,
    },
    Read(usize),
    /// Messages of another node were lost on the bus.
    Lost,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (session, channel) = (0..SESSIONS, 0..CHANNELS.len());
    prop_oneof![
        24 => (channel.clone(), 1..800usize).prop_map(|(channel, bytes)| Step::Publish { channel, bytes }),
        2 => session.clone().prop_map(Step::Own),
        3 => (session.clone(), channel.clone()).prop_map(|(session, channel)| Step::Subscribe { session, channel }),
        1 => (session.clone(), channel).prop_map(|(session, channel)| Step::Unsubscribe { session, channel }),
        1 => session.clone().prop_map(Step::SubscribePattern),
        3 => session.clone().prop_map(Step::Detach),
        3 => (session.clone(), prop::option::of(0..4u64)).prop_map(|(session, back)| Step::Return { session, back }),
        2 => session.prop_map(Step::Read),
        1 => Just(Step::Lost),
        1 => (0..2_000u64).prop_map(Step::Pass),
    ]
}

struct Client {
    caller: Caller,
    session: String,
    attached: bool,
    seen: u64,
}

struct World {
    node: TestNode,
    clients: Vec<Client>,
    published: usize,
    /// Every reply and event, with the session that got it.
    heard: Vec<(usize, Value)>,
}

impl World {
    fn new(detached_unread: usize) -> World {
        let settings = Settings {
            detached_unread,
            mailbox_events: 8,
            mailbox_bytes: 1_600,
            commands_per_second: 0,
            address_hellos_per_second: 0,
            ..Settings::default()
        };
        let mut node = TestNode::new(settings);
        let clients = (0..SESSIONS).map(|n| {
            let (caller, hello) = node.client(&format!("user{n}"));
            let session = hello["session"].as_str().unwrap().to_owned();
            Client { caller, session, attached: true, seen: 0 }
        });
        let clients = clients.collect();
        World { node, clients, published: 0, heard: Vec::new() }
    }

    /// A command of a session: on its socket, or over a request of its own if it has none.
    fn command(&mut self, session: usize, frame: &str) {
        let client = &mut self.clients[session];
        let reply = self.node.send(&mut client.caller, frame);
        self.heard.push((session, reply));
    }

    fn read(&mut self, session: usize) {
        for event in self.node.events(&self.clients[session].caller) {
            self.clients[session].seen = event["to"].as_u64().or(event["seq"].as_u64()).unwrap();
            self.heard.push((session, event));
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Publish { channel, bytes } => {
                self.published += 1;
                let text = format!("{}:{}", self.published, "x".repeat(bytes));
                self.node.publish(CHANNELS[channel], &Value::from(text).to_string());
            }
            Step::Own(session) => {
                let id = self.clients[session].caller.listener.unwrap();
                let tail = br#","event":"note","n":1}"#.to_vec().into_boxed_slice();
                self.node.shards[0].core.put_json(id, tail);
            }
            Step::Subscribe { session, channel } => {
                self.command(session, &format!(r#"{{"op":"subscribe","channel":"{}"}}"#, CHANNELS[channel]));
            }
            Step::Unsubscribe { session, channel } => {
                self.command(
                    session,
                    &format!(r#"{{"op":"unsubscribe","channel":"{}"}}"#, CHANNELS[channel]),
                );
            }
            Step::SubscribePattern(session) => {
                self.command(session, r#"{"op":"subscribe","pattern":"room#*"}"#);
            }
            Step::Detach(session) => {
                let client = &mut self.clients[session];
                if std::mem::take(&mut client.attached) {
                    self.node.detach(&client.caller);
                }
            }
            Step::Return { session, back } => {
                let mut caller = self.node.socket();
                let client = &self.clients[session];
                let (name, id) = (format!("user{session}"), client.session.clone());
                let seq = back.map(|back| format!(r#","seq":{}"#, client.seen.saturating_sub(back)));
                let seq = seq.unwrap_or_default();
                let hello = format!(r#"{{"op":"hello","token":"{name}","session":"{id}"{seq}}}"#);
                let reply = self.node.send(&mut caller, &hello);
                assert_eq!(reply["ok"]["resumed"], true, "{reply}");
                self.heard.push((session, reply));
                (self.clients[session].caller, self.clients[session].attached) = (caller, true);
                self.read(session);
            }
            Step::Read(session) if self.clients[session].attached => self.read(session),
            Step::Read(_) => {}
            Step::Lost => {
                let lost = ShardEvent::BusLost(Some(CHANNELS[0].as_bytes().into()));
                self.node.handle(lost);
            }
            Step::Pass(ms) => self.node.pass(ms),
        }
    }
}

proptest! {
    #[test]
    fn shared_logs_change_nothing_that_a_client_sees(steps in prop::collection::vec(step(), 1..80)) {
        let (mut shared, mut alone) = (World::new(1), World::new(usize::MAX));
        let all_return = (0..SESSIONS).map(|session| Step::Return { session, back: None });
        for step in steps.into_iter().chain(all_return) {
            shared.take(&step);
            alone.take(&step);
            prop_assert_eq!(&shared.heard, &alone.heard, "after {:?}", step);
        }
    }
}

/// A node with this many detached sessions in one room.
fn room_of_absent(sessions: usize, settings: Settings) -> (TestNode, Vec<(String, String)>) {
    let settings = Settings {
        commands_per_second: 0,
        address_hellos_per_second: 0,
        address_commands_per_second: 0,
        sessions_per_user: 0,
        ..settings
    };
    let mut node = TestNode::new(settings);
    let sessions = (0..sessions).map(|n| {
        let user = format!("user{n}");
        let (mut caller, hello) = node.client(&user);
        node.send(&mut caller, r#"{"op":"subscribe","channel":"room#a"}"#);
        node.detach(&caller);
        (user, hello["session"].as_str().unwrap().to_owned())
    });
    let sessions = sessions.collect();
    (node, sessions)
}

#[test]
fn a_message_for_many_absent_sessions_is_kept_once() {
    let (mut node, sessions) = room_of_absent(200, Settings::default());
    let text = format!("\"{}\"", "x".repeat(1_000));
    for _ in 0..100 {
        assert_eq!(node.publish("room#a", &text), 200, "all of them count as receivers");
    }
    node.pass(2_000);
    let kept = node.shards[0].core.node().stats[0].mailbox_events.get();
    // Each mailbox has the first 8 messages, the log has the others.
    assert_eq!(kept, 200 * 8 + 92);
    let (user, session) = &sessions[77];
    let mut caller = node.socket();
    let hello = format!(r#"{{"op":"hello","token":"{user}","session":"{session}","seq":0}}"#);
    let reply = node.send(&mut caller, &hello);
    assert_eq!(reply["ok"]["resumed"], true, "{reply}");
    assert_eq!(node.event_numbers(&caller), (1..=100).collect::<Vec<u64>>());
}

#[test]
fn a_log_of_absent_sessions_gives_way_when_memory_is_short() {
    let budget = 64 << 10;
    let (mut node, sessions) =
        room_of_absent(2, Settings { mailbox_total_bytes: budget, ..Settings::default() });
    let text = format!("\"{}\"", "x".repeat(1_000));
    for _ in 0..500 {
        node.publish("room#a", &text);
    }
    node.pass(2_000);
    let kept = node.shards[0].core.node().stats[0].event_bytes.get();
    assert!(kept <= budget as u64, "{kept}");
    let (user, session) = &sessions[0];
    let mut caller = node.socket();
    let hello = format!(r#"{{"op":"hello","token":"{user}","session":"{session}","seq":0}}"#);
    node.send(&mut caller, &hello);
    let events = node.events(&caller);
    assert_eq!(events[0]["event"], "gap", "what was dropped is announced");
    assert_eq!(events[0]["from"], 1);
    assert_eq!(events.last().unwrap()["seq"], 500);
}
