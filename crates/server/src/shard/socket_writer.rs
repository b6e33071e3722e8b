//! Writing: replies first, then events, each connection once per flush. Events that a socket does not accept stay in
//! the mailbox as references. Must hold: an event counts as sent only when all its bytes were accepted, or the rest
//! is kept.

use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::links::LinkTarget;
use crate::shard::state::ShardState;
use crate::shard::{poll_socket, websocket};
use std::io;
use std::net::Shutdown;
use tavern_hub::{CloseReason, LinkId, ListenerId};

/// Bytes collected for one write.
const WRITE_BYTES: usize = 256 * 1024;
/// Writes to one connection in one turn; a reader that is faster than this waits for the next.
const WRITES_PER_TURN: usize = 4;

enum Written {
    All,
    /// More is pending than one turn should write.
    Some,
    Blocked,
    Dead,
}

pub fn writable(state: &mut ShardState, link: LinkId) {
    let Some(conn) = state.links.conn_mut(link) else { return };
    if conn.state.blocked {
        conn.state.blocked = false;
        if conn.state.unread {
            conn.state.unread = false;
            state.unread.push(link);
        }
        state.touch(link);
    }
}

/// Writes pending bytes and events of a connection, as far as its socket accepts them.
pub fn write(state: &mut ShardState, link: LinkId) {
    let Some(mut conn) = state.links.take_conn(link) else { return };
    conn.state.touched = false;
    conn.state.replies = false;
    let written = if conn.state.blocked { Written::Blocked } else { write_conn(state, link, &mut conn) };
    match written {
        Written::All => {
            if conn.state.closing && !conn.state.write_closed && conn.out.is_empty() && !conn.has_encrypted()
            {
                // Lingers until the other side closes too, so that our last bytes are not lost.
                let _ = conn.socket.shutdown(Shutdown::Write);
                conn.state.write_closed = true;
                conn.received_ms = state.since_start();
                // The peer may have closed before.
                conn.state.unread = false;
                state.unread.push(link);
            }
        }
        Written::Some => {
            conn.state.touched = true;
            state.touched.push_back(link);
        }
        Written::Blocked | Written::Dead => {}
    }
    let waits = conn.state.full || conn.state.unread;
    if waits && !conn.state.closing && !conn.state.blocked && conn.out.len() <= state.unread_limit(&conn) {
        // The client has read its replies: it may send again.
        conn.state.unread = false;
        state.unread.push(link);
    }
    let is_authenticated = conn.is_authenticated();
    if conn.out.is_empty() && !is_authenticated {
        conn.release();
    }
    // Writing changes no other buffer.
    let is_counted =
        is_authenticated && conn.counted.unauthenticated == 0 && conn.counted.output == conn.out.capacity();
    let keep = is_counted || state.recount(&mut conn);
    state.links.put(link, LinkTarget::Socket(conn));
    if matches!(written, Written::Dead) || !keep {
        state.drop_conn(link);
    }
}

fn write_conn(state: &mut ShardState, link: LinkId, conn: &mut Conn) -> Written {
    if conn.has_encrypted() {
        match conn.write_encrypted() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                conn.state.blocked = true;
                return Written::Blocked;
            }
            Err(_) => return Written::Dead,
        }
    }
    let listener = conn.listener().filter(|&id| {
        !conn.state.closing
            && !conn.is_waiting()
            && state.hub.core.listener(id).is_some_and(|listener| listener.wants_writing())
    });
    for _ in 0..WRITES_PER_TURN {
        state.scratch.begin(&conn.out);
        let more = listener.is_some_and(|id| state.scratch.fill(&mut state.hub.core, id, link, WRITE_BYTES));
        let all = state.scratch.bytes.len();
        if all == 0 {
            return Written::All;
        }
        match conn.write(&state.scratch.bytes) {
            Ok(taken) if taken == all => {
                conn.written_ms = state.since_start();
                conn.out.clear();
                settle(state, listener, all);
                if conn.has_encrypted() {
                    conn.state.blocked = true;
                    return Written::Blocked;
                }
                if !more {
                    return Written::All;
                }
            }
            Ok(taken) => {
                conn.written_ms = state.since_start();
                keep_unwritten(state, conn, listener, taken);
                return Written::Blocked;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                keep_unwritten(state, conn, listener, 0);
                return Written::Blocked;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Written::Dead,
        }
    }
    Written::Some
}

