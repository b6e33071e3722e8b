//! The loop of one shard: wait, read the ready sockets and run their commands, take the queue, run due timers, then
//! write: replies at once, connections with events in turn, each once. Owns the sockets; the hub owns their sessions.
//! Must hold: a turn is bounded in bytes; only the poll blocks.

use crate::shard::ShardContext;
use crate::shard::input::ShardInput;
use crate::shard::input::ShardQueue;
use crate::shard::keepalive::Keepalive;
use crate::shard::requests::HttpRequests;
use crate::shard::socket_reader::SocketReader;
use crate::shard::state::ShardState;
use crate::shard::{gateways, polls, report, socket_writer, streams};
use crate::supervisor::fault;
use crate::traces::{SpanDetails, SpanKind};
use mio::{Events, Token};
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_domain::trace::TraceContext;
use tavern_hub::core::authorize;
use tavern_hub::{LinkId, Shard, ShardEvent};
use tavern_store::Clock;

/// The waker of the queue; sockets have their link numbers.
pub const WAKE: Token = Token(usize::MAX);
/// Sockets handled in one turn.
const EVENTS: usize = 1024;
/// Publishes in a turn before all connections are written to: far below the size of a mailbox, so that a burst does
/// not overflow a client that reads.
const PUBLISHES_PER_FLUSH: u64 = 256;
/// Work for the store that is submitted before a turn is over; then the queue is taken. A turn may run a thousand commands:
/// with an engine that answers at once, each is finished while its data is still in the processor's cache.
const WORK_PER_SUBMIT: usize = 16;
/// While another shard or the bus is full, it is checked again after this time.
const CONGESTED_MS: u64 = 1;
/// How long clients have to read the last bytes before their sockets are closed.
const STOP_LINGER_MS: u64 = 500;

/// A shard before it runs: the parts that can be sent to its thread.
pub struct ShardStart {
    index: usize,
    context: Arc<ShardContext>,
    poll: mio::Poll,
    registry: mio::Registry,
}

impl ShardStart {
    pub fn new(index: usize, context: Arc<ShardContext>, poll: mio::Poll) -> std::io::Result<ShardStart> {
        let registry = poll.registry().try_clone()?;
        Ok(ShardStart { index, context, poll, registry })
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

    /// Runs until it is stopped, on the thread that created the hub.
    pub fn run(self, hub: Shard) {
        let queue = self.context.shards.queue(self.index).clone();
        // However the shard ends, its senders must not wait for it.
        let _closing = QueueCloser(queue.clone());
        let name = self.name();
        ShardWorker::new(self, queue, hub).run(&name);
    }
}

/// Closes the queue of a shard that has ended or panicked.
struct QueueCloser(Arc<ShardQueue>);

impl Drop for QueueCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}

pub struct ShardWorker {
    pub state: ShardState,
    pub reader: SocketReader,
    pub requests: HttpRequests,
    keepalive: Keepalive,
    queue: Arc<ShardQueue>,
    poll: mio::Poll,
    /// Inputs taken from the queue; reused.
    inputs: Vec<ShardInput>,
    /// Messages from other shards and answers of the store: all of it may have filled mailboxes.
    received: u64,
    /// Messages published when all connections had last been written to.
    pub published_at_flush: u64,
    /// Stopping: until this time clients may read the last bytes.
    stop_at: Option<Time>,
}

impl ShardWorker {
    fn new(seed: ShardStart, queue: Arc<ShardQueue>, hub: Shard) -> ShardWorker {
        let now = seed.now();
        let ShardStart { index, context, poll, registry } = seed;
        ShardWorker {
            state: ShardState::new(index, context, hub, registry, now),
            reader: SocketReader::new(now),
            requests: HttpRequests::default(),
            keepalive: Keepalive::new(now),
            queue,
            poll,
            inputs: Vec::new(),
            received: 0,
            published_at_flush: 0,
            stop_at: None,
        }
    }

