//! The hot paths. Each one is prepared once and then run many times; one run is what the table of `scripts/bench-guard`
//! shows the instructions of.

use crate::node::GuardNode;
use std::hint::black_box;
use std::sync::Arc;
use tavern_domain::party::{
    self, Membership, Party, PartyCommand, PartyFacts, PartyLimits, PartyMember, PartyRequest, PartyResult,
    UserPresence,
};
use tavern_domain::presence::{
    Attendance, AttendanceChange, AttendanceInput, NodeEpoch, OfflineReason, PresenceUpdate, Visibility,
};
use tavern_domain::{ClientId, Epoch, HistoryLimits, Time};
use tavern_hub::core::routing::RoutingTable;
use tavern_hub::node::registry::Registry;
use tavern_hub::{Caller, KindRules, Namespace};
use tavern_store::memory::MemoryEngine;
use tavern_store::{
    AnswerReceiver, Commit, ManualClock, NewHistoryMessage, Store, StoreAnswer, Ticket, Work,
};
use tavern_wire::bus::{BusMessage, presence};
use tavern_wire::{json, record, resp};

pub struct HotPath {
    pub name: &'static str,
    /// How often it runs: enough for a stable figure, a second or two under valgrind.
    pub times: u64,
    pub prepare: fn() -> Box<dyn FnMut()>,
}

pub const ALL: &[HotPath] = &[
    HotPath { name: "parse_publish", times: 2_000, prepare: parse_publish },
    HotPath { name: "parse_resp_publish", times: 5_000, prepare: parse_resp_publish },
    HotPath { name: "publish_1", times: 1_000, prepare: || publish(1) },
    HotPath { name: "publish_100", times: 100, prepare: || publish(100) },
    HotPath { name: "publish_1000", times: 10, prepare: || publish(1_000) },
    HotPath { name: "publish_0", times: 1_000, prepare: || publish_to_absent(0) },
    HotPath { name: "publish_absent_1000", times: 1_000, prepare: || publish_to_absent(1_000) },
    HotPath { name: "render_websocket", times: 1_000, prepare: render_websocket },
    HotPath { name: "routing", times: 1_000, prepare: routing },
    HotPath { name: "join_decision", times: 2_000, prepare: join_decision },
    HotPath { name: "join_and_leave", times: 200, prepare: join_and_leave },
    HotPath { name: "party_decision", times: 1_000, prepare: party_decision },
    HotPath { name: "party_record", times: 1_000, prepare: party_record },
    HotPath { name: "bus_presence", times: 1_000, prepare: bus_presence },
    HotPath { name: "history_publish", times: 200, prepare: history_publish },
    HotPath { name: "history_commit", times: 500, prepare: history_commit },
];

const BODY: &str = r#"{"text":"the quick brown fox jumps over the lazy dog","n":123456,"tags":["a","b"]}"#;
const NOW: Time = Time(1_000_000);

