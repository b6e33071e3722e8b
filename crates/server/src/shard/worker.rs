//! The loop of one shard: wait, read the ready sockets and run their commands, take the mail, settle what is due,
//! then write: replies at once, connections with events in turn, each once. Owns the sockets; the hub owns what they mean.
//! Must hold: a turn is bounded in bytes; nothing here waits for anything but the poll.

use crate::resp;
use crate::shard::ShardContext;
use crate::shard::conn::Speaks;
use crate::shard::input::{Arrival, ShardInput};
use crate::shard::links::{Links, Target};
use crate::shard::queue::ShardQueue;
use crate::supervisor::fault;
use mio::{Events, Interest, Token};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_hub::core::authorize;
use tavern_hub::core::wheel::Wheel;
use tavern_hub::{Input, LivenessTask};
use tavern_hub::{LinkId, Scratch, Shard};
use tavern_store::Clock;

/// The waker of the queue; sockets have their link numbers.
pub const WAKE: Token = Token(usize::MAX);
/// Sockets looked at in one turn.
const EVENTS: usize = 1024;
/// Bytes read from one socket in one turn.
pub const READ_BYTES: usize = 64 * 1024;
/// Publishes in a turn before everybody is written to: far below what a mailbox holds, so that a burst overflows
/// nobody who reads.
const PUBLISHES_PER_FLUSH: u64 = 256;
/// A congested neighbour is looked at again after this long.
const CONGESTED_MS: u64 = 1;
/// How long clients have to read our last words before their sockets are gone.
const STOP_LINGER_MS: u64 = 500;

/// A shard before it runs: what can travel to its thread.
pub struct Seed {
    index: usize,
    context: Arc<ShardContext>,
    poll: mio::Poll,
}

impl Seed {
    pub fn new(index: usize, context: Arc<ShardContext>, poll: mio::Poll) -> Seed {
        Seed { index, context, poll }
    }

    pub fn now(&self) -> Time {
        self.context.clock.now()
    }

    pub fn index(&self) -> usize {
        self.index
    }

    pub fn node(&self) -> Arc<tavern_hub::Node> {
        self.context.node.clone()
    }

    /// The name of its thread.
    pub fn name(&self) -> String {
        format!("shard-{}", self.index)
    }

    /// Runs until it is told to stop, on the thread that made the hub.
    pub fn run(self, hub: Shard) {
        // However the shard ends, nobody waits for it any more.
        let _closing = Closing(self.context.shards.queue(self.index).clone());
        Worker::new(self, hub).run();
    }
}

