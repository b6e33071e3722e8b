//! A node with one or two shards and connections that are plain buffers, stepped by hand.

pub mod cluster;
pub mod history;
pub mod migration;
pub mod party_cluster;
pub mod people;

use serde_json::Value;
use std::sync::Arc;
use tavern_domain::rights::Grant;
use tavern_domain::{Identity, Rights, Scopes, Time, Verb};
use tavern_hub::*;
use tavern_store::{
    ChangedChannel, ChangedRow, Found, Read, Receipt, Row, RowKey, StoreAnswer, UserSnapshot, Work,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::ws;

pub struct SequentialRandom(u128);

impl SequentialRandom {
    pub fn new(seed: u128) -> SequentialRandom {
        SequentialRandom(seed)
    }
}

impl RandomSource for SequentialRandom {
    fn next(&mut self) -> u128 {
        self.0 = self.0.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(99);
        self.0
    }
}

/// Tokens are `user` (`nobody` is anonymous), or `user:pattern=verb,verb` for fewer rights, or `user@123` to end at 123 s.
pub struct TokenNames;

impl TokenVerifier for TokenNames {
    fn verify(&self, token: &str, now: Time) -> Result<Identity, Refusal> {
        let (token, expires) = match token.split_once('@') {
            Some((token, end)) => (token, Time(end.parse::<u64>().unwrap() * 1000)),
            None => (token, Time::NEVER),
        };
        if token == "bad" || now >= expires {
            return Err(Refusal::new(Code::Unauthenticated, "not a token"));
        }
        let (user, rights) = match token.split_once(':') {
            Some((user, grant)) => {
                let (pattern, verbs) = grant.split_once('=').unwrap();
                let verbs = verbs.split(',').filter_map(Verb::parse).collect();
                (user, Rights { grants: vec![Grant { pattern: pattern.as_bytes().into(), verbs }] })
            }
            None => (token, Rights::all()),
        };
        Ok(Identity {
            user: (user != "nobody").then(|| user.into()),
            name: None,
            rights: Arc::new(rights),
            expires,
            issued_s: 0,
            unlimited: false,
            scopes: Scopes::NONE,
            key: None,
        })
    }
}

pub struct TestNode {
    pub now: Time,
    pub shards: Vec<Shard>,
    /// True: a store answers it. False: `flow` answers the reads of a hello.
    pub has_store: bool,
    links: u32,
}

impl TestNode {
    /// Gives its first shard an input.
    pub fn handle(&mut self, input: ShardEvent) {
        self.shards[0].handle(self.now, input);
    }

    pub fn new(settings: Settings) -> TestNode {
        let now = Time(1_000_000);
        let shards = settings.shards;
        // Two nodes have different random numbers.
        let seed: u128 = settings.node.bytes().fold(7, |sum, byte| sum * 31 + u128::from(byte));
        let node = Node::new(settings, Box::new(TokenNames));
        let shards = (0..shards)
            .map(|i| Shard::new(node.clone(), i, Box::new(SequentialRandom(seed + i as u128)), now));
        TestNode { now, shards: shards.collect(), has_store: false, links: 0 }
    }

    pub fn socket(&mut self) -> Caller {
        self.links += 1;
        let link = Link { id: LinkId(self.links), format: EventFormat::WebSocket };
        Caller::new(link, None)
    }

    /// A socket whose hello was answered.
    pub fn client(&mut self, token: &str) -> (Caller, Value) {
        let mut caller = self.socket();
        let hello = self.send(&mut caller, &format!(r#"{{"op":"hello","token":"{token}"}}"#));
        assert!(hello["ok"].is_object(), "{hello}");
        (caller, hello["ok"].clone())
    }

    /// One command. In a node without a store, a hello finds nothing stored.
    pub fn flow(&mut self, caller: &mut Caller, frame: &str) -> (Flow, Value) {
        self.flow_on(0, caller, frame)
    }

    /// The same on a shard.
    pub fn flow_on(&mut self, shard: usize, caller: &mut Caller, frame: &str) -> (Flow, Value) {
        let (mut flow, mut reply) = self.run(shard, caller, frame);
        let fakes = !self.has_store && frame.contains(r#""op":"hello""#);
        while fakes && flow == Flow::Wait && self.answer_from_nothing(shard) {
            self.shards[shard].core.effects.ready.retain(|link| *link != caller.link.id);
            (flow, reply) = self.run(shard, caller, frame);
        }
        (flow, reply)
    }

    /// One command, without answering store requests. While a command of the caller waits, this continues it.
    pub fn run(&mut self, shard: usize, caller: &mut Caller, frame: &str) -> (Flow, Value) {
        let (shard, mut reply) = (&mut self.shards[shard], Vec::new());
        let flow = match caller.is_waiting() {
            true => shard.resume(self.now, caller, &mut reply),
            false => shard.command(self.now, caller, frame.as_bytes(), &mut reply),
        };
        (flow, serde_json::from_slice(&reply).unwrap_or(Value::Null))
    }

    /// Answers the reads of a hello or a poll about its user, for an empty store. False: nothing was read.
    pub fn answer_from_nothing(&mut self, shard: usize) -> bool {
        let shard = &mut self.shards[shard];
        let work = std::mem::take(&mut shard.core.effects.work);
        let mut answered = false;
        for (ticket, work) in work {
            let Some(answer) = answer_from_nothing(&work) else {
                shard.core.effects.work.push((ticket, work));
                continue;
            };
            answered = true;
            shard.handle(self.now, ShardEvent::Answer(ticket, answer));
        }
        answered
    }

    pub fn send(&mut self, caller: &mut Caller, frame: &str) -> Value {
        self.flow(caller, frame).1
    }

    /// The frames written to a socket, as JSON.
    pub fn events(&mut self, caller: &Caller) -> Vec<Value> {
        let mut scratch = Scratch::default();
        let Some(id) = caller.listener else { return Vec::new() };
        scratch.fill(&mut self.shards[0].core, id, caller.link.id, usize::MAX);
        scratch.settle(&mut self.shards[0].core, id, scratch.bytes.len());
        frames(&scratch.bytes)
    }

    pub fn event_numbers(&mut self, caller: &Caller) -> Vec<u64> {
        self.events(caller).iter().map(|event| event["seq"].as_u64().unwrap()).collect()
    }

    pub fn publish(&mut self, channel: &str, payload: &str) -> u32 {
        self.shards[0].core.publish(
            self.now,
            Namespace::Channel,
            channel.as_bytes(),
            payload.as_bytes(),
            false,
            None,
        )
    }

    pub fn detach(&mut self, caller: &Caller) {
        self.shards[0].detach(self.now, caller.listener.unwrap(), caller.link.id);
    }

    pub fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while self.now < until {
            let next = self.shards[0].next_wake().unwrap_or(until);
            self.now = next.max(self.now + 1).min(until);
            self.shards[0].wake(self.now);
        }
    }

    pub fn closes(&mut self) -> Vec<(LinkId, CloseReason)> {
        std::mem::take(&mut self.shards[0].core.effects.closes)
    }
}

fn answer_from_nothing(work: &Work) -> Option<StoreAnswer> {
    match work {
        Work::Read(Read::Document(key)) if key.kind() == "membership" => {
            Some(StoreAnswer::Read(Found::Document(None)))
        }
        Work::Read(Read::People { users, .. }) => {
            let nothing = |user: &Arc<str>| UserSnapshot {
                user: user.clone(),
                known: None,
                presences: Vec::new(),
                mutual: false,
            };
            Some(StoreAnswer::Read(Found::People(users.iter().map(nothing).collect())))
        }
        Work::Read(Read::Presence(key)) if key.channel.starts_with("user#") => {
            Some(StoreAnswer::Read(Found::Presence(None)))
        }
        Work::Commit(commit) => {
            let own = |channel: &str| channel.starts_with("user#");
            let puts = |row: &Row| matches!(row, Row::Presence(row) if own(&row.key.channel));
            let deletes = |key: &RowKey| matches!(key, RowKey::Presence(key) if own(&key.channel));
            let concerns_user = commit.puts.iter().any(puts) || commit.deletes.iter().any(deletes);
            concerns_user.then(|| {
                let changed = |key| ChangedRow { key, version: 1 };
                let raised = commit.raises.iter().map(|raise| ChangedChannel {
                    channel: raise.channel.clone(),
                    version: 1,
                    was_empty: true,
                });
                StoreAnswer::Committed(Receipt {
                    put: commit.puts.iter().map(Row::key).map(changed).collect(),
                    deleted: commit.deletes.iter().cloned().map(changed).collect(),
                    raised: raised.collect(),
                    ..Receipt::default()
                })
            })
        }
        Work::Read(_) => None,
    }
}

pub fn frames(mut bytes: &[u8]) -> Vec<Value> {
    let mut found = Vec::new();
    while let Ok(Some(head)) = ws::read_head(bytes, ws::Role::Client, 1 << 24) {
        let end = head.head_len + head.payload_len;
        found.push(serde_json::from_slice(&bytes[head.head_len..end]).unwrap());
        bytes = &bytes[end..];
    }
    assert!(bytes.is_empty());
    found
}

pub fn code(reply: &Value) -> &str {
    reply["error"]["code"].as_str().unwrap_or("ok")
}
