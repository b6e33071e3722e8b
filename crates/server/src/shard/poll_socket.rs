//! Long-polls on a socket of the shard: after its first poll an HTTP connection is served here, so that a parked poll
//! holds no task, timer or buffer. Requests that are no polls go back to the HTTP server with their connection.
//! Must hold: a connection has one request at a time; the next one is read after the answer is written to `out`.

use crate::connections::{AddressSlot, ClientTransport, ConnectionSlot, TransportSlot};
use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::input::{CommandAnswer, SessionPoll};
use crate::shard::links::LinkTarget;
use crate::shard::polls::{self, PollEnd, PollStart};
use crate::shard::state::ShardState;
use http::HeaderValue;
use std::sync::Arc;
use tavern_hub::{CloseReason, LinkId, ListenerId, PollFlags};
use tavern_wire::error::Refusal;

/// The HTTP side of a connection whose polls are served by a shard.
pub trait HttpPeer: Send + Sync {
    /// Reads the next request.
    fn next_request(&self, input: &[u8]) -> NextRequest;

    /// Appends a response. `last`: the connection is closed after it.
    fn write_response(
        &self,
        out: &mut Vec<u8>,
        page: Option<&HeaderValue>,
        answer: CommandAnswer,
        last: bool,
    );

    /// The HTTP server takes the connection back, with what was read from it.
    fn take_back(self: Arc<Self>, socket: mio::net::TcpStream, input: Vec<u8>, slot: ConnectionSlot);
}

pub enum NextRequest {
    /// It has not arrived whole.
    Incomplete,
    /// A poll of so many bytes.
    Poll(usize, Box<PollOnSocket>),
    /// A poll of so many bytes that is refused, and the web origin it came from.
    Refused(usize, Refusal, Option<HeaderValue>),
    /// Not a poll, or one that cannot be decided here.
    Other,
}

/// A poll and what its answer needs.
pub struct PollOnSocket {
    pub poll: SessionPoll,
    /// The shard of its session; None for a new session, which may be on any.
    pub shard: Option<usize>,
    /// The web origin it came from.
    pub page: Option<HeaderValue>,
    /// Its place in the count of its address, behind a proxy.
    pub counted: Option<AddressSlot>,
}

pub struct PollSocket {
    peer: Arc<dyn HttpPeer>,
    state: PollState,
    /// A poll of this connection had a session.
    proved: bool,
}

enum PollState {
    /// It waits for a request.
    Idle,
    /// A request that has not begun, or whose session is looked up on other nodes.
    Request(Box<PollOnSocket>),
    /// A poll that waits for events, or for its answer to be read from the store.
    Parked(WaitingPoll),
}

struct WaitingPoll {
    listener: ListenerId,
    flags: PollFlags,
    page: Option<HeaderValue>,
    _counted: Option<AddressSlot>,
    _transport: TransportSlot,
}

impl PollSocket {
    /// A connection with its first poll.
    pub fn new(peer: Arc<dyn HttpPeer>, first: Box<PollOnSocket>) -> PollSocket {
        PollSocket { peer, state: PollState::Request(first), proved: false }
    }

    pub fn listener(&self) -> Option<ListenerId> {
        match &self.state {
            PollState::Parked(parked) => Some(parked.listener),
            _ => None,
        }
    }

    /// Its request has no answer yet.
    pub fn is_waiting(&self) -> bool {
        !matches!(self.state, PollState::Idle)
    }

    pub fn is_proved(&self) -> bool {
        self.proved
    }
}

/// What happens to a connection after its input was read.
pub enum PollNext {
    /// Nothing, until more has arrived or the request is answered.
    Wait,
    /// A request is ready: call `begin`.
    Begin,
    /// The session of the request is on another shard.
    Move(usize),
    /// The connection goes back to the HTTP server.
    TakeBack,
}

/// Reads requests until one must wait for its answer.
pub fn take_input(state: &mut ShardState, conn: &mut Conn) -> PollNext {
    let unread_limit = state.unread_limit(conn);
    let Conn { protocol: SocketProtocol::Poll(socket), input, out, .. } = conn else { return PollNext::Wait };
    while !socket.is_waiting() {
        if out.len() > unread_limit {
            // The client must read the refusals before more of its requests are judged.
            conn.state.unread = true;
            return PollNext::Wait;
        }
        match socket.peer.next_request(input) {
            NextRequest::Incomplete => return PollNext::Wait,
            NextRequest::Other => return PollNext::TakeBack,
            NextRequest::Refused(bytes, refusal, page) => {
                input.drain(..bytes);
                socket.peer.write_response(out, page.as_ref(), Err(refusal), false);
                conn.authenticated_ms = state.since_start();
            }
            NextRequest::Poll(bytes, request) => {
                input.drain(..bytes);
                let elsewhere = request.shard.filter(|&shard| shard != state.index);
                socket.state = PollState::Request(request);
                return elsewhere.map_or(PollNext::Begin, PollNext::Move);
            }
        }
    }
    PollNext::Wait
}

