//! The connections of simulated clients: WebSockets with a network that accepts as much as the client reads, and
//! long-polls.
//! The node's side does what the server's shard does: replies follow the events before them, bytes that a socket
//! refuses stay in the mailbox, a command that waits blocks those behind it.

use super::Cluster;
use super::signal::{Ended, Signal};
use crate::planted::PlantedFault;
use serde_json::Value;
use std::collections::VecDeque;
use tavern_domain::{ClientId, SessionKey};
use tavern_hub::{
    Caller, CloseReason, EventFormat, Flow, Link, LinkId, ListenerId, Poll, PollFlags, Shard, read_session,
};
use tavern_wire::ws;

/// Bytes collected for one write.
const WRITE_BYTES: usize = 4096;
const FRAME_BYTES: usize = 1 << 24;

/// Identifies a connection while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

pub struct Socket {
    pub client: usize,
    pub node: usize,
    shard: usize,
    caller: Caller,
    /// Commands that were not run yet; the first one may wait for something.
    input: VecDeque<Vec<u8>>,
    waits: bool,
    /// Written by the node and not yet accepted by the network.
    out: Vec<u8>,
    /// Received by the client and not yet a whole frame.
    partial: Vec<u8>,
    /// How many bytes the network accepts before the client reads again.
    room: usize,
    /// The client has disconnected, and the node does not know yet.
    abandoned: bool,
}

/// A long-poll that is parked.
pub struct ParkedPoll {
    pub client: usize,
    pub node: usize,
    shard: usize,
    key: SessionKey,
    reset: bool,
    loses_answer: bool,
}

/// A long-poll that a client sends.
pub struct SimPoll<'a> {
    pub session: &'a str,
    pub cursor: u64,
    pub timeout_ms: u64,
    /// Its answer is lost on the way.
    pub loses_answer: bool,
}

impl Cluster {
    /// A client opens a socket on a shard of a node.
    pub fn connect(&mut self, client: usize, node: usize, shard: usize) -> ConnectionId {
        assert!(self.nodes[node].is_open());
        let id = new_connection(self);
        let caller = Caller::new(Link { id: LinkId(id.0), format: EventFormat::WebSocket }, None);
        let socket = Socket {
            client,
            node,
            shard: shard % self.nodes[node].shards,
            caller,
            input: VecDeque::new(),
            waits: false,
            out: Vec::new(),
            partial: Vec::new(),
            room: usize::MAX,
            abandoned: false,
        };
        self.sockets.insert(id, socket);
        id
    }

