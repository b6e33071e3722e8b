//! Writing: at the end of a turn replies are written, then some of the connections with events, each once. The others
//! wait for the next turn, and what is published meanwhile travels in the same write: messages per write is the one
//! large lever. What a socket refuses stays in the mailbox as references.
//! Must hold: nobody waits longer than one round over all touched connections; a backlog made by waiting stays far
//! below what a mailbox holds.

use crate::shard::conn::{Conn, Speaks};
use crate::shard::input::ShardInput;
use crate::shard::links::Target;
use crate::shard::websocket;
use crate::shard::worker::Worker;
use std::io;
use std::net::Shutdown;
use tavern_hub::{Format, Goodbye, LinkId, ListenerId, Verdict};

/// Bytes put together for one write.
const WRITE_BYTES: usize = 256 * 1024;
/// Writes to one connection in one turn; a reader that is faster than this waits for the next.
const WRITES_PER_TURN: usize = 4;

/// Connections with events that are written to in one turn before new input is looked at.
const EVENTS_PER_TURN: usize = 16;

enum Written {
    All,
    /// More is there than one turn should write.
    Some,
    Blocked,
    Dead,
}

impl Worker {
    /// Carries out the effects of this turn.
    pub fn flush(&mut self) {
        self.flush_some(EVENTS_PER_TURN);
    }

    /// Writes to everybody: before a mailbox could overflow, and at the end.
    pub fn flush_all(&mut self) {
        self.flush_some(usize::MAX);
    }

    fn flush_some(&mut self, most: usize) {
        self.hand_over();
        self.ask();
        self.rerun();
        self.hand_work();
        self.touch_dirty();
        let mut replies = std::mem::take(&mut self.replies);
        for link in replies.drain(..) {
            self.write(link);
        }
        replies.append(&mut self.replies);
        self.replies = replies;
        // What is touched while writing waits for the next flush.
        for _ in 0..self.touched.len().min(most) {
            let Some(link) = self.touched.pop_front() else { break };
            // A reply may have taken its events along.
            if self.links.conn_mut(link).is_some_and(|conn| conn.state.touched) {
                self.write(link);
            }
        }
        if self.touched.is_empty() {
            self.published_at_flush = self.published();
        }
        self.carry_closes();
    }

    /// Gives each other shard its words as one batch, and the bus what other nodes may hear.
    fn hand_over(&mut self) {
        for (shard, parcels) in self.hub.effects.parcels.iter_mut().enumerate() {
            if parcels.is_empty() {
                continue;
            }
            let queue = self.context.shards.queue(shard);
            queue.force(ShardInput::Parcels(std::mem::take(parcels)));
            self.congested |= queue.is_full();
        }
        if self.hub.speak()
            && let Some(bus) = self.context.node.carrier.bus()
        {
            self.congested |= bus.is_full();
        }
    }

    /// Gives the store its work and the other shards their news.
    fn hand_work(&mut self) {
        for (shard, told) in self.hub.effects.news.drain(..) {
            self.context.shards.force(shard, ShardInput::News(told));
        }
        for (shard, told) in self.hub.effects.rumours.drain(..) {
            self.context.shards.force(shard, ShardInput::Rumour(told));
        }
        for topic in self.hub.effects.topics.drain(..) {
            self.context.bell.published(topic.into());
        }
        for (number, outcome) in std::mem::take(&mut self.hub.effects.orders) {
            if let Some(answer) = self.orders.remove(&number) {
                // Whoever ordered may have gone away; it is done all the same.
                let _ = answer.send(outcome);
            }
        }
        if !self.hub.effects.work.is_empty() {
            let work = std::mem::take(&mut self.hub.effects.work);
            self.context.store.submit_for(self.index, work);
        }
    }

