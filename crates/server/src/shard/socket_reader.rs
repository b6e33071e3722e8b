//! Reading: from a ready socket into commands. A connection whose command waits is not read until it has its reply;
//! pipelined commands do not stop it.

use crate::auth::AuthError;
use crate::resp;
use crate::shard::conn::{Conn, SocketProtocol, SocketState};
use crate::shard::input::{NewSocket, ShardInput};
use crate::shard::keepalive;
use crate::shard::links::LinkTarget;
use crate::shard::poll_socket::{self, PollNext};
use crate::shard::state::ShardState;
use crate::shard::websocket::{self, WebSocketNext};
use mio::{Interest, Token};
use std::io;
use std::ops::Range;
use tavern_domain::{Identity, Time};
use tavern_hub::core::wheel::Wheel;
use tavern_hub::{CloseReason, LinkId};
use tavern_wire::json::{self, ParsedCommand};
use tavern_wire::ws;

/// Bytes read from one socket in one turn.
const READ_BYTES: usize = 64 * 1024;
/// The same before login: what does not run at once is kept.
const UNAUTHENTICATED_READ_BYTES: usize = 4 * 1024;
/// A buffer of incomplete input that is larger than its content by more than this is shrunk.
const SPARE_BYTES: usize = 4096;

pub struct SocketReader {
    buffer: Box<[u8]>,
    /// The arguments of one Redis command; reused.
    ranges: Vec<Range<usize>>,
    /// Connections that move to another shard at the end of the turn.
    moves: Vec<(LinkId, usize)>,
    /// Connections that go back to the HTTP server when their output is written.
    returns: Vec<LinkId>,
    /// When a `TAVERN.WAIT` ends.
    waits: Wheel<LinkId>,
}

impl SocketReader {
    pub fn new(now: Time) -> SocketReader {
        SocketReader {
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            ranges: Vec::new(),
            moves: Vec::new(),
            returns: Vec::new(),
            waits: Wheel::new(now),
        }
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.waits.next_wake()
    }

    pub fn wake_waiters(&mut self, state: &mut ShardState) {
        let mut due = Vec::new();
        self.waits.expire(state.now, &mut due);
        for link in due {
            self.resume(state, link);
        }
    }