    fn run(mut self, name: &str) {
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_over() && !fault::strikes(name) {
            let timeout = fault::limit(name, self.timeout());
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != std::io::ErrorKind::Interrupted
            {
                tracing::error!(%error, shard = self.state.index, "poll failed");
                return;
            }
            self.state.now = self.state.now.max(self.state.context.clock.now());
            self.state.hub.core.begin_turn(self.state.now);
            self.state.read_clock();
            self.turn(&events);
        }
    }

    fn is_over(&self) -> bool {
        self.stop_at.is_some_and(|at| self.state.now >= at || self.state.links.conns().is_empty())
    }

    /// How long the poll may sleep: not at all while there is work, else until the next timer.
    fn timeout(&self) -> Option<Duration> {
        let state = &self.state;
        if state.congested {
            return Some(Duration::from_millis(CONGESTED_MS));
        }
        if state.is_busy() || !self.queue.begin_sleep() {
            return Some(Duration::ZERO);
        }
        let wakes = [state.hub.next_wake(), self.reader.next_wake(), self.keepalive.next_wake(&state.links)];
        let due = wakes.into_iter().flatten().min()?;
        Some(Duration::from_millis(due.since(state.context.clock.now()).max(1)))
    }

    fn turn(&mut self, events: &Events) {
        self.state.congested = self.state.congested && self.is_congested();
        let again = std::mem::take(&mut self.state.unread);
        for event in events {
            if event.token() == WAKE {
                continue;
            }
            let link = LinkId(event.token().0 as u32);
            if event.is_writable() {
                socket_writer::writable(&mut self.state, link);
            }
            if event.is_read_closed() && self.is_waiting(link) {
                // Input behind a waiting command is not read, so the end would not be detected.
                self.state.drop_conn(link);
                continue;
            }
            if event.is_readable() || event.is_read_closed() || event.is_error() {
                self.read(link);
            }
        }
        for link in again {
            self.read(link);
        }
        self.take_inputs();
        self.state.hub.wake(self.state.now);
        self.reader.wake_waiters(&mut self.state);
        self.keepalive.run(&mut self.state);
        self.flush();
        self.reader.carry_moves(&mut self.state);
        self.state.links.end_turn();
    }

    fn read(&mut self, link: LinkId) {
        self.reader.read(&mut self.state, link);
        if self.state.hub.core.effects.work.len() >= WORK_PER_SUBMIT {
            self.submit_work();
            self.take_inputs();
        }
        self.flush_if_many();
    }

    /// A Redis connection in `TAVERN.WAIT`.
    fn is_waiting(&mut self, link: LinkId) -> bool {
        self.state.links.conn_mut(link).is_some_and(|conn| conn.is_waiting())
    }

    /// Another shard or the bus is full: publishers must wait.
    fn is_congested(&self) -> bool {
        let context = &self.state.context;
        context.shards.is_any_full() || context.node.bus_interests.bus().is_some_and(|bus| bus.is_full())
    }

    /// Published messages collect in mailboxes until they are written: flush before a mailbox could overflow.
    fn flush_if_many(&mut self) {
        if self.published() - self.published_at_flush >= PUBLISHES_PER_FLUSH {
            self.flush_all();
        }
    }

    /// Messages that this shard has put into mailboxes.
    pub fn published(&self) -> u64 {
        self.state.context.node.stats[self.state.index].published.get() + self.received
    }

    fn take_inputs(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        self.queue.take(&mut inputs);
        for input in inputs.drain(..) {
            self.take(input);
            self.flush_if_many();
        }
        self.inputs = inputs;
    }

