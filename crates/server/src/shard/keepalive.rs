//! Liveness of connections: pings silent ones, closes dead ones, frees empty buffers.
//! An idle connection owns no timer; all connections are checked each second, in pieces.

use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::links::{LinkTarget, Links};
use crate::shard::state::ShardState;
use crate::shard::{gateways, polls, socket_writer, streams};
use tavern_domain::Time;
use tavern_hub::{CloseReason, LinkId};
use tavern_wire::ws;

const PIECES: u32 = 8;
const PIECE_MS: u64 = 125;
/// The minimum number of links in a piece.
const PIECE_LINKS: u32 = 64;
/// A connection that we have shut down is dropped after this long if its peer does not close it: each is checked once
/// per second, so it is open for 2 s at most.
const LINGER_MS: u32 = 1_000;
/// A connection that we have shut down is dropped at once when its peer has sent this much more. Enough for the rest
/// of a message that was too large, so that the peer sees the reason.
const LINGER_BYTES: usize = 32 << 20;
/// How long a closing connection may take to read our last bytes.
const UNWRITTEN_MS: u32 = 8_000;
/// The timeout for `hello` on a WebSocket and for `AUTH` on a Redis connection.
const HELLO_MS: u32 = 15_000;

pub struct Keepalive {
    /// The first link of the next piece.
    next: u32,
    due: Time,
}

impl Keepalive {
    pub fn new(now: Time) -> Keepalive {
        Keepalive { next: 0, due: now + PIECE_MS }
    }

    pub fn next_wake(&self, links: &Links) -> Option<Time> {
        (links.span() > 0).then_some(self.due)
    }

    /// Checks the next piece, when it is due.
    pub fn run(&mut self, state: &mut ShardState) {
        if state.now < self.due {
            return;
        }
        self.due = state.now + PIECE_MS;
        let span = state.links.span();
        let end = (self.next + span.div_ceil(PIECES).max(PIECE_LINKS)).min(span);
        for link in (self.next..end).map(LinkId) {
            match state.links.get_mut(link) {
                Some(LinkTarget::Socket(_)) => check_socket(state, link),
                Some(LinkTarget::Stream(_)) => streams::keep_alive(state, link),
                Some(LinkTarget::Gateway(_)) => gateways::drop_if_closed(state, link),
                Some(LinkTarget::Poll(_)) => polls::drop_if_closed(state, link),
                Some(LinkTarget::Request(_) | LinkTarget::Seeking(_)) | None => {}
            }
        }
        self.next = if end >= span { 0 } else { end };
    }
}

/// A connection counts as heard when it was heard since the last check or a little longer.
const HEARD_MS: u32 = 2_000;

/// Whether a connection that was shut down and sends `count` more bytes is kept until its peer closes. Nothing that
/// it sends extends this time.
pub fn lingers(conn: &mut Conn, count: usize, since_start: u32) -> bool {
    conn.state.discarded += count;
    conn.state.discarded <= LINGER_BYTES && since_start.saturating_sub(conn.received_ms) <= LINGER_MS
}

fn check_socket(state: &mut ShardState, link: LinkId) {
    let since_start = state.since_start();
    let heartbeat_ms = state.context.limits.heartbeat_ms;
    let Some(conn) = state.links.conn_mut(link) else { return };
    let silent_ms = since_start.saturating_sub(conn.received_ms);
    if conn.state.closing {
        let wait_ms = if conn.state.write_closed { LINGER_MS } else { UNWRITTEN_MS };
        if silent_ms > wait_ms {
            state.drop_conn(link);
        }
        return;
    }
    let unwritten_ms = since_start.saturating_sub(conn.written_ms);
    if conn.state.full && conn.state.blocked && unwritten_ms > heartbeat_ms.saturating_mul(2) {
        // It sends commands and does not read the replies. A session can be resumed.
        state.hub.core.node().stats[state.index].closed_slow.add(1);
        return state.drop_conn(link);
    }
    conn.release();
    if conn.has_polls() {
        // Neither a parked poll nor its client says anything. A request that takes long, and none, end the connection.
        let idle_ms = since_start.saturating_sub(conn.authenticated_ms);
        if conn.is_waiting() {
            conn.authenticated_ms = since_start;
        } else if idle_ms > state.context.limits.http_header_ms {
            socket_writer::close(state, link);
        }
        return;
    }
    let (listener, greeting) = match &conn.protocol {
        SocketProtocol::WebSocket(socket) => (socket.caller.listener, conn.stalled.is_some()),
        SocketProtocol::Redis(_) => (None, false),
        SocketProtocol::Poll(_) | SocketProtocol::Taken => return,
    };
    // Neither input nor failed logins extend it. A hello that waits for the store has shown a valid token.
    if conn.is_authenticated() || (greeting && !conn.state.full) {
        conn.authenticated_ms = since_start;
    }
    if let Some(id) = listener.filter(|_| silent_ms <= HEARD_MS) {
        state.hub.core.note_activity(state.now - u64::from(silent_ms), id);
    }
    let is_late = since_start.saturating_sub(conn.authenticated_ms) > HELLO_MS;
    if let SocketProtocol::Redis(peer) = &conn.protocol {
        let node = &state.context.node;
        let ended = peer.identity.as_ref().and_then(|identity| {
            let user = identity.user.as_deref();
            let blocked = || node.blocks.end_of(user, None, peer.entered_at, state.now);
            node.credential_end(identity, state.now).or_else(blocked)
        });
        if let Some(reason) = ended {
            socket_writer::end_redis(state, link, reason);
        } else if is_late {
            socket_writer::close(state, link);
        }
    } else if is_late {
        state.hub.core.effects.closes.push((link, CloseReason::Unauthenticated));
    } else if silent_ms >= heartbeat_ms.saturating_mul(2) && conn.state.pinged {
        if let Some(id) = listener {
            state.hub.detach(state.now, id, link);
        }
        state.hub.core.effects.closes.push((link, CloseReason::Silent));
    } else if silent_ms >= heartbeat_ms && !conn.state.pinged {
        conn.state.pinged = true;
        ws::write_head(&mut conn.out, ws::Opcode::Ping, 0);
        state.touch(link);
    }
}
