//! Users with parties on a cluster: commands may be in progress at the same time on several nodes, nodes die and
//! others settle their deadlines, and the documents are read from the store.
//! Must hold: nothing here knows the rules; `check` checks the invariants of the documents at any moment.

use super::cluster::TestCluster;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{Membership, Party};
use tavern_domain::presence::{ClientLoss, NodeEpoch, OfflineReason};
use tavern_hub::{Caller, Flow, InboxRules, KindRules, PartyRules, Settings};
use tavern_hub::{LivenessTask, ShardEvent, TakenOver};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Found, Read, Row, RowKind, Writer};
use tavern_wire::record::{self, read_membership, read_party};

pub const INVITE: u64 = 800;
pub const GATHER: u64 = 300;
pub const GRACE: u64 = 500;
pub const OWN_GRACE: u64 = 150;
pub const RESUME: u64 = 100;
pub const MEMBERS_MAX: u32 = 4;

pub fn settings() -> Settings {
    let rules = tavern_domain::party::PartyLimits {
        max_members: MEMBERS_MAX,
        invite_ms: INVITE,
        gather_ms: GATHER,
        grace_ms: GRACE,
        reinvite_ms: 100,
        invites_per_minute: 100_000,
        ..tavern_domain::party::PartyLimits::default()
    };
    let own = KindRules { grace_ms: OWN_GRACE, ..KindRules::default() };
    Settings {
        resume_ms: RESUME,
        kinds: [("user".into(), own)].into(),
        inbox: InboxRules { messages: 1_000_000, bytes: 1 << 30, keep_ms: 86_400_000 },
        parties: PartyRules { rules, block_ms: 1_000 },
        ..Settings::default()
    }
}

/// One session of a user.
pub struct TestSession {
    pub user: String,
    pub at: usize,
    pub caller: Caller,
    /// A command in progress.
    frame: Option<String>,
    pub replies: Vec<Value>,
    pub lost: bool,
    /// The ids of the inbox messages it received.
    pub numbers: Vec<u64>,
    /// The reply to its hello.
    pub hello: Value,
}

pub struct PartyCluster {
    pub cluster: TestCluster,
    pub sessions: Vec<TestSession>,
    /// The parties that were seen, with their last version, and those that have ended.
    living: BTreeMap<u64, u64>,
    over: BTreeSet<u64>,
}

/// The stored documents.
#[derive(Debug, Default)]
pub struct StoredParties {
    pub parties: BTreeMap<u64, Party>,
    pub memberships: BTreeMap<Arc<str>, Membership>,
}

impl PartyCluster {
    pub fn new(nodes: usize, settings: &Settings) -> PartyCluster {
        let cluster = TestCluster::sized(nodes, settings);
        PartyCluster { cluster, sessions: Vec::new(), living: BTreeMap::new(), over: BTreeSet::new() }
    }

    /// A user connects, and their presence is committed.
    pub fn client(&mut self, at: usize, user: &str) -> usize {
        self.connect(at, user, "")
    }

