//! Reading: from a ready socket into commands. A connection whose command waits is not read until it has run; commands that
//! run ahead of their replies do not stop it.

use crate::resp;
use crate::shard::conn::{Conn, Speaks};
use crate::shard::input::{Arrival, ImplicitHello, ShardInput};
use crate::shard::websocket::{self, Next, Room};
use crate::shard::worker::{READ_BYTES, Worker};
use std::io;
use tavern_hub::{Goodbye, LinkId, Sought};
use tavern_wire::ws;

/// A socket that goes on talking without reading our answers holds at most this much of them.
const UNWRITTEN_BYTES: usize = 8 << 20;

impl Worker {
    pub fn read(&mut self, link: LinkId) {
        let Some(mut conn) = self.links.take_conn(link) else { return };
        let waits =
            conn.stalled.is_some() || self.congested || self.frozen || conn.out.len() > UNWRITTEN_BYTES;
        if waits && !conn.state.closing {
            // Edge-triggered: remember that there is something, nobody will say it again.
            conn.state.unread = true;
            if self.congested && conn.stalled.is_none() {
                self.unread.push(link);
            }
            self.links.put(link, crate::shard::links::Target::Socket(conn));
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = conn.read(&mut buffer[..]);
        let keep = match outcome {
            Ok(0) => false,
            Ok(count) => {
                conn.heard_ms = self.since_start();
                conn.state.pinged = false;
                // A short read has emptied the socket; a full one may have left something. TLS may hold more inside.
                if count == READ_BYTES || conn.tls.is_some() {
                    self.unread.push(link);
                }
                conn.state.closing || self.take_input(&mut conn, link, &mut buffer[..count])
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.unread.push(link);
                true
            }
            Err(_) => false,
        };
        self.buffer = buffer;
        self.put_back(conn, link, keep);
    }

    /// Gives a connection its place back, or ends it.
    fn put_back(&mut self, conn: Box<Conn>, link: LinkId, keep: bool) {
        let touched = !conn.out.is_empty() || conn.state.closing;
        self.links.put(link, crate::shard::links::Target::Socket(conn));
        if !keep {
            self.drop_conn(link);
        } else if touched {
            self.touch_reply(link);
        }
    }

    /// Runs what has come. Fresh bytes follow what was left from before. False: the connection is not ours any more.
    fn take_input(&mut self, conn: &mut Box<Conn>, link: LinkId, fresh: &mut [u8]) -> bool {
        if conn.input.is_empty() {
            let (taken, next) = self.consume(conn, fresh);
            self.keep_rest(conn, &fresh[taken..]);
            return self.follow(conn, link, next);
        }
        let mut input = std::mem::take(&mut conn.input);
        self.partial_bytes -= input.len();
        input.extend_from_slice(fresh);
        let (taken, next) = self.consume(conn, &mut input);
        input.drain(..taken);
        self.keep_whole(conn, input);
        self.follow(conn, link, next)
    }

    fn keep_rest(&mut self, conn: &mut Conn, rest: &[u8]) {
        if !rest.is_empty() {
            self.keep_whole(conn, rest.to_vec());
        }
    }

    fn keep_whole(&mut self, conn: &mut Conn, rest: Vec<u8>) {
        self.partial_bytes += rest.len();
        conn.input = rest;
        if self.partial_bytes > self.context.limits.partial_bytes {
            // Unfinished input of everybody together is too much: whoever adds to it now has to go.
            conn.state.closing = true;
        }
    }

    fn consume(&mut self, conn: &mut Conn, input: &mut [u8]) -> (usize, Next) {
        // The state is taken out of the connection, so that both can be worked on.
        let speaks = std::mem::replace(&mut conn.speaks, Speaks::Nothing);
        let (speaks, taken, next) = match speaks {
            Speaks::WebSocket(mut socket) => {
                let mut room = self.room();
                let (taken, next) = websocket::consume(conn, &mut socket, &mut room, input);
                (Speaks::WebSocket(socket), taken, next)
            }
            Speaks::Redis(mut peer) => {
                let mut context = self.resp_context();
                let (taken, next) = resp::consume(&mut conn.out, &mut peer, &mut context, input);
                if let Some(until) = peer.waiting_until
                    && until != tavern_domain::Time::NEVER
                {
                    self.wheel.set(until, peer.link);
                }
                let next = match next {
                    resp::Next::Go => Next::Go,
                    resp::Next::Stall => Next::Stall,
                    resp::Next::Close => Next::Close(Goodbye::Bye),
                };
                (Speaks::Redis(peer), taken, next)
            }
            Speaks::Nothing => (Speaks::Nothing, input.len(), Next::Go),
        };
        conn.speaks = speaks;
        (taken, next)
    }

    pub fn room(&mut self) -> Room<'_> {
        Room {
            now: self.now,
            hub: &mut self.hub,
            scratch: &mut self.scratch,
            reply: &mut self.reply,
            frame_bytes: self.context.limits.json_frame_bytes,
        }
    }

