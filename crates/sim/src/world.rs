//! The world of a run: one node with two shards, clients that come and go, a clock that only the run moves.
//! One seed gives one run, always the same. The production hub runs in it; only sockets and time are simulated.

use crate::client::{Client, Socket, Transport};
use crate::promise::Source;
use crate::rng::Rng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tavern_domain::{Identity, Rights, Scopes, Time};
use tavern_engine::{Answer, Found, Read, Work};
use tavern_hub::Input;
use tavern_hub::{
    Caller, Effects, Flow, Format, Gate, Goodbye, Link, LinkId, Node, Parcel, Poll, Scratch, Settings, Shard,
    read_session,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::ws;

pub const SHARDS: usize = 2;
pub const CHANNELS: usize = 4;
const CLIENTS: usize = 6;
/// Small mailboxes, so that they overflow.
const MAILBOX_EVENTS: usize = 24;

/// A fault planted in the harness: the run must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A frame on its way to a client is lost.
    LoseFrame,
    /// A frame arrives twice.
    RepeatFrame,
    /// Words between shards are lost.
    LoseParcel,
    /// Words between shards overtake each other.
    ReorderParcels,
    /// Bytes that a socket refused are forgotten.
    ForgetRefused,
    /// A shard settles events as written that the socket did not take.
    SettleTooMuch,
}

pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub shards: Vec<Shard>,
    pub clients: Vec<Client>,
    /// Words on their way between shards.
    pub parcels: Vec<VecDeque<Parcel>>,
    /// How many messages each publisher has sent on each channel.
    pub counts: BTreeMap<Source, u64>,
    pub sabotage: Sabotage,
    /// The sabotage has happened at least once.
    pub sabotaged: bool,
    node: Arc<Node>,
    publishers: usize,
    links: u32,
    links_of: BTreeMap<(usize, u32), usize>,
    pub(crate) scratch: Scratch,
    pub trace: u64,
    pub gaps: usize,
    pub resumed: usize,
    pub heard: usize,
    pub closed_slow: usize,
    pub restarts: usize,
}

struct Names;

impl Gate for Names {
    fn verify(&self, token: &str, _now: Time) -> Result<Identity, Refusal> {
        match token.strip_prefix("token-of-") {
            Some(user) => Ok(identity(user)),
            None => Err(Refusal::new(Code::Unauthenticated, "not a token")),
        }
    }
}

fn identity(user: &str) -> Identity {
    Identity {
        user: Some(user.into()),
        name: None,
        rights: Arc::new(Rights::all()),
        expires: Time::NEVER,
        unlimited: true,
        scopes: Scopes::NONE,
        key: None,
    }
}

pub type Outcome = Result<(), String>;

impl World {
    pub fn new(seed: u64, sabotage: Sabotage) -> World {
        let mut rng = Rng::new(seed);
        let now = Time(1_700_000_000_000);
        let node = make_node(&mut rng);
        let shards = make_shards(&node, &mut rng, now);
        World {
            now,
            shards,
            clients: (0..CLIENTS).map(Client::new).collect(),
            parcels: (0..SHARDS).map(|_| VecDeque::new()).collect(),
            counts: BTreeMap::new(),
            sabotage,
            sabotaged: false,
            node,
            publishers: 0,
            links: 0,
            links_of: BTreeMap::new(),
            scratch: Scratch::default(),
            trace: seed,
            gaps: 0,
            resumed: 0,
            heard: 0,
            closed_slow: 0,
            restarts: 0,
            rng,
        }
    }