    /// A client sends a command.
    pub fn send(&mut self, id: ConnectionId, frame: String) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.input.push_back(frame.into_bytes());
        let node = socket.node;
        self.run_input(id);
        self.carry_out(node);
    }

    /// Runs the commands of a socket, until one of them waits.
    pub(super) fn run_input(&mut self, id: ConnectionId) {
        while let Some(socket) = self.sockets.get_mut(&id) {
            let local = self.nodes[socket.node].local(self.now);
            let Some(running) = self.nodes[socket.node].awake() else { return };
            if socket.waits || running.leaves_by.is_some() {
                return;
            }
            let (shard, mut reply) = (&mut running.shards[socket.shard], Vec::new());
            let flow = match socket.caller.is_waiting() {
                true => shard.resume(local, &mut socket.caller, &mut reply),
                false => {
                    let Some(frame) = socket.input.pop_front() else { return };
                    shard.command(local, &mut socket.caller, &frame, &mut reply)
                }
            };
            match flow {
                Flow::Wait => {
                    socket.waits = true;
                    return;
                }
                Flow::Move(to) => {
                    move_socket(self, id, to);
                    continue;
                }
                Flow::Done | Flow::Greeted | Flow::Close(_) => {}
                Flow::Begun => unreachable!("these sockets wait for the answer to each command"),
            }
            take_reply(self, id, &flow, &reply);
            if let Flow::Close(reason) = flow {
                return self.end_connection(id, Ended::Node(reason));
            }
        }
    }

    /// A command that waited may continue.
    pub(super) fn ready(&mut self, link: LinkId) {
        let Some(id) = self.connections.get(&link.0).copied() else { return };
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.waits = false;
            self.run_input(id);
        } else {
            self.answer_poll(id);
        }
    }

    /// Sets how many bytes the network accepts before the client reads again.
    pub fn set_room(&mut self, id: ConnectionId, room: usize) {
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.room = room;
            self.flush(id);
        }
    }

    /// A listener has unread events.
    pub(super) fn write(&mut self, link: Link) {
        let Some(id) = self.connections.get(&link.id.0).copied() else { return };
        match link.format {
            EventFormat::Poll => self.answer_poll(id),
            _ => self.flush(id),
        }
    }

    /// Writes unread events, as far as the network accepts them.
    fn flush(&mut self, id: ConnectionId) {
        let Some(socket) = self.sockets.get_mut(&id).filter(|socket| !socket.abandoned) else { return };
        let Some(running) = self.nodes[socket.node].awake() else { return };
        let (shard, link) = (&mut running.shards[socket.shard], socket.caller.link.id);
        let (listener, scratch) = (socket.caller.listener, &mut self.scratch);
        loop {
            scratch.begin(&socket.out);
            let more = listener.is_some_and(|id| scratch.fill(&mut shard.core, id, link, WRITE_BYTES));
            let (own, all) = (scratch.own(), scratch.bytes.len());
            let taken = all.min(socket.room);
            if socket.room < usize::MAX {
                socket.room -= taken;
            }
            socket.partial.extend_from_slice(&scratch.bytes[..taken]);
            let early = self.planted.is(PlantedFault::EarlySettle) && taken < all;
            let settled = if early { all } else { taken };
            let end = listener.map_or(settled, |id| scratch.settle(&mut shard.core, id, settled));
            if taken < own {
                socket.out.drain(..taken);
            } else {
                socket.out.clear();
                socket.out.extend_from_slice(&scratch.bytes[taken..end.min(all)]);
            }
            let forgotten = self.planted.is(PlantedFault::ForgottenBytes) && end > taken;
            if (early || forgotten) && taken >= own {
                self.planted.strike();
                socket.out.clear();
                socket.partial.truncate(whole_frames(&socket.partial));
            }
            if !more || taken < all {
                break;
            }
        }
        read_frames(self, id);
    }

    /// The client disconnects without `bye`.
    pub fn disconnect(&mut self, id: ConnectionId) {
        let socket = self.sockets.get(&id).map(|socket| (socket.client, socket.node));
        let Some((client, node)) = socket.or(self.polls.get(&id).map(|poll| (poll.client, poll.node))) else {
            return;
        };
        self.signals.push_back(Signal::Closed { client, connection: id, why: Ended::Client });
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.abandoned = true;
        }
        let missed = self.planted.strikes(PlantedFault::MissedDisconnect, 30);
        match self.nodes[node].running() {
            _ if missed => {}
            Some(running) if running.asleep => return running.gone.push(id),
            _ => self.detach(id),
        }
        self.sockets.remove(&id);
        self.polls.remove(&id);
        self.carry_out(node);
    }

    /// The node learns that a connection is closed.
    pub(super) fn detach(&mut self, id: ConnectionId) {
        let place = match (self.sockets.get(&id), self.polls.get(&id)) {
            (Some(socket), _) => {
                Some((socket.node, socket.shard, socket.caller.link.id, socket.caller.listener))
            }
            (_, Some(poll)) => {
                let (node, shard, key) = (poll.node, poll.shard, poll.key);
                let running = self.nodes[node].running();
                let listener = running.and_then(|running| running.shards[shard].core.find_session(key));
                Some((node, shard, LinkId(id.0), listener))
            }
            _ => None,
        };
        let Some((node, shard, link, listener)) = place else { return };
        let local = self.nodes[node].local(self.now);
        let Some(running) = self.nodes[node].running() else { return };
        let shard = &mut running.shards[shard];
        if let Some(listener) = listener {
            let session = attached_session(shard, listener, link);
            shard.detach(local, listener, link);
            self.signals.extend(session.map(|session| Signal::Detached { session, local }));
        }
        match self.sockets.get(&id) {
            Some(socket) => shard.abandon(local, &socket.caller),
            None => shard.release_link(link),
        }
    }

    /// The node closes a connection.
    pub(super) fn close(&mut self, link: LinkId, reason: CloseReason) {
        let Some(id) = self.connections.get(&link.0).copied() else { return };
        let local = self.sockets.get(&id).map(|socket| self.nodes[socket.node].local(self.now));
        if reason == CloseReason::SlowReader {
            self.detach(id);
        } else if let Some(socket) = self.sockets.get(&id)
            && let Some(running) = self.nodes[socket.node].running()
        {
            running.shards[socket.shard].abandon(local.unwrap_or(self.now), &socket.caller);
        }
        self.end_connection(id, Ended::Node(reason));
    }

    fn end_connection(&mut self, id: ConnectionId, why: Ended) {
        let socket = self.sockets.remove(&id);
        let notified = socket.as_ref().is_none_or(|socket| !socket.abandoned);
        let client = socket.map(|socket| socket.client).or(self.polls.remove(&id).map(|poll| poll.client));
        let closed = client.filter(|_| notified).map(|client| Signal::Closed { client, connection: id, why });
        self.signals.extend(closed);
    }

    /// The process of a node is about to end, and its connections with it.
    pub(super) fn end_connections_of(&mut self, node: usize) {
        let sockets = self.sockets.iter().filter(|(_, socket)| socket.node == node).map(|(id, _)| *id);
        let polls = self.polls.iter().filter(|(_, poll)| poll.node == node).map(|(id, _)| *id);
        let ids: Vec<ConnectionId> = sockets.chain(polls).collect();
        let local = self.nodes[node].local(self.now);
        for id in ids {
            let Some(running) = self.nodes[node].running() else { continue };
            let session = self.sockets.get(&id).and_then(|socket| {
                let listener = socket.caller.listener?;
                attached_session(&running.shards[socket.shard], listener, socket.caller.link.id)
            });
            self.signals.extend(session.map(|session| Signal::Detached { session, local }));
            self.end_connection(id, Ended::Process);
        }
    }

    /// A client polls. Returns the connection, if the poll is parked.
    pub fn poll(&mut self, client: usize, node: usize, request: &SimPoll<'_>) -> Option<ConnectionId> {
        let (key, _) = read_session(request.session)?;
        let id = new_connection(self);
        let local = self.nodes[node].local(self.now);
        let shard = key.shard(self.nodes[node].shards);
        let running = self.nodes[node].awake()?;
        let (cursor, timeout_ms) = (Some(request.cursor), request.timeout_ms);
        let outcome = running.shards[shard].poll(local, key, None, LinkId(id.0), cursor, timeout_ms);
        let loses_answer = request.loses_answer;
        let reset = outcome == Poll::Ready { reset: true };
        self.polls.insert(id, ParkedPoll { client, node, shard, key, reset, loses_answer });
        match outcome {
            Poll::Parked => {}
            Poll::Ready { .. } => self.answer_poll(id),
            Poll::Unknown | Poll::Unproved => {
                self.polls.remove(&id);
                self.signals.push_back(Signal::PollUnknown { client });
            }
        }
        self.carry_out(node);
        self.polls.contains_key(&id).then_some(id)
    }

    fn answer_poll(&mut self, id: ConnectionId) {
        let Some(poll) = self.polls.get(&id) else { return };
        let client = poll.client;
        let local = self.nodes[poll.node].local(self.now);
        let Some(running) = self.nodes[poll.node].running() else { return };
        let shard = &mut running.shards[poll.shard];
        let Some(listener) = shard.core.find_session(poll.key) else {
            self.polls.remove(&id);
            return;
        };
        let flags = PollFlags { reset: poll.reset, ..PollFlags::default() };
        let (lost, mut body) = (poll.loses_answer, Vec::new());
        if !shard.render_poll(local, listener, LinkId(id.0), flags, &mut body) {
            return;
        }
        self.polls.remove(&id);
        self.signals.push_back(match serde_json::from_slice::<Value>(&body) {
            Ok(answer) => Signal::Polled { client, answer: (!lost).then_some(answer) },
            Err(error) => Signal::Broken(format!("client {client}: {error}")),
        });
    }
}