    fn ask(&mut self) {
        if self.hub.effects.questions.is_empty() {
            return;
        }
        for question in std::mem::take(&mut self.hub.effects.questions) {
            let (shards, shard) = (self.context.shards.clone(), self.index);
            let answer = move |question, verdict| shards.force(shard, ShardInput::Answer(question, verdict));
            match &self.context.authorize {
                Some(hook) => hook.ask(question, answer),
                None => answer(question, Verdict::Deny),
            }
        }
    }

    fn rerun(&mut self) {
        if self.hub.effects.ready.is_empty() {
            return;
        }
        for link in std::mem::take(&mut self.hub.effects.ready) {
            match self.links.get_mut(link) {
                Some(Target::Socket(_)) => self.resume_stalled(link),
                Some(Target::Request(_)) => self.rerun_request(link),
                Some(Target::Stream(_)) => self.subscribe_stream(link),
                Some(Target::Seeking(_)) => self.resume_seeking(link),
                _ => {}
            }
        }
    }

    fn touch_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.hub.effects.dirty);
        for id in dirty.drain(..) {
            let Some(link) = self.hub.listener(id).and_then(|listener| listener.link) else { continue };
            match link.format {
                Format::Poll => self.answer_poll(link.id, id),
                Format::Sse => self.write_stream(link.id),
                _ => self.touch_listener(link.id),
            }
        }
        dirty.append(&mut self.hub.effects.dirty);
        self.hub.effects.dirty = dirty;
    }

    fn touch_listener(&mut self, link: LinkId) {
        let Some(conn) = self.links.conn_mut(link) else { return };
        match &conn.speaks {
            Speaks::Redis(peer) if peer.waiting_until.is_some() => self.resume_stalled(link),
            _ => self.touch(link),
        }
    }

    pub fn writable(&mut self, link: LinkId) {
        let Some(conn) = self.links.conn_mut(link) else { return };
        if conn.state.blocked {
            conn.state.blocked = false;
            if conn.state.unread {
                conn.state.unread = false;
                self.unread.push(link);
            }
            self.touch(link);
        }
    }

    fn write(&mut self, link: LinkId) {
        let Some(mut conn) = self.links.take_conn(link) else { return };
        conn.state.touched = false;
        conn.state.replies = false;
        let written = if conn.state.blocked { Written::Blocked } else { self.write_conn(link, &mut conn) };
        let alive = match written {
            Written::All => {
                if conn.state.closing && !conn.state.shut && conn.out.is_empty() && !conn.has_encrypted() {
                    // Lingers until the other side closes too, so that our last words are not lost.
                    let _ = conn.socket.shutdown(Shutdown::Write);
                    conn.state.shut = true;
                }
                true
            }
            Written::Some => {
                conn.state.touched = true;
                self.touched.push_back(link);
                true
            }
            Written::Blocked => true,
            Written::Dead => false,
        };
        self.links.put(link, Target::Socket(conn));
        if !alive {
            self.drop_conn(link);
        }
    }

    fn write_conn(&mut self, link: LinkId, conn: &mut Conn) -> Written {
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
                && !is_waiting(conn)
                && self.hub.listener(id).is_some_and(|l| l.wants_writing())
        });
        for _ in 0..WRITES_PER_TURN {
            self.scratch.begin(&conn.out);
            let more =
                listener.is_some_and(|id| self.scratch.fill(&mut self.hub.core, id, link, WRITE_BYTES));
            let all = self.scratch.bytes.len();
            if all == 0 {
                return Written::All;
            }
            match conn.write(&self.scratch.bytes) {
                Ok(taken) if taken == all => {
                    conn.out.clear();
                    self.settle(listener, all);
                    if conn.has_encrypted() {
                        conn.state.blocked = true;
                        return Written::Blocked;
                    }
                    if !more {
                        return Written::All;
                    }
                }
                Ok(taken) => {
                    self.keep_unwritten(conn, listener, taken);
                    return Written::Blocked;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.keep_unwritten(conn, listener, 0);
                    return Written::Blocked;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Written::Dead,
            }
        }
        Written::Some
    }

    fn settle(&mut self, listener: Option<ListenerId>, written: usize) -> usize {
        match listener {
            Some(id) => self.scratch.settle(&mut self.hub.core, id, written),
            None => written,
        }
    }

    /// The socket took part of the scratch: our own rest, and the rest of an event that was begun, wait here.
    fn keep_unwritten(&mut self, conn: &mut Conn, listener: Option<ListenerId>, taken: usize) {
        conn.state.blocked = true;
        let own = self.scratch.own();
        if taken < own {
            conn.out.drain(..taken);
            self.settle(listener, 0);
        } else {
            let end = self.settle(listener, taken);
            conn.out.clear();
            conn.out.extend_from_slice(&self.scratch.bytes[taken..end]);
        }
    }

    fn carry_closes(&mut self) {
        while let Some((link, goodbye)) = self.hub.effects.closes.pop() {
            match self.links.get_mut(link) {
                Some(Target::Socket(_)) => self.say_goodbye(link, goodbye),
                Some(Target::Stream(_)) => self.end_stream(link, goodbye),
                Some(Target::Poll(_)) => self.end_poll(link, goodbye),
                _ => {}
            }
        }
    }

    fn say_goodbye(&mut self, link: LinkId, goodbye: Goodbye) {
        let spread = self.reconnect_after_ms();
        let Some(conn) = self.links.conn_mut(link) else { return };
        match &mut conn.speaks {
            Speaks::WebSocket(socket) => {
                // The session stays behind: this transport must not end it when it goes.
                if goodbye != Goodbye::SlowReader {
                    socket.caller.listener = None;
                }
                websocket::write_goodbye(&mut conn.out, goodbye, spread);
                conn.state.closing = true;
                self.write(link);
            }
            Speaks::Redis(_) | Speaks::Nothing => self.drop_conn(link),
        }
    }

    /// Ends a connection after what it has to say was written.
    pub fn close(&mut self, link: LinkId) {
        let Some(conn) = self.links.conn_mut(link) else { return };
        conn.state.closing = true;
        // It hears nothing any more, so it counts nowhere while its socket lingers.
        if let Speaks::Redis(peer) = &mut conn.speaks
            && let Some(listener) = peer.listener.take()
        {
            self.hub.end(listener);
        }
        self.write(link);
    }

    /// The socket is gone: its session is detached, a Redis listener ends.
    pub fn drop_conn(&mut self, link: LinkId) {
        let Some(mut conn) = self.links.take_conn(link) else { return };
        let _ = self.poll.registry().deregister(&mut conn.socket);
        self.partial_bytes -= conn.input.len();
        if let Some(listener) = conn.listener() {
            self.hub.detach(self.now, listener, link);
        }
        self.hub.release_link(link);
        if let Speaks::Redis(peer) = &conn.speaks {
            self.context.resp.clients.leave(peer.info.id);
        }
        self.links.retire(link);
    }

    /// When a client should come back after a stop: spread, and below half of the shortest grace.
    pub fn reconnect_after_ms(&mut self) -> u64 {
        let settings = &self.context.node.settings;
        let graces = settings.kinds.values().chain([&settings.other_kinds]).map(|rules| rules.grace_ms);
        let most = graces.min().unwrap_or(0) / 2;
        if most == 0 { 0 } else { crate::random::random_bits() as u64 % most.min(5_000) }
    }

    /// The last words to everybody: the server stops.
    pub fn say_closing(&mut self) {
        for link in self.links.conns() {
            match self.links.conn_mut(link).map(|conn| &conn.speaks) {
                Some(Speaks::WebSocket(_)) => {
                    if self.links.conn_mut(link).is_some_and(|conn| !conn.state.closing) {
                        self.say_goodbye(link, Goodbye::Closing);
                    }
                }
                _ => self.drop_conn(link),
            }
        }
    }
}

/// A Redis connection in `TAVERN.WAIT` is answered by its command, not by the flush.
fn is_waiting(conn: &Conn) -> bool {
    matches!(&conn.speaks, Speaks::Redis(peer) if peer.waiting_until.is_some())
}