fn settle(state: &mut ShardState, listener: Option<ListenerId>, written: usize) -> usize {
    match listener {
        Some(id) => state.scratch.settle(&mut state.hub.core, id, written),
        None => written,
    }
}

/// The socket accepted a part of the buffer: keeps the rest of our own bytes, and of a partly written event.
fn keep_unwritten(state: &mut ShardState, conn: &mut Conn, listener: Option<ListenerId>, taken: usize) {
    conn.state.blocked = true;
    let own = state.scratch.own();
    if taken < own {
        conn.out.drain(..taken);
        settle(state, listener, 0);
    } else {
        let end = settle(state, listener, taken);
        conn.out.clear();
        conn.out.extend_from_slice(&state.scratch.bytes[taken..end]);
    }
}

/// Ends a connection from our side, with the reason where the protocol has one.
pub fn write_close(state: &mut ShardState, link: LinkId, reason: CloseReason) {
    let reconnect_after_ms = state.reconnect_after_ms();
    let Some(conn) = state.links.conn_mut(link) else { return };
    match &mut conn.protocol {
        SocketProtocol::WebSocket(socket) => {
            // The session stays: this connection must not end it when it closes.
            if reason != CloseReason::SlowReader {
                socket.caller.listener = None;
            }
            websocket::write_close(&mut conn.out, reason, reconnect_after_ms);
            conn.state.closing = true;
            write(state, link);
        }
        SocketProtocol::Poll(_) => poll_socket::end(state, link, reason),
        SocketProtocol::Redis(_) | SocketProtocol::Taken => state.drop_conn(link),
    }
}

/// Closes a connection after its pending bytes are written.
pub fn close(state: &mut ShardState, link: LinkId) {
    let Some(conn) = state.links.conn_mut(link) else { return };
    conn.state.closing = true;
    // It receives nothing more, so it is not counted while its socket lingers.
    if let SocketProtocol::Redis(peer) = &mut conn.protocol
        && let Some(listener) = peer.listener.take()
    {
        state.hub.end(listener);
    }
    write(state, link);
}

/// Ends a Redis connection whose token expired, whose key was revoked or whose user must go: an error, then the end.
pub fn end_redis(state: &mut ShardState, link: LinkId, reason: CloseReason) {
    let Some(conn) = state.links.conn_mut(link) else { return };
    let error = match &reason {
        CloseReason::Disconnected { reason, .. } => format!("ERR {reason}"),
        CloseReason::Banned { reason } => format!("BLOCKED {reason}"),
        reason => format!("NOAUTH the {}", reason.reason()),
    };
    tavern_wire::resp::error(&mut conn.out, &error);
    close(state, link);
}

/// `CLIENT KILL`, from any shard.
pub fn kill(state: &mut ShardState, link: LinkId, client: u64) {
    if state.links.peer_mut(link, client).is_some() {
        close(state, link);
    }
}

/// The server stops: WebSockets get a close frame with the reason, parked polls an answer; other connections are dropped.
pub fn close_all(state: &mut ShardState) {
    for link in state.links.conns() {
        let Some(conn) = state.links.conn_mut(link) else { continue };
        match &conn.protocol {
            SocketProtocol::WebSocket(_) if conn.state.closing => {}
            SocketProtocol::WebSocket(_) => write_close(state, link, CloseReason::Closing),
            SocketProtocol::Poll(_) if conn.is_waiting() => {
                poll_socket::end(state, link, CloseReason::Closing);
                write(state, link);
            }
            SocketProtocol::Poll(_) => close(state, link),
            _ => state.drop_conn(link),
        }
    }
}