/// Its first link has the same number.
pub(super) fn new_connection(cluster: &mut Cluster) -> ConnectionId {
    let LinkId(number) = new_link(cluster, None);
    cluster.connections.insert(number, ConnectionId(number));
    ConnectionId(number)
}

pub(super) fn new_link(cluster: &mut Cluster, of: Option<ConnectionId>) -> LinkId {
    cluster.links += 1;
    if let Some(id) = of {
        cluster.connections.insert(cluster.links, id);
    }
    LinkId(cluster.links)
}

/// The reply to a command; earlier events precede it.
pub(super) fn take_reply(cluster: &mut Cluster, id: ConnectionId, flow: &Flow, reply: &[u8]) {
    let Some(socket) = cluster.sockets.get_mut(&id) else { return };
    cluster.scratch.clear();
    if *flow != Flow::Greeted
        && let Some(listener) = socket.caller.listener
        && let Some(running) = cluster.nodes[socket.node].running()
    {
        let shard = &mut running.shards[socket.shard];
        cluster.scratch.fill(&mut shard.core, listener, socket.caller.link.id, usize::MAX);
        let all = cluster.scratch.bytes.len();
        cluster.scratch.settle(&mut shard.core, listener, all);
    }
    socket.out.extend_from_slice(&cluster.scratch.bytes);
    ws::write_head(&mut socket.out, ws::Opcode::Text, reply.len());
    socket.out.extend_from_slice(reply);
    cluster.flush(id);
}