    fn resp_context(&mut self) -> resp::Context<'_> {
        resp::Context {
            now: self.now,
            hub: &mut self.hub,
            scratch: &mut self.scratch,
            server: &self.context.resp,
            ranges: &mut self.ranges,
        }
    }

    /// Does what a transport asked for after its commands. False: the connection is not ours any more.
    fn follow(&mut self, conn: &mut Box<Conn>, link: LinkId, next: Next) -> bool {
        match next {
            Next::Go => true,
            Next::Stall => {
                conn.stalled.get_or_insert_default();
                true
            }
            Next::Close(goodbye) => {
                if matches!(conn.speaks, Speaks::WebSocket(_)) {
                    websocket::write_goodbye(&mut conn.out, goodbye, 0);
                }
                conn.state.closing = true;
                true
            }
            Next::End(code, reason) => {
                ws::write_close(&mut conn.out, code, reason);
                conn.state.closing = true;
                true
            }
            Next::Move(shard) => {
                self.move_away(conn, link, shard);
                true
            }
        }
    }

    /// The session that a client asks for lives on another shard: the socket goes there.
    fn move_away(&mut self, conn: &mut Box<Conn>, link: LinkId, shard: usize) {
        let Speaks::WebSocket(socket) = &mut conn.speaks else { return };
        if let Some(unused) = socket.caller.listener.take() {
            let session = self.hub.listener(unused).and_then(|listener| listener.session());
            socket.caller.identity = session.map(|session| session.identity.clone());
            self.hub.end(unused);
        }
        conn.state.moving = Some(shard as u8);
        self.moves.push((link, shard));
    }

    /// Carries out the moves of this turn, after everything was written.
    pub fn carry_moves(&mut self) {
        for (link, shard) in std::mem::take(&mut self.moves) {
            let Some(mut conn) = self.links.take_conn(link) else { continue };
            let _ = self.poll.registry().deregister(&mut conn.socket);
            self.links.retire(link);
            let input = std::mem::take(&mut conn.input);
            self.partial_bytes -= input.len();
            let stalled = conn.stalled.take();
            let commands = stalled.map(|stalled| stalled.frames.into_iter().collect()).unwrap_or_default();
            conn.state = crate::shard::conn::State::default();
            let arrival = Arrival { conn: *conn, input, commands, hello: None };
            self.context.shards.force(shard, ShardInput::Arrival(Box::new(arrival)));
        }
    }

    /// Replies are there, or a waiting command may run: first the replies, then the stalled ones, then what came after.
    pub fn resume_stalled(&mut self, link: LinkId) {
        let Some(mut conn) = self.links.take_conn(link) else { return };
        if conn.state.closing {
            // Its last words are said.
            return self.put_back(conn, link, true);
        }
        if let Some(stalled) = &mut conn.stalled
            && let Some(hello) = stalled.hello.take()
            && !self.greet(&mut conn, &hello)
        {
            conn.stalled.get_or_insert_default().hello = Some(hello);
            return self.put_back(conn, link, true);
        }
        let was_stalled = conn.stalled.is_some();
        let mut next = Next::Go;
        let speaks = std::mem::replace(&mut conn.speaks, Speaks::Nothing);
        if let Speaks::WebSocket(mut socket) = speaks {
            let mut room = self.room();
            next = websocket::reply(&mut conn, &mut socket, &mut room);
            let mut stalled = conn.stalled.take().unwrap_or_default();
            while next == Next::Go
                && let Some(frame) = stalled.frames.pop_front()
            {
                let mut room = self.room();
                next = websocket::run(&mut conn, &mut socket, &mut room, &frame);
                if matches!(next, Next::Stall | Next::Move(_)) {
                    stalled.frames.push_front(frame);
                    conn.stalled = Some(std::mem::take(&mut stalled));
                }
            }
            conn.speaks = Speaks::WebSocket(socket);
        } else {
            conn.stalled = None;
            conn.speaks = speaks;
        }
        let mut keep = self.follow(&mut conn, link, next);
        let free = conn.stalled.is_none() && !conn.state.closing && conn.state.moving.is_none();
        if keep && was_stalled && free {
            keep = self.take_input(&mut conn, link, &mut []);
            if conn.state.unread && conn.stalled.is_none() {
                conn.state.unread = false;
                self.unread.push(link);
            }
        }
        self.put_back(conn, link, keep);
    }

    /// Says hello for a client whose token came with its connection. False: its session is looked for.
    pub fn greet(&mut self, conn: &mut Conn, hello: &ImplicitHello) -> bool {
        let Speaks::WebSocket(socket) = &mut conn.speaks else { return true };
        let Some(identity) = socket.caller.identity.clone() else { return true };
        let link = socket.caller.link;
        let mut attached = None;
        if let Some(named) = &hello.session {
            if self.seek(named, Some(&identity), false, link.id) == Sought::Wait {
                return false;
            }
            attached = self.hub.attach(self.now, named.key, &identity, link, hello.seq);
        }
        if attached.is_none() && !self.hub.meet(self.now, identity.user.as_ref(), link.id) {
            return false;
        }
        let (id, resumed, reset) = match attached {
            Some(attached) => (attached.listener, true, attached.reset),
            None => (self.hub.open_session(self.now, identity, Some(link)), false, false),
        };
        socket.caller.listener = Some(id);
        let mut body = Vec::new();
        self.hub.write_hello(id, resumed, reset, &mut body);
        let mut frame = Vec::new();
        tavern_wire::json::reply_ok(&mut frame, None, &body);
        ws::write_head(&mut conn.out, ws::Opcode::Text, frame.len());
        conn.out.extend_from_slice(&frame);
        true
    }
}