    pub fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x100_0000_01b3).rotate_left(7);
    }

    fn new_link(&mut self, shard: usize, client: usize) -> LinkId {
        self.links += 1;
        self.links_of.insert((shard, self.links), client);
        LinkId(self.links)
    }

    pub(crate) fn may_sabotage(&mut self, kind: Sabotage) -> bool {
        let now = self.sabotage == kind && self.rng.chance(20);
        self.sabotaged |= now;
        now
    }

    /// Opens a socket on a shard and says hello, resuming if there is a session.
    pub fn connect(&mut self, who: usize, shard: usize) -> Outcome {
        let link = self.new_link(shard, who);
        let link = Link { id: link, format: Format::WebSocket };
        let caller = Caller::new(link, None);
        self.publishers += 1;
        let client = &mut self.clients[who];
        client.publisher = self.publishers;
        client.detach(self.now.ms());
        client.stalled = false;
        client.transport = Transport::Socket(Socket { caller, shard, out: Vec::new() });
        let user = &client.user;
        let hello = match &client.session {
            Some(session) => format!(
                r#"{{"id":1,"op":"hello","token":"token-of-{user}","session":"{session}","seq":{}}}"#,
                client.promise.seq
            ),
            None => format!(r#"{{"id":1,"op":"hello","token":"token-of-{user}"}}"#),
        };
        self.command(who, &hello)
    }

    /// Sends a command over the client's socket and carries out what follows.
    pub fn command(&mut self, who: usize, frame: &str) -> Outcome {
        let Transport::Socket(socket) = &mut self.clients[who].transport else { return Ok(()) };
        let shard = socket.shard;
        let mut reply = Vec::new();
        let mut flow = self.shards[shard].command(self.now, &mut socket.caller, frame.as_bytes(), &mut reply);
        if flow == Flow::Wait && find_no_party(self.now, &mut self.shards[shard]) {
            self.shards[shard].effects.ready.clear();
            flow = self.shards[shard].command(self.now, &mut socket.caller, frame.as_bytes(), &mut reply);
        }
        if reply.windows(8).any(|window| window == b"\"error\":") {
            return Err(format!("client {who}: {frame} was refused: {}", String::from_utf8_lossy(&reply)));
        }
        if flow == Flow::Greeted {
            write_frame(&mut socket.out, &reply);
        } else if !reply.is_empty() {
            if let Some(id) = socket.caller.listener {
                self.scratch.clear();
                self.scratch.fill(&mut self.shards[shard].core, id, socket.caller.link.id, usize::MAX);
                self.scratch.settle(&mut self.shards[shard].core, id, self.scratch.bytes.len());
                socket.out.extend_from_slice(&self.scratch.bytes);
            }
            write_frame(&mut socket.out, &reply);
        }
        if let Flow::Move(to) = flow {
            socket.shard = to;
            let link = self.new_link(to, who);
            if let Transport::Socket(socket) = &mut self.clients[who].transport {
                socket.caller.link.id = link;
            }
            return self.command(who, frame);
        }
        self.carry_out(shard)
    }

    pub fn publish(&mut self, who: usize, channel: usize) -> Outcome {
        if !matches!(self.clients[who].transport, Transport::Socket(_)) {
            return Ok(());
        }
        let source = (self.clients[who].publisher, channel);
        let count = self.counts.entry(source).or_default();
        *count += 1;
        let frame = format!(
            r#"{{"id":2,"op":"publish","channel":"room#{channel}","data":{{"p":{},"c":{count}}}}}"#,
            source.0
        );
        self.command(who, &frame)
    }

    pub fn subscribe(&mut self, who: usize, channel: usize) -> Outcome {
        if !self.clients[who].greeted {
            return Ok(());
        }
        let frame = if self.rng.chance(20) {
            format!(r#"{{"id":3,"op":"subscribe","pattern":"room#{channel}*"}}"#)
        } else {
            format!(r#"{{"id":3,"op":"subscribe","channel":"room#{channel}"}}"#)
        };
        self.command(who, &frame)?;
        let counts = self.counts.clone();
        self.clients[who].promise.subscribed(channel, &counts);
        Ok(())
    }

    /// Ends the transport without a word.
    pub fn lose(&mut self, who: usize) {
        let client = &mut self.clients[who];
        match client.detach(self.now.ms()) {
            Transport::Socket(socket) => {
                if let Some(id) = socket.caller.listener {
                    self.shards[socket.shard].detach(self.now, id, socket.caller.link.id);
                }
            }
            Transport::Poll { link, shard } => {
                let key = client.session.as_deref().and_then(read_session).map(|(key, _)| key);
                if let Some(id) = key.and_then(|key| self.shards[shard].find_session(key)) {
                    self.shards[shard].detach(self.now, id, link);
                }
            }
            Transport::None => {}
        }
    }

    /// A long-poll: its answer, if it comes at once, may be lost on the way.
    pub fn poll(&mut self, who: usize) -> Outcome {
        let Some(session) = self.clients[who].session.clone() else { return Ok(()) };
        let Some((key, _)) = read_session(&session) else { return Ok(()) };
        if matches!(self.clients[who].transport, Transport::Socket(_)) {
            self.lose(who);
        }
        let shard = key.shard(SHARDS);
        let link = self.new_link(shard, who);
        let cursor = self.clients[who].promise.seq;
        let timeout = if self.rng.chance(50) { 0 } else { 5_000 };
        let outcome = self.shards[shard].poll(self.now, key, None, link, Some(cursor), timeout);
        match outcome {
            Poll::Parked => self.clients[who].transport = Transport::Poll { link, shard },
            Poll::Ready { reset } => {
                if reset {
                    return Err(format!("client {who}: a poll with the right cursor was told reset"));
                }
                self.answer_poll(who, shard)?;
            }
            Poll::Unknown => self.forget(who)?,
        }
        self.carry_out(shard)
    }

    /// Does what a server does after each turn of a shard.
    pub fn carry_out(&mut self, shard: usize) -> Outcome {
        let Effects { dirty, closes, parcels, .. } = &mut self.shards[shard].effects;
        let dirty = std::mem::take(dirty);
        let closes = std::mem::take(closes);
        for (to, words) in parcels.iter_mut().enumerate() {
            self.parcels[to].extend(words.drain(..));
        }
        for id in dirty {
            let Some(link) = self.shards[shard].listener(id).and_then(|listener| listener.link) else {
                continue;
            };
            let Some(&who) = self.links_of.get(&(shard, link.id.0)) else { continue };
            match link.format {
                Format::Poll => self.answer_poll(who, shard)?,
                _ => self.write(who)?,
            }
        }
        for (link, goodbye) in closes {
            let Some(&who) = self.links_of.get(&(shard, link.0)) else { continue };
            self.closed(who, shard, link, goodbye);
        }
        Ok(())
    }

    fn closed(&mut self, who: usize, shard: usize, link: LinkId, goodbye: Goodbye) {
        let current = match &self.clients[who].transport {
            Transport::Socket(socket) => socket.shard == shard && socket.caller.link.id == link,
            Transport::Poll { link: current, shard: on } => *on == shard && *current == link,
            Transport::None => false,
        };
        if current {
            self.closed_slow += usize::from(goodbye == Goodbye::SlowReader);
            self.lose(who);
        }
    }

    /// Brings some of the words between shards to where they go.
    pub fn deliver_parcels(&mut self, most: usize) -> Outcome {
        for shard in 0..SHARDS {
            if self.parcels[shard].len() > 1 && self.may_sabotage(Sabotage::ReorderParcels) {
                self.parcels[shard].swap(0, 1);
            }
            for _ in 0..most {
                let Some(parcel) = self.parcels[shard].pop_front() else { break };
                if self.may_sabotage(Sabotage::LoseParcel) {
                    continue;
                }
                self.shards[shard].receive(self.now, parcel);
            }
            self.carry_out(shard)?;
        }
        Ok(())
    }

    pub fn advance(&mut self, ms: u64) -> Outcome {
        let until = self.now + ms;
        while self.now < until {
            let next = self.shards.iter().filter_map(Shard::next_wake).min().unwrap_or(until);
            self.now = next.max(self.now + 1).min(until);
            for shard in 0..SHARDS {
                self.shards[shard].wake(self.now);
                self.carry_out(shard)?;
            }
        }
        Ok(())
    }

    /// A clean restart of the only node: every session is packed up and taken in again.
    pub fn restart(&mut self) -> Outcome {
        self.restarts += 1;
        for _ in 0..64 {
            self.deliver_parcels(usize::MAX)?;
        }
        let mut packed = Vec::new();
        for shard in &mut self.shards {
            packed.extend(shard.pack(self.now));
        }
        for who in 0..self.clients.len() {
            self.clients[who].detach(self.now.ms());
        }
        self.links_of.clear();
        self.node = make_node(&mut self.rng);
        self.shards = make_shards(&self.node, &mut self.rng, self.now);
        for session in packed {
            let encoded = session.body.encode();
            let body = tavern_engine::SessionBody::decode(&encoded).map_err(|error| error.to_string())?;
            let session = tavern_hub::migration::Packed { body, ..session };
            self.shards[session.key.shard(SHARDS)].adopt(self.now, &session);
        }
        Ok(())
    }
}

fn make_node(rng: &mut Rng) -> Arc<Node> {
    let mut settings = Settings { shards: SHARDS, mailbox_events: MAILBOX_EVENTS, ..Settings::default() };
    if rng.chance(30) {
        settings.other_kinds.slow_reader = tavern_hub::SlowReader::Close;
    }
    if rng.chance(30) {
        settings.mailbox_total_bytes = 40_000;
    }
    Node::new(settings, Box::new(Names))
}

fn make_shards(node: &Arc<Node>, rng: &mut Rng, now: Time) -> Vec<Shard> {
    (0..SHARDS).map(|index| Shard::new(node.clone(), index, Box::new(rng.fork()), now)).collect()
}

fn write_frame(out: &mut Vec<u8>, payload: &[u8]) {
    ws::write_head(out, ws::Opcode::Text, payload.len());
    out.extend_from_slice(payload);
}

/// There is no store in this world: nobody has a party. True: somebody asked.
fn find_no_party(now: Time, shard: &mut Shard) -> bool {
    let work = std::mem::take(&mut shard.effects.work);
    let asks = |work: &Work| matches!(work, Work::Read(Read::Document(key)) if key.kind() == "guest");
    let (asked, others) = work.into_iter().partition::<Vec<_>, _>(|(_, work)| asks(work));
    shard.effects.work = others;
    for (ticket, _) in &asked {
        shard.handle(now, Input::Answer(*ticket, Answer::Read(Found::Document(None))));
    }
    !asked.is_empty()
}