    /// Runs a request that belongs to a trace. A publish has a span of its own; what is committed gets one below it.
    fn take_traced(&mut self, trace: TraceContext, input: ShardInput) {
        let tracer = self.state.context.tracer.clone().filter(|_| trace.sampled);
        let publish = match (&tracer, &input) {
            (Some(tracer), ShardInput::Publish(publish)) => {
                Some((tracer.child(trace), publish.channel.to_string()))
            }
            _ => None,
        };
        self.state.hub.core.trace = tracer.is_some().then_some(trace);
        self.take(input);
        self.state.hub.core.trace = None;
        if let (Some(tracer), Some((span, channel))) = (tracer, publish) {
            let attributes = vec![("messaging.destination.name", channel.into())];
            let details = SpanDetails { attributes, ..SpanDetails::default() };
            tracer.end(span, "publish".to_owned(), SpanKind::Internal, details);
        }
    }

    fn take(&mut self, input: ShardInput) {
        if self.state.frozen && input.is_request() {
            // Its answer is dropped, so that the client learns that the server is stopping.
            return;
        }
        let now = self.state.now;
        let state = &mut self.state;
        match input {
            ShardInput::Packets(packets) => {
                for packet in packets {
                    match packet.message.history() {
                        Some(_) => self.state.hub.handle(now, ShardEvent::Message(packet)),
                        None => self.state.hub.core.receive(now, packet),
                    }
                    self.received += 1;
                    self.flush_if_many();
                }
            }
            ShardInput::Answers(answers) => {
                for (ticket, answer) in answers {
                    self.state.hub.handle(now, ShardEvent::Answer(ticket, answer));
                    self.received += 1;
                    self.flush_if_many();
                }
            }
            ShardInput::Hub(input) => {
                state.hub.handle(now, input);
                self.received += 1;
            }
            ShardInput::Authorized(question, reply) => {
                authorize::answer(&mut state.hub.core, question, reply)
            }
            ShardInput::Arrival(arrival) => self.reader.arrive(state, *arrival),
            ShardInput::Login(link, client, outcome) => self.reader.log_in(state, link, client, outcome),
            ShardInput::Kill(link, client) => socket_writer::kill(state, link, client),
            ShardInput::Command(command) => self.requests.command(state, *command),
            ShardInput::Publish(publish) => self.requests.publish(state, *publish),
            ShardInput::Order(order) => self.requests.order(state, *order),
            ShardInput::Topic(topic) => self.requests.topic(state, *topic),
            ShardInput::Traced(trace, input) => self.take_traced(trace, *input),
            ShardInput::Poll(poll) => polls::open(state, *poll),
            ShardInput::Stream(stream) => streams::open(state, *stream),
            ShardInput::StreamRoom(link) => streams::has_room(state, link),
            ShardInput::OpenGateway(gateway) => gateways::open(state, *gateway),
            ShardInput::GatewayCommand(link, client, command) => {
                gateways::command(state, link, client, command);
            }
            ShardInput::GatewayRoom(link, client) => gateways::has_room(state, link, client),
            ShardInput::GatewayClosed(link, client) => gateways::close(state, link, client),
            ShardInput::Inspect(client, reply) => {
                // The client may have disconnected.
                let _ = reply.send(report::of_client(state, client));
            }
            ShardInput::Adopt(packed, late, done) => {
                for packed in packed {
                    match late {
                        true => state.hub.adopt_late(now, &packed),
                        false => state.hub.adopt(now, &packed),
                    };
                }
                // The receiver may have given up.
                let _ = done.send(());
            }
            ShardInput::Freeze(reply) => {
                self.state.frozen = true;
                gateways::end_all(&mut self.state);
                self.flush_all();
                let _ = reply.send(());
            }
            ShardInput::Leave(nodes, drain_ms) => state.hub.drain(now, &nodes, drain_ms),
            ShardInput::Leaving(reply) => drop(reply.send(state.hub.in_transit())),
            ShardInput::Stop(reply) => {
                let packed = state.hub.pack(now);
                self.flush_all();
                socket_writer::close_all(&mut self.state);
                let _ = reply.send(packed);
                self.stop_at = Some(now + STOP_LINGER_MS);
            }
        }
    }
}