/// Closes the inbox of a shard that has ended or panicked.
struct Closing(Arc<ShardQueue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Where the outcome of an order goes.
type OrderAnswer = tokio::sync::oneshot::Sender<Result<Vec<u8>, tavern_wire::error::Refusal>>;

pub struct Worker {
    pub index: usize,
    pub hub: Shard,
    /// Who waits for an app's orders, by number.
    pub orders: HashMap<u64, OrderAnswer>,
    pub ordered: u64,
    pub links: Links,
    pub context: Arc<ShardContext>,
    pub queue: Arc<ShardQueue>,
    pub poll: mio::Poll,
    started_at: Time,
    pub now: Time,
    pub buffer: Box<[u8]>,
    pub scratch: Scratch,
    pub reply: Vec<u8>,
    pub ranges: Vec<Range<usize>>,
    /// Connections with replies: written to at the end of the turn.
    pub replies: Vec<LinkId>,
    /// Connections with events: written to in turn.
    pub touched: VecDeque<LinkId>,
    /// Connections that have more to read than one turn takes.
    pub unread: Vec<LinkId>,
    /// Connections that go to another shard at the end of the turn.
    pub moves: Vec<(LinkId, usize)>,
    /// Moments of single connections: a `TAVERN.WAIT` that ends.
    pub wheel: Wheel<LinkId>,
    pub tending: crate::shard::tend::Tending,
    /// Unfinished input of all connections of this shard.
    pub partial_bytes: usize,
    /// Another shard's inbox is full: publishers are not read.
    pub congested: bool,
    /// Messages and news that came from other shards, answers of the store: all of it may have filled mailboxes.
    received: u64,
    /// Messages published when everybody had last been written to.
    pub published_at_flush: u64,
    mail: Vec<ShardInput>,
    /// No more commands are taken: the server is about to stop.
    pub frozen: bool,
    /// Told to stop: the time until which last words may still be read.
    stop_at: Option<Time>,
}

impl Worker {
    fn new(seed: Seed, hub: Shard) -> Worker {
        let now = seed.context.clock.now();
        let Seed { index, context, poll } = seed;
        let queue = context.shards.queue(index).clone();
        Worker {
            index,
            hub,
            links: Links::default(),
            context,
            queue,
            poll,
            started_at: now,
            now,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            scratch: Scratch::default(),
            reply: Vec::new(),
            ranges: Vec::new(),
            replies: Vec::new(),
            touched: VecDeque::new(),
            unread: Vec::new(),
            moves: Vec::new(),
            wheel: Wheel::new(now),
            tending: crate::shard::tend::Tending::new(now),
            partial_bytes: 0,
            congested: false,
            received: 0,
            published_at_flush: 0,
            mail: Vec::new(),
            frozen: false,
            stop_at: None,
            orders: HashMap::new(),
            ordered: 0,
        }
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let name = format!("shard-{}", self.index);
        while !self.is_over() && !fault::strikes(&name) {
            let timeout = fault::limit(&name, self.timeout());
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "the poll of a shard failed");
                return;
            }
            self.now = self.now.max(self.context.clock.now());
            self.hub.core.begin_turn(self.now);
            self.turn(&events);
        }
    }

    fn is_over(&self) -> bool {
        self.stop_at.is_some_and(|at| self.now >= at || self.links.conns().is_empty())
    }

    /// How long the poll may sleep: not at all while something waits, else until the next thing is due.
    fn timeout(&mut self) -> Option<Duration> {
        if self.congested {
            return Some(Duration::from_millis(CONGESTED_MS));
        }
        let busy = !self.unread.is_empty() || !self.touched.is_empty() || !self.replies.is_empty();
        if busy || !self.queue.doze() {
            return Some(Duration::ZERO);
        }
        let dues = [self.hub.next_wake(), self.wheel.next_wake(), self.tending.next_wake(&self.links)];
        let due = dues.into_iter().flatten().min()?;
        Some(Duration::from_millis(due.since(self.context.clock.now()).max(1)))
    }

    fn turn(&mut self, events: &Events) {
        self.congested = self.congested && self.is_congested();
        let again = std::mem::take(&mut self.unread);
        for event in events {
            if event.token() == WAKE {
                continue;
            }
            let link = LinkId(event.token().0 as u32);
            if event.is_writable() {
                self.writable(link);
            }
            if event.is_read_closed() && self.is_waiting(link) {
                // A command that waits is not read past, so the end would not be seen.
                self.drop_conn(link);
                continue;
            }
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.read(link);
                self.flush_if_many();
            }
        }
        for link in again {
            self.read(link);
            self.flush_if_many();
        }
        self.take_mail();
        self.hub.wake(self.now);
        self.wake_waiters();
        self.tend();
        self.flush();
        self.carry_moves();
        self.links.end_turn();
    }

    /// Another shard or the bus has more to carry than it can: publishers must wait.
    fn is_congested(&self) -> bool {
        self.context.shards.is_any_full() || self.context.node.carrier.bus().is_some_and(|bus| bus.is_full())
    }

    /// Publishes pile up in mailboxes until they are written: do that before a mailbox could overflow.
    fn flush_if_many(&mut self) {
        if self.published() - self.published_at_flush >= PUBLISHES_PER_FLUSH {
            self.flush_all();
        }
    }

    /// Messages that this shard has put into mailboxes.
    pub fn published(&self) -> u64 {
        self.context.node.stats[self.index].published.get() + self.received
    }

    fn take_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.queue.take(&mut mail);
        for letter in mail.drain(..) {
            self.open(letter);
            self.flush_if_many();
        }
        self.mail = mail;
    }

    fn open(&mut self, mail: ShardInput) {
        if self.frozen && mail.is_request() {
            // Whoever waits for the answer hears that the server is stopping.
            return;
        }
        match mail {
            ShardInput::Freeze(reply) => {
                self.frozen = true;
                self.flush_all();
                let _ = reply.send(());
            }
            ShardInput::Parcels(parcels) => {
                for parcel in parcels {
                    self.hub.receive(self.now, parcel);
                    self.received += 1;
                    self.flush_if_many();
                }
            }
            ShardInput::Answers(answers) => {
                for (ticket, answer) in answers {
                    self.hub.handle(self.now, Input::Answer(ticket, answer));
                    self.received += 1;
                    self.flush_if_many();
                }
            }
            ShardInput::TakeOver(taken) => {
                self.hub.handle(self.now, Input::Liveness(LivenessTask::TakeOver(taken)));
            }
            ShardInput::Overdue(deadline) => {
                self.hub.handle(self.now, Input::Liveness(LivenessTask::Overdue(deadline)))
            }
            ShardInput::Sweep(user) => self.hub.handle(self.now, Input::Liveness(LivenessTask::Sweep(user))),
            ShardInput::Look => {
                self.hub.handle(self.now, Input::Liveness(LivenessTask::Compare));
            }
            ShardInput::Announce => self.hub.handle(self.now, Input::Liveness(LivenessTask::Announce)),
            ShardInput::News(told) => {
                self.hub.handle(self.now, Input::Presence(told));
                self.received += 1;
            }
            ShardInput::Rumour(told) => {
                self.hub.handle(self.now, Input::Status(told));
                self.received += 1;
            }
            ShardInput::Order(order) => self.http_order(*order),
            ShardInput::Ready(links) => self.hub.handle(self.now, Input::BusReady(links)),
            ShardInput::Letter(from, letter) => {
                self.hub.handle(self.now, Input::Migration { from, letter: *letter })
            }
            ShardInput::Lost(channel) => {
                self.hub.handle(self.now, Input::BusLost(channel.map(Into::into)));
            }
            ShardInput::Arrival(arrival) => self.arrive(*arrival),
            ShardInput::Command(command) => self.http_command(*command),
            ShardInput::Poll(poll) => self.http_poll(*poll),
            ShardInput::Stream(stream) => self.http_stream(*stream),
            ShardInput::StreamRoom(link) => self.stream_has_room(link),
            ShardInput::Publish(publish) => self.http_publish(*publish),
            ShardInput::Answer(question, verdict) => authorize::answer(&mut self.hub.core, question, verdict),
            ShardInput::Inspect(client, reply) => {
                // The asker may have gone away; then nobody wants to know.
                let _ = reply.send(self.report(client));
            }
            ShardInput::Login(link, client, outcome) => self.login(link, client, outcome),
            ShardInput::Kill(link, client) => self.kill(link, client),
            ShardInput::Adopt(packed, late, done) => {
                for packed in packed {
                    match late {
                        true => self.hub.adopt_late(self.now, &packed),
                        false => self.hub.adopt(self.now, &packed),
                    };
                }
                // Whoever waits for it may have given up.
                let _ = done.send(());
            }
            ShardInput::Leave(nodes, drain_ms) => self.hub.leave_node(self.now, &nodes, drain_ms),
            ShardInput::Leaving(reply) => drop(reply.send(self.hub.leaving())),
            ShardInput::Stop(reply) => {
                let packed = self.hub.pack(self.now);
                self.flush_all();
                self.say_closing();
                let _ = reply.send(packed);
                self.stop_at = Some(self.now + STOP_LINGER_MS);
            }
        }
    }

    /// A connection comes to this shard, fresh from its handshake or from another shard.
    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { mut conn, input, commands, hello } = arrival;
        let link = self.new_link();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut conn.socket, Token(link.0 as usize), interest)
        {
            tracing::warn!(%error, "a connection could not be watched");
            self.links.retire(link);
            return;
        }
        conn.heard_ms = self.since_start();
        match &mut conn.speaks {
            Speaks::WebSocket(socket) => socket.caller.link.id = link,
            Speaks::Redis(peer) => {
                peer.link = link;
                peer.info.moved(self.index, link);
            }
            Speaks::Nothing => {}
        }
        let mut conn = Box::new(conn);
        if let Some(hello) = hello
            && !self.greet(&mut conn, &hello)
        {
            conn.stalled.get_or_insert_default().hello = Some(hello);
        }
        if !commands.is_empty() {
            conn.stalled.get_or_insert_default().frames.extend(commands);
        }
        self.partial_bytes += input.len();
        conn.input = input;
        self.links.put(link, Target::Socket(conn));
        self.touch(link);
        self.resume_stalled(link);
        // Edge-triggered: what came before the registration rings no bell.
        self.unread.push(link);
    }

    fn login(
        &mut self,
        link: LinkId,
        client: u64,
        outcome: Result<tavern_domain::Identity, crate::auth::AuthError>,
    ) {
        let Some(peer) = self.peer(link, client) else { return };
        peer.login = Some(outcome);
        self.resume_stalled(link);
    }

    fn kill(&mut self, link: LinkId, client: u64) {
        if self.peer(link, client).is_some() {
            self.close(link);
        }
    }

    fn peer(&mut self, link: LinkId, client: u64) -> Option<&mut resp::Peer> {
        match &mut self.links.conn_mut(link)?.speaks {
            Speaks::Redis(peer) if peer.info.id == client => Some(peer),
            _ => None,
        }
    }

    /// A Redis connection in `TAVERN.WAIT`.
    fn is_waiting(&mut self, link: LinkId) -> bool {
        let conn = self.links.conn_mut(link);
        conn.is_some_and(|conn| matches!(&conn.speaks, Speaks::Redis(peer) if peer.waiting_until.is_some()))
    }

    fn wake_waiters(&mut self) {
        let mut due = Vec::new();
        self.wheel.expire(self.now, &mut due);
        for link in due {
            self.resume_stalled(link);
        }
    }

    /// Puts a connection on the list of those with replies, which are written to first.
    pub fn touch_reply(&mut self, link: LinkId) {
        if let Some(conn) = self.links.conn_mut(link)
            && !conn.state.replies
        {
            conn.state.replies = true;
            self.replies.push(link);
        }
    }

    /// Puts a connection on the list of those with events.
    pub fn touch(&mut self, link: LinkId) {
        if let Some(conn) = self.links.conn_mut(link)
            && !conn.state.touched
        {
            conn.state.touched = true;
            self.touched.push_back(link);
        }
    }

    pub fn since_start(&self) -> u32 {
        self.now.since(self.started_at) as u32
    }
}
