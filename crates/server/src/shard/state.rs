//! State that all parts of a shard share: the hub, the links, and the lists of connections with pending work.
//! Must hold: a connection is at most once in each list.

use crate::random::random_bits;
use crate::shard::ShardContext;
use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::input::SessionName;
use crate::shard::links::{LinkTarget, Links};
use crate::shard::websocket;
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::{Identity, Time};
use tavern_hub::{CloseReason, LinkId, LookupResult, Scratch, SessionLookup, Shard};
use tavern_wire::error::{Code, Refusal};

/// The longest time over which the reconnects of clients are spread after a stop.
const RECONNECT_MAX_MS: u64 = 5_000;

/// Unread replies of a client that is not authenticated: together with the reply that exceeds it, less than 4 KiB.
const UNAUTHENTICATED_UNREAD_BYTES: usize = 3 * 1024;

pub struct ShardState {
    pub index: usize,
    pub context: Arc<ShardContext>,
    pub hub: Shard,
    pub links: Links,
    pub registry: mio::Registry,
    pub now: Time,
    started_at: Time,
    /// The bytes rendered for one write; reused.
    pub scratch: Scratch,
    /// The reply of one command; reused.
    pub reply: Vec<u8>,
    /// Connections with replies: written to at the end of the turn.
    pub replies: Vec<LinkId>,
    /// Connections with events: written to in turn.
    pub touched: VecDeque<LinkId>,
    /// Connections with more input than one turn reads.
    pub unread: Vec<LinkId>,
    /// Unfinished input of all connections of this shard.
    partial_bytes: usize,
    /// Unread replies of all connections of this shard.
    unread_bytes: usize,
    /// Another shard's queue or the bus is full: publishers are not read.
    pub congested: bool,
    /// No more commands are accepted: the server is about to stop.
    pub frozen: bool,
}

impl ShardState {
    pub fn new(
        index: usize,
        context: Arc<ShardContext>,
        hub: Shard,
        registry: mio::Registry,
        now: Time,
    ) -> ShardState {
        ShardState {
            index,
            context,
            hub,
            links: Links::default(),
            registry,
            now,
            started_at: now,
            scratch: Scratch::default(),
            reply: Vec::new(),
            replies: Vec::new(),
            touched: VecDeque::new(),
            unread: Vec::new(),
            partial_bytes: 0,
            unread_bytes: 0,
            congested: false,
            frozen: false,
        }
    }

    /// Milliseconds since the shard's start.
    pub fn since_start(&self) -> u32 {
        self.now.since(self.started_at) as u32
    }

    /// Sets the time by which latencies are measured.
    pub fn read_clock(&mut self) {
        let now_us = self.context.started.elapsed().as_micros() as u64;
        tavern_hub::core::set_now_us(&mut self.hub.core, now_us);
    }

    /// Some connection has pending work.
    pub fn is_busy(&self) -> bool {
        !self.unread.is_empty() || !self.touched.is_empty() || !self.replies.is_empty()
    }

    pub fn new_link(&mut self) -> LinkId {
        let link = self.links.reserve();
        self.hub.release_link(link);
        link
    }

    /// Adds a connection to the list of those with replies, which are written first.
    pub fn touch_reply(&mut self, link: LinkId) {
        if let Some(conn) = self.links.conn_mut(link)
            && !conn.state.replies
        {
            conn.state.replies = true;
            self.replies.push(link);
        }
    }

    /// Adds a connection to the list of those with events.
    pub fn touch(&mut self, link: LinkId) {
        let touched = match self.links.get_mut(link) {
            Some(LinkTarget::Socket(conn)) => &mut conn.state.touched,
            Some(LinkTarget::Gateway(gateway)) => &mut gateway.touched,
            _ => return,
        };
        if !std::mem::replace(touched, true) {
            self.touched.push_back(link);
        }
    }

    /// Bytes of unread replies above which no more commands of a connection run.
    pub fn unread_limit(&self, conn: &Conn) -> usize {
        match conn.is_authenticated() {
            true => self.context.limits.unread_bytes,
            false => UNAUTHENTICATED_UNREAD_BYTES,
        }
    }

    /// Updates the sums after the buffers of a connection have changed. A connection that adds to a sum above its
    /// limit is closed. False: it must be dropped, because it leaves too much unread.
    pub fn recount(&mut self, conn: &mut Conn) -> bool {
        let (held, before) = (conn.held(), conn.counted);
        conn.counted = held;
        self.partial_bytes = self.partial_bytes - before.input + held.input;
        self.unread_bytes = self.unread_bytes - before.output + held.output;
        self.context.unauthenticated.change(before.unauthenticated, held.unauthenticated);
        let limits = &self.context.limits;
        if held.input > before.input && self.partial_bytes > limits.partial_bytes {
            conn.state.closing = true;
        }
        let keep = held.output <= before.output || self.unread_bytes <= limits.unread_total_bytes;
        if !keep {
            self.context.node.stats[self.index].closed_slow.add(1);
        }
        keep
    }