    /// A new connection sends hello, with more members than the token; the session is added to the list.
    pub fn connect(&mut self, at: usize, user: &str, more: &str) -> usize {
        let caller = self.cluster.node(at).socket();
        let (name, replies, numbers) = (user.to_owned(), Vec::new(), Vec::new());
        self.sessions.push(TestSession {
            user: name,
            at,
            caller,
            frame: None,
            replies,
            lost: false,
            numbers,
            hello: Value::Null,
        });
        let who = self.sessions.len() - 1;
        self.run(who, format!(r#"{{"op":"hello","token":"{user}"{more}}}"#));
        let hello = self.answer(who);
        assert!(hello["ok"].is_object(), "{hello}");
        self.sessions[who].hello = hello["ok"].clone();
        self.settle();
        who
    }

    /// Begins a command; its answer arrives later.
    pub fn begin(&mut self, who: usize, op: &str, more: &str) {
        let comma = if more.is_empty() { "" } else { "," };
        let frame = format!(r#"{{"op":"{op}"{comma}{more}}}"#);
        assert!(self.sessions[who].frame.is_none(), "one command at a time");
        self.run(who, frame);
    }

    fn run(&mut self, who: usize, frame: String) {
        let session = &mut self.sessions[who];
        let (flow, reply) = self.cluster.node(session.at).run(0, &mut session.caller, &frame);
        match flow {
            Flow::Wait => session.frame = Some(frame),
            _ => session.replies.push(reply),
        }
    }

    pub fn is_busy(&self, who: usize) -> bool {
        self.sessions[who].frame.is_some()
    }

    /// Everything that can happen now happens, and commands that can be answered are.
    pub fn settle(&mut self) {
        loop {
            self.cluster.settle();
            let mut ready = Vec::new();
            for (who, session) in self.sessions.iter().enumerate() {
                let links = &self.cluster.node(session.at).shards[0].core.effects.ready;
                if session.frame.is_some() && links.contains(&session.caller.link.id) {
                    ready.push(who);
                }
            }
            let ats: BTreeSet<usize> = self.sessions.iter().map(|session| session.at).collect();
            ats.into_iter().for_each(|at| self.cluster.node(at).shards[0].core.effects.ready.clear());
            if ready.is_empty() {
                return;
            }
            for who in ready {
                let frame = self.sessions[who].frame.take().unwrap_or_default();
                self.run(who, frame);
            }
        }
    }

    pub fn live(&mut self, ms: u64) {
        for _ in 0..ms {
            self.settle();
            self.cluster.pass(1);
        }
        self.settle();
    }

    /// One command and its answer.
    pub fn say(&mut self, who: usize, op: &str, more: &str) -> Value {
        self.begin(who, op, more);
        self.answer(who)
    }

    pub fn answer(&mut self, who: usize) -> Value {
        for _ in 0..10_000 {
            if !self.is_busy(who) {
                return self.sessions[who].replies.last().cloned().unwrap_or_default();
            }
            self.live(1);
        }
        panic!("{} is never answered", self.sessions[who].user);
    }

    #[track_caller]
    pub fn ok(&mut self, who: usize, op: &str, more: &str) -> Value {
        let reply = self.say(who, op, more);
        assert_eq!(super::code(&reply), "ok", "{op} {more}: {reply}");
        reply["ok"].clone()
    }

    /// One user invites the other, who accepts; returns the number of the party.
    #[track_caller]
    pub fn join(&mut self, host: usize, invitee: usize) -> u64 {
        let id = self.invite(host, invitee);
        self.ok(invitee, "party.accept", &format!(r#""party_id":{id}"#));
        id
    }

    #[track_caller]
    pub fn invite(&mut self, host: usize, invitee: usize) -> u64 {
        let user = self.sessions[invitee].user.clone();
        self.ok(host, "party.invite", &format!(r#""user":"{user}""#))["party_id"].as_u64().unwrap()
    }

    /// Disconnects without `bye`.
    pub fn lose(&mut self, who: usize) {
        let session = &mut self.sessions[who];
        session.lost = true;
        session.frame = None;
        self.cluster.node(session.at).detach(&session.caller);
    }

    /// A node crashes, and with it the commands in progress there.
    pub fn crash(&mut self, at: usize) {
        self.cluster.crash(at);
        for session in self.sessions.iter_mut().filter(|session| session.at == at) {
            session.lost = true;
            session.frame = None;
        }
    }

    /// Another node takes over the presences of a dead one, as its liveness asks it to.
    pub fn take_over(&mut self, dead: usize, by: usize) {
        let settings = &self.cluster.node(dead).shards[0].core.node().settings;
        let writer = Writer { node: settings.node.as_str().into(), epoch: settings.epoch };
        let read = Read::PresencesAt { node: writer.clone(), after: None, limit: PAGE_ROWS };
        let Found::Presences(page) = self.cluster.stored(read) else { panic!("no page") };
        let at = self.cluster.now();
        for row in page.rows {
            let grace_ms = if row.row.key.channel.starts_with("user#") { OWN_GRACE } else { 0 };
            let loss = ClientLoss { at, grace_ms, reason: OfflineReason::NodeDown };
            self.cluster.node(by).shards[0].handle(
                at,
                ShardEvent::Liveness(LivenessTask::TakeOver(Box::new(TakenOver {
                    presence: row.row.clone(),
                    node: NodeEpoch::from(&writer),
                    loss,
                    seen: at,
                }))),
            );
        }
        self.settle();
    }

    /// A node settles overdue deadlines, as its liveness asks it to.
    pub fn look_after(&mut self, by: usize) {
        let now = self.cluster.now();
        let read = Read::DueDeadlines { by: now, after: None, limit: PAGE_ROWS };
        let Found::Deadlines(page) = self.cluster.stored(read) else { panic!("no page") };
        for deadline in page.rows {
            self.cluster.node(by).shards[0]
                .handle(now, ShardEvent::Liveness(LivenessTask::Overdue(deadline.clone())));
        }
    }

    pub fn stored_parties(&self) -> StoredParties {
        let mut kept = StoredParties::default();
        let read = Read::Rows { kind: RowKind::Document, after: None, limit: PAGE_ROWS };
        let Found::Rows(page) = self.cluster.stored(read) else { panic!("no page") };
        assert!(!page.more, "one page is enough here");
        for row in page.rows {
            let Row::Document(document) = row.row else { continue };
            let (kind, name) = (document.key.kind(), document.key.name());
            if kind == record::PARTY {
                let id = name.parse().unwrap();
                kept.parties.insert(id, read_party(id, &document.body).unwrap());
            } else if kind == record::MEMBERSHIP {
                kept.memberships.insert(name.into(), read_membership(&document.body).unwrap());
            }
        }
        kept
    }

    pub fn party(&self, id: u64) -> Option<Party> {
        self.stored_parties().parties.remove(&id)
    }

    /// Every inbox message that a user was ever sent, with its id.
    pub fn inbox(&self, user: &str) -> Vec<(u64, Value)> {
        let mut found: Vec<(u64, Value)> = Vec::new();
        loop {
            let after = found.last().map_or(0, |(n, _)| *n);
            let read = Read::Inbox { user: user.into(), after, limit: PAGE_ROWS };
            let Found::Inbox(inbox) = self.cluster.stored(read) else { panic!("no inbox") };
            let parsed = |body: &[u8]| serde_json::from_slice(body).unwrap();
            found.extend(inbox.page.rows.iter().map(|row| (row.n, parsed(&row.body))));
            if !inbox.page.more {
                return found;
            }
        }
    }

    /// `bob leave kicked`, of the inbox messages in the store.
    pub fn inbox_summaries(&self, user: &str) -> Vec<String> {
        self.inbox(user).iter().map(|(_, message)| summary(message)).collect()
    }

    /// The events a session received: each inbox message once, in order.
    pub fn check_events(&mut self, who: usize) {
        let session = &mut self.sessions[who];
        if session.lost || self.cluster.is_dead(session.at) {
            return;
        }
        for event in self.cluster.node(session.at).events(&session.caller) {
            if let Some(number) = event["message_id"].as_u64() {
                let last = session.numbers.last().copied().unwrap_or(0);
                assert!(number > last, "{} received message {number} after {last}", session.user);
                session.numbers.push(number);
            }
        }
    }

    /// The invariants of the documents, at any moment.
    pub fn check(&mut self) -> Result<(), String> {
        let kept = self.stored_parties();
        for (id, party) in &kept.parties {
            let users: Vec<&str> = party.members.iter().map(|member| &*member.user).collect();
            let pending: Vec<&str> = party.pending.iter().map(|pending| &*pending.user).collect();
            let all: BTreeSet<&str> = users.iter().chain(&pending).copied().collect();
            let wrong = |what: &str| Err(format!("{what}: {party:?}"));
            if users.is_empty()
                || all.len() != users.len() + pending.len()
                || all.len() > MEMBERS_MAX as usize
            {
                return wrong("its seats");
            }
            if users.len() == 1 && pending.is_empty() {
                return wrong("it should be over");
            }
            if party
                .go
                .as_ref()
                .is_some_and(|go| go.members.iter().map(|user| &**user).ne(users.iter().copied()))
            {
                return wrong("its ticket");
            }
            let membership = |user: &str| kept.memberships.get(user);
            if users.iter().any(|user| membership(user).and_then(|membership| membership.party) != Some(*id))
            {
                return wrong("a member does not know");
            }
            let sees =
                |user: &str| membership(user).is_some_and(|membership| membership.invites.contains(id));
            if party.pending.iter().any(|pending| sees(&pending.user) == pending.hidden) {
                return wrong("an invited user's membership does not have the invite");
            }
            if self.over.contains(id) || self.living.get(id).is_some_and(|before| *before > party.version) {
                return wrong("it has come back");
            }
        }
        for (user, membership) in &kept.memberships {
            let member = |id: u64| kept.parties.get(&id).is_some_and(|party| party.member(user).is_some());
            let invited =
                |id: u64| kept.parties.get(&id).is_some_and(|party| party.invite_of(user).is_some());
            if membership.party.is_some_and(|id| !member(id))
                || membership.invites.iter().any(|id| !invited(*id))
            {
                return Err(format!("{user} has a wrong membership: {membership:?}"));
            }
        }
        self.over.extend(self.living.keys().filter(|id| !kept.parties.contains_key(id)));
        self.living = kept.parties.iter().map(|(id, party)| (*id, party.version)).collect();
        Ok(())
    }

    pub fn now(&self) -> Time {
        self.cluster.now()
    }
}

pub fn summary(message: &Value) -> String {
    let text = |name: &str| message[name].as_str().map(|text| format!(" {text}")).unwrap_or_default();
    let who = message["uid"].as_str().unwrap_or("anonymous");
    format!("{who} {}{}{}", message["cmd"].as_str().unwrap_or("?"), text("invitee"), text("reason"))
}
