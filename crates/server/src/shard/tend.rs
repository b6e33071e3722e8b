//! Looking after attached transports: pings for the silent, the end for the dead, buffers given back.
//! An idle connection owns no timer; the look passes over all of them in pieces, all of them each second.

use crate::shard::conn::Speaks;
use crate::shard::links::{Links, Target};
use crate::shard::worker::Worker;
use tavern_domain::Time;
use tavern_hub::{Goodbye, LinkId};
use tavern_wire::{sse, ws};

const PIECES: u32 = 8;
const PIECE_MS: u64 = 125;
/// A connection that we closed and that does not close itself is dropped after this long.
const LINGER_MS: u32 = 2_000;
/// A WebSocket that says no hello, a Redis connection that does not log in.
const HELLO_MS: u32 = 15_000;

pub struct Tending {
    next: u32,
    due: Time,
}

impl Tending {
    pub fn new(now: Time) -> Tending {
        Tending { next: 0, due: now + PIECE_MS }
    }

    pub fn next_wake(&self, links: &Links) -> Option<Time> {
        (links.span() > 0).then_some(self.due)
    }
}

impl Worker {
    pub fn tend(&mut self) {
        if self.now < self.tending.due {
            return;
        }
        self.tending.due = self.now + PIECE_MS;
        let span = self.links.span();
        let end = (self.tending.next + span.div_ceil(PIECES).max(64)).min(span);
        for index in self.tending.next..end {
            self.tend_one(LinkId(index));
        }
        self.tending.next = if end >= span { 0 } else { end };
    }

    fn tend_one(&mut self, link: LinkId) {
        match self.links.get_mut(link) {
            Some(Target::Socket(_)) => self.tend_conn(link),
            Some(Target::Stream(_)) => self.tend_stream(link),
            Some(Target::Poll(poll)) => {
                // The client went away while its poll was parked.
                if poll.answer.as_ref().is_some_and(|answer| answer.is_closed()) {
                    let listener = poll.listener;
                    self.links.retire(link);
                    if let Some(id) = listener {
                        self.hub.detach(self.now, id, link);
                    }
                }
            }
            Some(Target::Request(_) | Target::Seeking(_)) | None => {}
        }
    }

    fn tend_conn(&mut self, link: LinkId) {
        let since_start = self.since_start();
        let heartbeat = self.context.limits.heartbeat_ms;
        let Some(conn) = self.links.conn_mut(link) else { return };
        let silent = since_start.saturating_sub(conn.heard_ms);
        if conn.state.closing {
            if conn.state.shut && silent > LINGER_MS || silent > LINGER_MS * 4 {
                self.drop_conn(link);
            }
            return;
        }
        conn.release();
        let socket = match &conn.speaks {
            Speaks::WebSocket(socket) => socket,
            Speaks::Redis(peer) if peer.identity.is_none() && silent > HELLO_MS => return self.close(link),
            Speaks::Redis(_) | Speaks::Nothing => return,
        };
        let greeted = socket.caller.listener.is_some();
        if !greeted && silent > HELLO_MS && conn.stalled.is_none() {
            self.hub.effects.closes.push((link, Goodbye::Unauthenticated));
        } else if silent >= heartbeat.saturating_mul(2) && conn.state.pinged {
            let listener = socket.caller.listener;
            if let Some(id) = listener {
                self.hub.detach(self.now, id, link);
            }
            self.hub.effects.closes.push((link, Goodbye::Silent));
        } else if silent >= heartbeat && !conn.state.pinged {
            conn.state.pinged = true;
            ws::write_head(&mut conn.out, ws::Opcode::Ping, 0);
            self.touch(link);
        }
    }

    fn tend_stream(&mut self, link: LinkId) {
        let since_start = self.since_start();
        let heartbeat = self.context.limits.heartbeat_ms;
        let Some(Target::Stream(stream)) = self.links.get_mut(link) else { return };
        if stream.events.is_closed() {
            self.drop_stream(link);
        } else if since_start.saturating_sub(stream.written_ms) >= heartbeat && !stream.blocked {
            stream.written_ms = since_start;
            let mut comment = Vec::new();
            sse::comment(&mut comment);
            // A full stream has been written to lately or is stalled; either way a comment adds nothing.
            let _ = stream.events.try_send(comment.into());
        }
    }
}