/// The session that a client resumes is on another shard of the node: the socket moves there.
pub(super) fn move_socket(cluster: &mut Cluster, id: ConnectionId, to: usize) {
    let link = new_link(cluster, Some(id));
    let Some(socket) = cluster.sockets.get_mut(&id) else { return };
    if let Some(unused) = socket.caller.listener.take()
        && let Some(running) = cluster.nodes[socket.node].running()
    {
        let shard = &mut running.shards[socket.shard];
        let session = shard.core.listener(unused).and_then(|listener| listener.session());
        socket.caller.identity = session.map(|session| session.identity.clone());
        shard.end(unused);
    }
    cluster.connections.remove(&socket.caller.link.id.0);
    socket.shard = to;
    socket.caller.link.id = link;
}

/// Splits the received bytes into frames.
pub(super) fn read_frames(cluster: &mut Cluster, connection: ConnectionId) {
    let Some(socket) = cluster.sockets.get_mut(&connection) else { return };
    let client = socket.client;
    let end = whole_frames(&socket.partial);
    let bytes: Vec<u8> = socket.partial.drain(..end).collect();
    let mut at = 0;
    while let Ok(Some(head)) = ws::read_head(&bytes[at..], ws::Role::Client, FRAME_BYTES) {
        let begin = at + head.head_len;
        at = begin + head.payload_len;
        let frame: Value = match serde_json::from_slice(&bytes[begin..at]) {
            Ok(frame) => frame,
            Err(error) => {
                return cluster.signals.push_back(Signal::Broken(format!("client {client}: {error}")));
            }
        };
        let event = frame["seq"].is_u64();
        let repeated = event && cluster.planted.strikes(PlantedFault::RepeatedFrame, 20);
        let lost = event && cluster.planted.strikes(PlantedFault::LostFrame, 20);
        let again = repeated.then(|| frame.clone());
        let frames = again.into_iter().chain((!lost).then_some(frame));
        cluster.signals.extend(frames.map(|frame| Signal::Received { client, connection, frame }));
    }
}

/// The session of a listener, if this connection is attached to it, or none is.
fn attached_session(shard: &Shard, listener: ListenerId, link: LinkId) -> Option<ClientId> {
    let listener = shard.core.listener(listener)?;
    let current = listener.link.is_none_or(|current| current.id == link);
    listener.session().filter(|_| current).map(|session| session.client)
}

/// How many bytes of the buffer are whole frames.
fn whole_frames(buffer: &[u8]) -> usize {
    let mut at = 0;
    while let Ok(Some(head)) = ws::read_head(&buffer[at..], ws::Role::Client, FRAME_BYTES) {
        let end = at + head.head_len + head.payload_len;
        if end > buffer.len() {
            break;
        }
        at = end;
    }
    at
}