    /// The connection leaves this shard.
    pub fn uncount(&mut self, conn: &mut Conn) {
        let before = std::mem::take(&mut conn.counted);
        self.partial_bytes -= before.input;
        self.unread_bytes -= before.output;
        self.context.unauthenticated.change(before.unauthenticated, 0);
    }

    /// Closes the oldest connections that are not authenticated while all of them together occupy too much.
    fn relieve_unauthenticated(&mut self) {
        let context = self.context.clone();
        if !context.unauthenticated.is_exceeded() {
            return;
        }
        let mut closed = 0;
        for link in self.links.oldest_unauthenticated() {
            if context.unauthenticated.is_relieved() {
                break;
            }
            self.drop_conn(link);
            closed += 1;
        }
        self.context.node.stats[self.index].closed_unauthenticated.add(closed);
        context.unauthenticated.log(closed);
    }

    /// Puts a connection back, or ends it.
    pub fn put_back(&mut self, mut conn: Box<Conn>, link: LinkId, keep: bool) {
        let keep = self.recount(&mut conn) && keep;
        let touched = !conn.out.is_empty() || conn.state.closing;
        self.links.put(link, LinkTarget::Socket(conn));
        if !keep {
            self.drop_conn(link);
        } else if touched {
            self.touch_reply(link);
        }
        self.relieve_unauthenticated();
    }

    /// The socket is closed: its session is detached, a Redis listener ends.
    pub fn drop_conn(&mut self, link: LinkId) {
        let Some(mut conn) = self.links.take_conn(link) else { return };
        let _ = self.registry.deregister(&mut conn.socket);
        self.uncount(&mut conn);
        if let Some(listener) = conn.listener() {
            self.hub.detach(self.now, listener, link);
        }
        if let SocketProtocol::WebSocket(socket) = &conn.protocol {
            self.hub.abandon(self.now, &socket.caller);
        }
        self.hub.release_link(link);
        if let SocketProtocol::Redis(peer) = &conn.protocol {
            self.context.resp.clients.leave(peer.info.id);
        }
        self.links.retire(link);
    }

    /// Looks up a session here and on other nodes.
    pub fn look_up(
        &mut self,
        name: &SessionName,
        identity: Option<&Identity>,
        gentle: bool,
        link: LinkId,
    ) -> LookupResult {
        let lookup = SessionLookup { key: name.key, node: &name.node, identity, detached_only: gentle };
        self.hub.look_up(self.now, &lookup, link)
    }

    /// The parts of the shard that the WebSocket transport uses.
    pub fn websocket_context(&mut self, unread_bytes: usize) -> websocket::WebSocketContext<'_> {
        websocket::WebSocketContext {
            now: self.now,
            hub: &mut self.hub,
            scratch: &mut self.scratch,
            reply: &mut self.reply,
            frame_bytes: self.context.limits.json_frame_bytes,
            unread_bytes,
            tracer: self.context.tracer.as_deref(),
        }
    }

    /// What a client without close codes gets when the app ends its connection.
    pub fn ended(&self, reason: &CloseReason) -> Refusal {
        let message = reason.reason().to_owned();
        match reason {
            CloseReason::Banned { .. } => Refusal::new(Code::Blocked, message),
            CloseReason::Disconnected { code: 4500.., .. } => {
                Refusal::new(Code::Unavailable, message).retry_after(self.reconnect_after_ms())
            }
            _ => Refusal::new(Code::Gone, message),
        }
    }

    /// What a request gets while the server stops.
    pub fn stopping(&self) -> Refusal {
        let refusal = Refusal::new(Code::Unavailable, "the server is stopping");
        refusal.retry_after(self.reconnect_after_ms())
    }

    /// When a client should reconnect after a stop: spread randomly, and below half of the shortest grace period.
    pub fn reconnect_after_ms(&self) -> u64 {
        let settings = &self.context.node.settings;
        let graces = settings.kinds.values().chain([&settings.other_kinds]).map(|rules| rules.grace_ms);
        let max = graces.min().unwrap_or(0) / 2;
        if max == 0 { 0 } else { random_bits() as u64 % max.min(RECONNECT_MAX_MS) }
    }
}