fn publish_frame(channel: &str) -> String {
    format!(r#"{{"op":"publish","id":17,"channel":"{channel}","data":{BODY}}}"#)
}

/// A publish of a JSON client.
fn parse_publish() -> Box<dyn FnMut()> {
    let frame = publish_frame("room#lobby");
    Box::new(move || {
        assert!(json::parse_request(black_box(frame.as_bytes())).is_ok());
    })
}

/// A publish of a Redis client.
fn parse_resp_publish() -> Box<dyn FnMut()> {
    let head = format!("*3\r\n$7\r\nPUBLISH\r\n$10\r\nroom#lobby\r\n${}\r\n", BODY.len());
    let bytes = [head.as_bytes(), BODY.as_bytes(), b"\r\n"].concat();
    let limits = resp::Limits::new(65_536, 1_024, 131_072, 65_536);
    let (mut parser, mut arguments) = (resp::Parser::default(), Vec::new());
    Box::new(move || {
        let parsed = parser.parse(black_box(&bytes), &limits, &mut arguments);
        assert_eq!(parsed, Ok(resp::Parsed::Command { consumed: bytes.len() }));
    })
}

fn listeners(node: &mut GuardNode, count: usize, channel: &str) -> Vec<Caller> {
    let subscribe = format!(r#"{{"op":"subscribe","channel":"{channel}"}}"#);
    let mut callers: Vec<Caller> = (0..count).map(|n| node.client(&format!("user{n}"))).collect();
    callers.iter_mut().for_each(|caller| node.command(caller, &subscribe));
    callers
}

/// From the frame of the publisher to the bytes for every listener.
fn publish(count: usize) -> Box<dyn FnMut()> {
    let mut node = GuardNode::new();
    let callers = listeners(&mut node, count, "room#lobby");
    let (mut publisher, frame) = (node.client("publisher"), publish_frame("room#lobby"));
    node.write_events(&callers);
    Box::new(move || {
        node.command(&mut publisher, black_box(&frame));
        assert_eq!(node.write_events(&callers), count);
    })
}

/// A room whose sessions have no connection: each will get what it missed when it comes back.
fn publish_to_absent(count: usize) -> Box<dyn FnMut()> {
    let mut node = GuardNode::new();
    for caller in listeners(&mut node, count, "room#lobby") {
        node.detach(&caller);
    }
    let (mut publisher, frame) = (node.client("publisher"), publish_frame("room#lobby"));
    Box::new(move || node.command(&mut publisher, black_box(&frame)))
}

/// The bytes of 32 unread events.
fn render_websocket() -> Box<dyn FnMut()> {
    let mut node = GuardNode::new();
    let listener = listeners(&mut node, 1, "room#lobby").remove(0);
    let (mut publisher, frame) = (node.client("publisher"), publish_frame("room#lobby"));
    (0..32).for_each(|_| node.command(&mut publisher, &frame));
    let bytes = node.render(&listener);
    assert!(bytes > 32 * BODY.len(), "all events are unread");
    Box::new(move || assert_eq!(node.render(black_box(&listener)), bytes))
}

/// 100 lookups among 10,000 channels.
fn routing() -> Box<dyn FnMut()> {
    let mut table = RoutingTable::new(0, Registry::new());
    let names: Vec<String> = (0..10_000).map(|n| format!("room#{n}")).collect();
    for name in &names {
        table.make(Namespace::Channel, name.as_bytes(), KindRules::default);
    }
    let mut at = 0;
    Box::new(move || {
        for _ in 0..100 {
            at = (at + 7_919) % names.len();
            assert!(table.find(Namespace::Channel, black_box(names[at].as_bytes())).is_some());
        }
    })
}

/// A client joins a channel in which its user has another client, and leaves: the rules alone.
fn join_decision() -> Box<dyn FnMut()> {
    let node = NodeEpoch { node: "guard".into(), epoch: Epoch(1) };
    let mut attendance = Attendance::default();
    let mut changes = Vec::new();
    let join =
        |n| AttendanceInput::Join { client: ClientId::from_random(n), node: node.clone(), state: None };
    attendance.handle(NOW, join(1), &mut changes);
    let (join, leave) =
        (join(2), AttendanceInput::Leave { client: ClientId::from_random(2), reason: OfflineReason::Left });
    Box::new(move || {
        changes.clear();
        attendance.handle(NOW, black_box(&join).clone(), &mut changes);
        attendance.handle(NOW, black_box(&leave).clone(), &mut changes);
        assert_eq!(changes.len(), 2);
    })
}

/// The commands join and leave: frames, rules, two commits to the in-memory store, and their notices.
fn join_and_leave() -> Box<dyn FnMut()> {
    let mut node = GuardNode::new();
    let mut caller = node.client("ann");
    Box::new(move || {
        node.command(
            &mut caller,
            black_box(r#"{"op":"join","channel":"room#lobby","state":{"ready":true}}"#),
        );
        node.command(&mut caller, black_box(r#"{"op":"leave","channel":"room#lobby"}"#));
    })
}

fn party() -> Party {
    let member = |n: usize| PartyMember {
        user: format!("user{n}").into(),
        name: Some(format!("User {n}").into()),
        since: NOW,
        away: None,
    };
    Party {
        id: 7,
        version: 12,
        members: (0..4).map(member).collect(),
        pending: Vec::new(),
        go: None,
        data: Some(r#"{"mode":"ranked","map":"north"}"#.into()),
    }
}

/// The leader of a party of four invites a user: the rules alone.
fn party_decision() -> Box<dyn FnMut()> {
    let party = party();
    let mut facts = PartyFacts::default();
    let members: Vec<Arc<str>> = party.members.iter().map(|member| member.user.clone()).collect();
    for user in &members {
        facts.put_membership(user.clone(), Membership { party: Some(party.id), ..Membership::default() });
        facts.put_presence(user.clone(), UserPresence::Online { name: None });
    }
    let guest: Arc<str> = "guest".into();
    facts.put_membership(guest.clone(), Membership::default());
    facts.put_presence(guest.clone(), UserPresence::Online { name: None });
    facts.put_party(party.id, Some(party.clone()));
    let request = PartyRequest {
        user: Some(members[0].clone()),
        name: None,
        party: Some(party.id),
        if_version: Some(party.version),
        rid: Some("request-1".into()),
        command: PartyCommand::Invite { user: guest },
    };
    let limits = PartyLimits::default();
    Box::new(move || match party::run(NOW, &limits, black_box(&facts), &request) {
        PartyResult::Answered { changes, .. } => assert!(!changes.is_empty()),
        PartyResult::Need(needs) => panic!("facts are missing: {needs:?}"),
    })
}

/// A party as it is stored, written and read.
fn party_record() -> Box<dyn FnMut()> {
    let party = party();
    Box::new(move || {
        let bytes = record::write_party(black_box(&party));
        assert!(record::read_party(party.id, &bytes).is_ok());
    })
}

/// A presence change as a message between nodes, written and read.
fn bus_presence() -> Box<dyn FnMut()> {
    let client = ClientId::from_random(77);
    let update = PresenceUpdate {
        user: "ann".into(),
        name: Some("Ann".into()),
        anonymous: false,
        visibility: Visibility::Everyone,
        at: NOW,
        changes: vec![AttendanceChange::UserOnline, AttendanceChange::ClientOnline { client, state: None }],
        to: 9,
        begins: false,
    };
    Box::new(move || {
        let bytes = presence::encode(black_box(&update));
        assert!(matches!(BusMessage::decode(&bytes), Some(BusMessage::Presence(_))));
    })
}

/// A publish to a channel with history and one listener: the frame, the commit, the delivery, the bytes.
fn history_publish() -> Box<dyn FnMut()> {
    let mut node = GuardNode::new();
    let callers = listeners(&mut node, 1, "chat#lobby");
    let (mut publisher, frame) = (node.client("publisher"), publish_frame("chat#lobby"));
    node.write_events(&callers);
    Box::new(move || {
        node.command(&mut publisher, black_box(&frame));
        assert_eq!(node.write_events(&callers), 1);
    })
}

struct NoReceiver;

impl AnswerReceiver for NoReceiver {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        assert!(matches!(answers[..], [(_, StoreAnswer::Committed(_))]));
    }
}

/// A message appended to a full history of the in-memory store.
fn history_commit() -> Box<dyn FnMut()> {
    let engine = MemoryEngine::new(Arc::new(ManualClock::at(NOW)));
    let store = engine.store("guard", Arc::new(NoReceiver));
    let message = NewHistoryMessage {
        channel: "chat#lobby".into(),
        id: None,
        sender: None,
        json: true,
        body: BODY.as_bytes().into(),
        keep: HistoryLimits { messages: 20, bytes: 1 << 20, ttl_ms: 60_000 },
    };
    Box::new(move || {
        let commit = Commit { history: vec![black_box(&message).clone()], ..Commit::default() };
        store.submit(vec![(Ticket(1), Work::Commit(commit))]);
    })
}