/// Runs the request of a connection: a new one, or one whose session was looked up.
pub fn begin(state: &mut ShardState, link: LinkId) {
    let Some(socket) = socket_mut(state, link) else { return };
    let request = match std::mem::replace(&mut socket.state, PollState::Idle) {
        PollState::Request(request) => *request,
        other => {
            socket.state = other;
            return;
        }
    };
    let PollOnSocket { poll, page, counted, shard } = request;
    if state.frozen {
        return respond(state, link, page.as_ref(), Err(state.stopping()), true);
    }
    let started = polls::start(state, link, poll);
    let transport = state.context.resp.connections.count_transport(ClientTransport::Poll);
    let Some(socket) = socket_mut(state, link) else { return };
    let (listener, flags, is_ready) = match started {
        PollStart::Seeking(poll) => {
            socket.state = PollState::Request(Box::new(PollOnSocket { poll, page, counted, shard }));
            return;
        }
        PollStart::Refused(refusal) => return respond(state, link, page.as_ref(), Err(refusal), false),
        PollStart::Parked(listener, flags) => (listener, flags, false),
        PollStart::Ready(listener, flags) => (listener, flags, true),
    };
    socket.proved = true;
    socket.state =
        PollState::Parked(WaitingPoll { listener, flags, page, _counted: counted, _transport: transport });
    if is_ready {
        answer(state, link);
    } else if let Some(conn) = state.links.take_conn(link) {
        // It is authenticated from now on, and counted so.
        state.put_back(conn, link, true);
    }
}

/// The lookup of a session has ended, or the snapshot for an answer was read.
pub fn resume(state: &mut ShardState, link: LinkId) {
    match socket_mut(state, link).map(|socket| &socket.state) {
        Some(PollState::Request(_)) => begin(state, link),
        Some(PollState::Parked(_)) => answer(state, link),
        Some(PollState::Idle) | None => {}
    }
}

/// There is an event for a parked poll, it timed out, or the snapshot for its answer was read.
pub fn answer(state: &mut ShardState, link: LinkId) {
    let Some(PollState::Parked(parked)) = socket_mut(state, link).map(|socket| &socket.state) else { return };
    let (listener, flags) = (parked.listener, parked.flags);
    render(state, link, listener, flags);
}

/// Answers with the events of the session, unless something must be read from the store for it first.
fn render(state: &mut ShardState, link: LinkId, listener: ListenerId, flags: PollFlags) {
    let mut body = Vec::with_capacity(256);
    if state.hub.render_poll(state.now, listener, link, flags, &mut body) {
        let page = take_parked(state, link).and_then(|parked| parked.page);
        respond(state, link, page.as_ref(), Ok((None, body)), false);
    } else if let Some(PollSocket { state: PollState::Parked(parked), .. }) = socket_mut(state, link) {
        parked.flags = flags;
    }
}

/// Ends the connection's poll from our side.
pub fn end(state: &mut ShardState, link: LinkId, reason: CloseReason) {
    let Some(listener) = socket_mut(state, link).map(|socket| socket.listener()) else { return };
    let is_last = reason == CloseReason::Closing;
    match polls::end_of(state, &reason) {
        PollEnd::Answer(flags) => {
            state.hub.release_link(link);
            if let Some(listener) = listener {
                render(state, link, listener, flags);
            }
        }
        PollEnd::Refuse(refusal) => {
            state.hub.release_link(link);
            let waited = socket_mut(state, link).is_some_and(|socket| socket.is_waiting());
            let page = take_parked(state, link).and_then(|parked| parked.page);
            if let Some(socket) = socket_mut(state, link) {
                socket.state = PollState::Idle;
            }
            if waited {
                respond(state, link, page.as_ref(), Err(refusal), is_last);
            }
        }
    }
}

fn take_parked(state: &mut ShardState, link: LinkId) -> Option<WaitingPoll> {
    let socket = socket_mut(state, link)?;
    match std::mem::replace(&mut socket.state, PollState::Idle) {
        PollState::Parked(parked) => Some(parked),
        other => {
            socket.state = other;
            None
        }
    }
}

/// Puts a response into the output; the next request may be read.
fn respond(
    state: &mut ShardState,
    link: LinkId,
    page: Option<&HeaderValue>,
    answer: CommandAnswer,
    last: bool,
) {
    let now_ms = state.since_start();
    let Some(mut conn) = state.links.take_conn(link) else { return };
    if let SocketProtocol::Poll(socket) = &conn.protocol {
        socket.peer.write_response(&mut conn.out, page, answer, last);
    }
    conn.state.closing |= last;
    // The next poll may be about another session.
    state.hub.release_link(link);
    conn.authenticated_ms = now_ms;
    // A next request may have arrived before the answer.
    let is_next_here = conn.state.unread || !conn.input.is_empty();
    conn.state.unread = false;
    state.put_back(conn, link, true);
    if is_next_here && !last {
        state.unread.push(link);
    }
}

fn socket_mut(state: &mut ShardState, link: LinkId) -> Option<&mut PollSocket> {
    match state.links.get_mut(link)? {
        LinkTarget::Socket(conn) => match &mut conn.protocol {
            SocketProtocol::Poll(socket) => Some(socket),
            _ => None,
        },
        _ => None,
    }
}

/// Gives a connection back to the HTTP server. False: some of its output is not written yet.
pub fn take_back(state: &mut ShardState, link: LinkId) -> bool {
    let Some(mut conn) = state.links.take_conn(link) else { return true };
    // Another connection may have the number by now.
    let is_leaving = conn.has_polls() && conn.state.moving.is_some() && !conn.state.closing;
    if !is_leaving || !conn.out.is_empty() {
        state.links.put(link, LinkTarget::Socket(conn));
        return !is_leaving;
    }
    let _ = state.registry.deregister(&mut conn.socket);
    state.uncount(&mut conn);
    state.hub.release_link(link);
    state.links.retire(link);
    let Conn { protocol, socket, input, slot, .. } = *conn;
    if let SocketProtocol::Poll(poll) = protocol {
        poll.peer.take_back(socket, input, slot);
    }
    true
}