    pub fn read(&mut self, state: &mut ShardState, link: LinkId) {
        let Some(mut conn) = state.links.take_conn(link) else { return };
        let stalled = (conn.stalled.is_some() || (conn.has_polls() && conn.is_waiting())) && !conn.state.full;
        let unwritten = conn.out.len() > state.unread_limit(&conn);
        // A poll is refused while the server stops.
        let frozen = state.frozen && !conn.has_polls();
        let waits = stalled || state.congested || frozen || unwritten;
        // A closing connection is not read until our last bytes are written, then only to detect its end.
        if (waits && !conn.state.closing) || (conn.state.closing && !conn.state.write_closed) {
            // Edge-triggered: remember that there is more, epoll will not say it again.
            conn.state.unread = true;
            if state.congested && !stalled && !unwritten && !conn.state.closing {
                state.unread.push(link);
            }
            state.links.put(link, LinkTarget::Socket(conn));
            return;
        }
        if conn.state.full && !conn.state.closing {
            // The replies were written: run earlier input first.
            self.go_on(state, &mut conn, link);
            if !conn.may_run() {
                conn.state.unread = true;
                return state.put_back(conn, link, true);
            }
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let most = if conn.is_authenticated() { READ_BYTES } else { UNAUTHENTICATED_READ_BYTES };
        let keep = match conn.read(&mut buffer[..most]) {
            Ok(0) => false,
            Ok(count) => {
                // A short read has emptied the socket; a full one may have left something. TLS may buffer more.
                if count == most || conn.tls.is_some() {
                    state.unread.push(link);
                }
                if conn.state.closing {
                    keepalive::lingers(&mut conn, count, state.since_start())
                } else {
                    conn.received_ms = state.since_start();
                    conn.state.pinged = false;
                    self.take_input(state, &mut conn, link, &mut buffer[..count]);
                    true
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // A poll may have arrived together with the one before.
                if conn.has_polls() && !conn.state.closing {
                    self.take_input(state, &mut conn, link, &mut []);
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                state.unread.push(link);
                true
            }
            Err(_) => false,
        };
        self.buffer = buffer;
        let has_poll = conn.has_polls() && conn.may_run();
        state.put_back(conn, link, keep);
        if has_poll {
            poll_socket::begin(state, link);
        }
    }

    /// Runs the input. New bytes follow those left from before.
    fn take_input(&mut self, state: &mut ShardState, conn: &mut Conn, link: LinkId, fresh: &mut [u8]) {
        if conn.has_polls() {
            conn.input.extend_from_slice(fresh);
            return self.take_poll(state, conn, link);
        }
        if conn.input.is_empty() {
            let (taken, next) = self.consume(state, conn, fresh);
            conn.input = fresh[taken..].to_vec();
            return self.follow(state, conn, link, next);
        }
        let mut input = std::mem::take(&mut conn.input);
        input.extend_from_slice(fresh);
        let (taken, next) = self.consume(state, conn, &mut input);
        input.drain(..taken);
        if input.capacity() > input.len() * 2 + SPARE_BYTES {
            input.shrink_to_fit();
        }
        conn.input = input;
        self.follow(state, conn, link, next);
    }

    /// Reads the next request of a connection with polls.
    fn take_poll(&mut self, state: &mut ShardState, conn: &mut Conn, link: LinkId) {
        match poll_socket::take_input(state, conn) {
            PollNext::Wait | PollNext::Begin => {}
            PollNext::Move(shard) => {
                conn.state.moving = Some(shard as u8);
                self.moves.push((link, shard));
            }
            PollNext::TakeBack => {
                conn.state.moving = Some(state.index as u8);
                self.returns.push(link);
            }
        }
    }

    fn consume(
        &mut self,
        state: &mut ShardState,
        conn: &mut Conn,
        input: &mut [u8],
    ) -> (usize, WebSocketNext) {
        let unread_bytes = state.unread_limit(conn);
        // The protocol is removed from the connection, so that both can be borrowed.
        let protocol = std::mem::replace(&mut conn.protocol, SocketProtocol::Taken);
        let (protocol, taken, next) = match protocol {
            SocketProtocol::WebSocket(mut socket) => {
                let mut context = state.websocket_context(unread_bytes);
                let (taken, next) = websocket::consume(conn, &mut socket, &mut context, input);
                (SocketProtocol::WebSocket(socket), taken, next)
            }
            SocketProtocol::Redis(mut peer) => {
                let mut context = resp::RedisContext {
                    now: state.now,
                    hub: &mut state.hub,
                    scratch: &mut state.scratch,
                    server: &state.context.resp,
                    ranges: &mut self.ranges,
                    unread_bytes,
                };
                let (taken, next) = resp::consume(&mut conn.out, &mut peer, &mut context, input);
                if let Some(until) = peer.waiting_until
                    && until != Time::NEVER
                {
                    self.waits.set(until, peer.link);
                }
                let next = match next {
                    resp::RedisNext::Go => WebSocketNext::Go,
                    resp::RedisNext::Stall => WebSocketNext::Stall,
                    resp::RedisNext::Full => WebSocketNext::Full,
                    resp::RedisNext::Close => WebSocketNext::Close(CloseReason::Bye),
                };
                (SocketProtocol::Redis(peer), taken, next)
            }
            other @ (SocketProtocol::Poll(_) | SocketProtocol::Taken) => {
                (other, input.len(), WebSocketNext::Go)
            }
        };
        conn.protocol = protocol;
        (taken, next)
    }

    /// Does what a protocol asked for after its commands.
    fn follow(&mut self, state: &mut ShardState, conn: &mut Conn, link: LinkId, next: WebSocketNext) {
        match next {
            WebSocketNext::Go => {}
            WebSocketNext::Stall => {
                conn.stalled.get_or_insert_default();
            }
            WebSocketNext::Full => conn.state.full = true,
            WebSocketNext::Close(reason) => {
                if matches!(conn.protocol, SocketProtocol::WebSocket(_)) {
                    websocket::write_close(&mut conn.out, reason, 0);
                }
                conn.state.closing = true;
            }
            WebSocketNext::End(code, reason) => {
                ws::write_close(&mut conn.out, code, reason);
                conn.state.closing = true;
            }
            WebSocketNext::Move(shard) => self.move_away(state, conn, link, shard),
        }
    }

    /// The session that a client names is on another shard: moves the socket there.
    fn move_away(&mut self, state: &mut ShardState, conn: &mut Conn, link: LinkId, shard: usize) {
        let SocketProtocol::WebSocket(socket) = &mut conn.protocol else { return };
        if let Some(unused) = socket.caller.listener.take() {
            let session = state.hub.core.listener(unused).and_then(|listener| listener.session());
            socket.caller.identity = session.map(|session| session.identity.clone());
            state.hub.end(unused);
        }
        conn.state.moving = Some(shard as u8);
        self.moves.push((link, shard));
    }

    /// Moves the connections of this turn, after everything was written.
    pub fn carry_moves(&mut self, state: &mut ShardState) {
        for (link, shard) in std::mem::take(&mut self.moves) {
            let Some(mut conn) = state.links.take_conn(link) else { continue };
            let _ = state.registry.deregister(&mut conn.socket);
            state.links.retire(link);
            state.uncount(&mut conn);
            let input = std::mem::take(&mut conn.input);
            let commands = conn.stalled.take().map(|stalled| stalled.lines).unwrap_or_default();
            conn.state = SocketState::default();
            let arrival = NewSocket { conn: *conn, input, commands, hello: None };
            state.context.shards.force(shard, ShardInput::Arrival(Box::new(arrival)));
        }
        self.returns.retain(|&link| !poll_socket::take_back(state, link));
    }

    /// A connection arrives on this shard, from its handshake or from another shard.
    pub fn arrive(&mut self, state: &mut ShardState, arrival: NewSocket) {
        let NewSocket { mut conn, input, commands, hello } = arrival;
        let link = state.new_link();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = state.registry.register(&mut conn.socket, Token(link.0 as usize), interest) {
            tracing::warn!(%error, "cannot register a connection with the poll");
            state.links.retire(link);
            return;
        }
        conn.received_ms = state.since_start();
        conn.authenticated_ms = conn.received_ms;
        conn.written_ms = conn.received_ms;
        match &mut conn.protocol {
            SocketProtocol::WebSocket(socket) => socket.caller.link.id = link,
            SocketProtocol::Redis(peer) => {
                peer.link = link;
                peer.info.moved(state.index, link);
            }
            SocketProtocol::Poll(_) | SocketProtocol::Taken => {}
        }
        let mut conn = Box::new(conn);
        if let Some(hello) = hello {
            let next = run_hello(state, &mut conn, hello);
            self.follow(state, &mut conn, link, next);
        }
        // Input that came with the connection runs at once: no event will announce it.
        if !commands.is_empty() || conn.has_waiting_command() || (!input.is_empty() && !conn.has_polls()) {
            conn.keep_stalled(&commands);
        }
        conn.input = input;
        let is_poll = conn.has_polls();
        state.recount(&mut conn);
        state.links.put(link, LinkTarget::Socket(conn));
        state.touch(link);
        match is_poll {
            true => poll_socket::begin(state, link),
            false => self.resume(state, link),
        }
        // Edge-triggered: input from before the registration causes no event.
        state.unread.push(link);
    }

    /// Replies have arrived, or a waiting command can continue: first the replies, then the stalled commands, then
    /// the later input.
    pub fn resume(&mut self, state: &mut ShardState, link: LinkId) {
        let Some(mut conn) = state.links.take_conn(link) else { return };
        if conn.state.closing {
            return state.put_back(conn, link, true);
        }
        self.go_on(state, &mut conn, link);
        if conn.state.unread && conn.stalled.is_none() {
            conn.state.unread = false;
            state.unread.push(link);
        }
        state.put_back(conn, link, true);
    }

    /// Writes the replies that have arrived and runs earlier input, as far as it may run.
    fn go_on(&mut self, state: &mut ShardState, conn: &mut Conn, link: LinkId) {
        let paused = conn.stalled.is_some() || conn.state.full;
        conn.state.full = false;
        let next = run_stalled(state, conn);
        self.follow(state, conn, link, next);
        if paused && conn.may_run() {
            self.take_input(state, conn, link, &mut []);
        }
    }

    /// An `AUTH` with an API key was looked up.
    pub fn log_in(
        &mut self,
        state: &mut ShardState,
        link: LinkId,
        client: u64,
        outcome: Result<Identity, AuthError>,
    ) {
        let Some(peer) = state.links.peer_mut(link, client) else { return };
        peer.login = Some(Box::new(outcome));
        self.resume(state, link);
    }
}

/// Runs the hello of a client whose token was sent with its connection.
fn run_hello(state: &mut ShardState, conn: &mut Conn, hello: ParsedCommand<'static>) -> WebSocketNext {
    let protocol = std::mem::replace(&mut conn.protocol, SocketProtocol::Taken);
    let SocketProtocol::WebSocket(mut socket) = protocol else {
        conn.protocol = protocol;
        return WebSocketNext::Go;
    };
    let unread_bytes = state.unread_limit(conn);
    let next = websocket::run_parsed(conn, &mut socket, &mut state.websocket_context(unread_bytes), hello);
    conn.protocol = SocketProtocol::WebSocket(socket);
    next
}

/// Writes the replies that have arrived, continues the waiting command, then runs those behind it until one waits
/// again.
fn run_stalled(state: &mut ShardState, conn: &mut Conn) -> WebSocketNext {
    let protocol = std::mem::replace(&mut conn.protocol, SocketProtocol::Taken);
    let mut socket = match protocol {
        SocketProtocol::WebSocket(socket) => socket,
        mut protocol => {
            if let SocketProtocol::Redis(peer) = &mut protocol {
                resp::append_replies(&mut conn.out, peer, &mut state.hub);
            }
            conn.stalled = None;
            conn.protocol = protocol;
            return WebSocketNext::Go;
        }
    };
    let unread_bytes = state.unread_limit(conn);
    let mut context = state.websocket_context(unread_bytes);
    let mut next = websocket::reply(conn, &mut socket, &mut context);
    if next == WebSocketNext::Go {
        next = websocket::resume(conn, &mut socket, &mut context);
    }
    let lines = conn.stalled.take().map(|stalled| stalled.lines).unwrap_or_default();
    let mut rest = &lines[..];
    if next == WebSocketNext::Go && !rest.is_empty() {
        let commands = json::command_lines(rest);
        (next, rest) = websocket::run_commands(conn, &mut socket, &mut context, commands);
    }
    if matches!(next, WebSocketNext::Stall | WebSocketNext::Move(_) | WebSocketNext::Full) {
        conn.keep_stalled(rest);
    }
    conn.protocol = SocketProtocol::WebSocket(socket);
    next
}
