//! One Engine.IO connection: handshake done, packets in and out over polls or a WebSocket, the upgrade from one to the other,
//! heartbeats, the end. It knows nothing of what the messages mean.
//! Must hold: a client that does not read makes the session wait, not the memory grow; whatever closes it, it is closed once.

use super::registry::{EngineFlags, UNAUTHENTICATED_BYTES};
use crate::byte_budget::ReservedBytes;
use crate::gateway::{GatewaySocket, SocketEvent};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tavern_wire::engineio::{self, PROBE, Packet, PacketKind, append_to_payload, write_packet};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Bytes that wait for the client before no more frames are taken from its session.
const PENDING_BYTES: usize = 64 * 1024;
/// The time from the socket of an upgrade to its end.
const UPGRADE: Duration = Duration::from_secs(10);
/// The time to the first accepted request.
const LOGIN: Duration = Duration::from_secs(15);
/// The time that the last packets of a connection have to be written.
const GOODBYE: Duration = Duration::from_secs(1);

/// The payload of a poll; None: it overlaps with another one.
pub type PollAnswer = Option<Vec<u8>>;
/// Whether a `POST` was accepted.
pub type PostAnswer = bool;

pub enum EngineInput {
    Poll(oneshot::Sender<PollAnswer>),
    /// The packets of a `POST`.
    Post(Vec<(PacketKind, String)>, oneshot::Sender<PostAnswer>),
    /// The socket of an upgrade.
    Socket(Box<GatewaySocket>),
}

pub struct EngineConnection {
    heartbeat: Duration,
    inputs: mpsc::Receiver<EngineInput>,
    frames: mpsc::Receiver<Vec<u8>>,
    requests: mpsc::Sender<String>,
    flags: Arc<EngineFlags>,
    /// Until the first accepted request.
    reserved: Option<ReservedBytes>,
    message_bytes: usize,
    /// Packets for the client.
    pending: VecDeque<Vec<u8>>,
    pending_bytes: usize,
    /// Messages that the session has no room for yet.
    undelivered: VecDeque<String>,
    poll: Option<oneshot::Sender<PollAnswer>>,
    post: Option<oneshot::Sender<PostAnswer>>,
    socket: Option<GatewaySocket>,
    /// The socket is an upgrade that is not complete.
    probe: Option<UpgradeProbe>,
    ping_at: Instant,
    pong_by: Option<Instant>,
    login_by: Instant,
}

/// An upgrade that is not complete.
struct UpgradeProbe {
    until: Instant,
    /// The client has probed the socket.
    asked: bool,
    answered: bool,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    On,
    /// The client has closed it, or broken the protocol.
    Closed,
}

/// What a connection waited for.
enum Waited {
    Input(Option<EngineInput>),
    Frame(Option<Vec<u8>>),
    Socket(SocketEvent),
    Delivered,
    SessionEnded,
    PollGone,
    Timer,
}

impl EngineConnection {
    pub fn new(
        (heartbeat_ms, message_bytes): (u64, usize),
        inputs: mpsc::Receiver<EngineInput>,
        frames: mpsc::Receiver<Vec<u8>>,
        requests: mpsc::Sender<String>,
        flags: Arc<EngineFlags>,
        reserved: ReservedBytes,
    ) -> EngineConnection {
        let (now, heartbeat) = (Instant::now(), Duration::from_millis(heartbeat_ms));
        EngineConnection {
            heartbeat,
            inputs,
            frames,
            requests,
            flags,
            reserved: Some(reserved),
            message_bytes,
            pending: VecDeque::new(),
            pending_bytes: 0,
            undelivered: VecDeque::new(),
            poll: None,
            post: None,
            socket: None,
            probe: None,
            ping_at: now + heartbeat,
            pong_by: None,
            login_by: now + LOGIN,
        }
    }

    /// The connection begins with a socket.
    pub fn begin_on(&mut self, socket: GatewaySocket, open: Vec<u8>) {
        self.socket = Some(socket);
        self.push_packet(open);
    }

    pub async fn run(mut self) {
        while self.flush().await == Going::On {
            let waited = self.wait().await;
            if self.handle(waited).await == Going::Closed {
                break;
            }
        }
        self.end().await;
    }

    async fn wait(&mut self) -> Waited {
        let wake = self.next_wake();
        let limit = match self.flags.authenticated.load(Ordering::Acquire) {
            true => self.message_bytes,
            false => UNAUTHENTICATED_BYTES.min(self.message_bytes),
        };
        let reads = self.undelivered.is_empty();
        let takes = self.pending_bytes < PENDING_BYTES;
        let EngineConnection { inputs, frames, requests, undelivered, poll, socket, .. } = self;
        tokio::select! {
            input = inputs.recv() => Waited::Input(input),
            frame = frames.recv(), if takes => Waited::Frame(frame),
            event = next_of(socket, limit), if socket.is_some() && reads => Waited::Socket(event),
            permit = requests.reserve(), if !reads => match permit {
                Ok(permit) => {
                    if let Some(message) = undelivered.pop_front() {
                        permit.send(message);
                    }
                    Waited::Delivered
                }
                Err(_) => Waited::SessionEnded,
            },
            () = closed(poll), if poll.is_some() => Waited::PollGone,
            () = sleep_until(wake) => Waited::Timer,
        }
    }

    async fn handle(&mut self, waited: Waited) -> Going {
        match waited {
            Waited::Input(Some(EngineInput::Poll(answer))) => self.polled(answer),
            Waited::Input(Some(EngineInput::Post(packets, answer))) => self.posted(packets, answer),
            Waited::Input(Some(EngineInput::Socket(socket))) => {
                self.connected(*socket);
                Going::On
            }
            Waited::Frame(Some(frame)) => {
                let mut packet = Vec::with_capacity(frame.len() + 1);
                // A frame is JSON, which is text.
                let data = std::str::from_utf8(&frame).unwrap_or_default();
                write_packet(&mut packet, Packet { kind: PacketKind::Message, data });
                self.push_packet(packet);
                Going::On
            }
            Waited::Socket(event) => self.socket_said(event),
            Waited::Delivered => {
                if self.undelivered.is_empty()
                    && let Some(post) = self.post.take()
                {
                    let _ = post.send(true);
                }
                Going::On
            }
            Waited::Timer => self.timer(),
            Waited::Input(None) | Waited::Frame(None) | Waited::SessionEnded | Waited::PollGone => {
                Going::Closed
            }
        }
    }

    fn polled(&mut self, answer: oneshot::Sender<PollAnswer>) -> Going {
        if self.poll.is_some() || self.is_upgraded() {
            let _ = answer.send(None);
            return if self.is_upgraded() { Going::On } else { Going::Closed };
        }
        self.poll = Some(answer);
        Going::On
    }

    fn posted(&mut self, packets: Vec<(PacketKind, String)>, answer: oneshot::Sender<PostAnswer>) -> Going {
        if self.is_upgraded() {
            let _ = answer.send(false);
            return Going::On;
        }
        if self.post.is_some() {
            let _ = answer.send(false);
            return Going::Closed;
        }
        for (kind, data) in packets {
            if self.received(kind, data) == Going::Closed {
                let _ = answer.send(true);
                return Going::Closed;
            }
        }
        match self.undelivered.is_empty() {
            true => drop(answer.send(true)),
            false => self.post = Some(answer),
        }
        Going::On
    }

    /// A socket for an upgrade; a second one is closed.
    fn connected(&mut self, socket: GatewaySocket) {
        if self.socket.is_some() {
            tokio::spawn(timeout(GOODBYE, socket.close()));
            return;
        }
        self.socket = Some(socket);
        self.probe = Some(UpgradeProbe { until: Instant::now() + UPGRADE, asked: false, answered: false });
    }

    fn socket_said(&mut self, event: SocketEvent) -> Going {
        let text = match event {
            SocketEvent::Text(text) => text,
            SocketEvent::Control => return Going::On,
            SocketEvent::Closed if self.probe.take().is_some() => {
                // The upgrade has failed; polls go on.
                self.socket = None;
                return Going::On;
            }
            SocketEvent::Closed => {
                self.socket = None;
                return Going::Closed;
            }
        };
        let Ok(Packet { kind, data }) = engineio::read_packet(&text) else { return self.broken() };
        let Some(probe) = &mut self.probe else { return self.received(kind, data.to_owned()) };
        match kind {
            PacketKind::Ping if data == PROBE => {
                probe.asked = true;
                Going::On
            }
            PacketKind::Upgrade => {
                self.probe = None;
                self.flags.upgraded.store(true, Ordering::Release);
                // The client polls no more; one that is still parked is released.
                self.answer_poll(noop());
                Going::On
            }
            _ => self.broken(),
        }
    }

    /// A packet that means nothing here: an upgrade fails, a connection ends.
    fn broken(&mut self) -> Going {
        match self.probe.take() {
            Some(_) => {
                self.socket = None;
                Going::On
            }
            None => Going::Closed,
        }
    }

    fn received(&mut self, kind: PacketKind, data: String) -> Going {
        match kind {
            PacketKind::Message => self.undelivered.push_back(data),
            PacketKind::Pong => {
                self.pong_by = None;
                self.ping_at = Instant::now() + self.heartbeat;
            }
            PacketKind::Noop => {}
            PacketKind::Close | PacketKind::Open | PacketKind::Ping | PacketKind::Upgrade => {
                return Going::Closed;
            }
        }
        Going::On
    }

    fn next_wake(&self) -> Instant {
        let login_by = (!self.flags.authenticated.load(Ordering::Acquire)).then_some(self.login_by);
        let heartbeat = self.pong_by.unwrap_or(self.ping_at);
        [login_by, self.probe.as_ref().map(|probe| probe.until)]
            .into_iter()
            .flatten()
            .fold(heartbeat, Instant::min)
    }

    fn timer(&mut self) -> Going {
        let now = Instant::now();
        let authenticated = self.flags.authenticated.load(Ordering::Acquire);
        if authenticated {
            self.reserved = None;
        } else if now >= self.login_by {
            return Going::Closed;
        }
        if self.pong_by.is_some_and(|by| now >= by) {
            return Going::Closed;
        }
        if self.probe.as_ref().is_some_and(|probe| now >= probe.until) {
            self.probe = None;
            self.socket = None;
        }
        if self.pong_by.is_none() && now >= self.ping_at {
            let mut packet = Vec::new();
            write_packet(&mut packet, Packet { kind: PacketKind::Ping, data: "" });
            self.push_packet(packet);
            self.pong_by = Some(now + self.heartbeat);
        }
        Going::On
    }

    fn is_upgraded(&self) -> bool {
        self.socket.is_some() && self.probe.is_none()
    }

    fn push_packet(&mut self, packet: Vec<u8>) {
        self.pending_bytes += packet.len();
        self.pending.push_back(packet);
    }

    /// Writes what is pending to the socket, or answers a parked poll with it.
    async fn flush(&mut self) -> Going {
        if self.reserved.is_some() && self.flags.authenticated.load(Ordering::Acquire) {
            self.reserved = None;
        }
        if self.probe.is_some() {
            self.flush_probe().await;
        } else if let Some(socket) = &mut self.socket {
            let packets: Vec<Vec<u8>> = self.pending.drain(..).collect();
            self.pending_bytes = 0;
            // A client that does not read for so long would not answer a ping either.
            let written = timeout(self.heartbeat, socket.write(&packets)).await;
            return if matches!(written, Ok(Ok(()))) { Going::On } else { Going::Closed };
        }
        if self.poll.is_some() && !self.pending.is_empty() {
            let payload = self.take_payload();
            self.answer_poll(payload);
        }
        Going::On
    }

    /// While the client probes, packets still go out with polls, and a parked poll is released so that the client can switch.
    async fn flush_probe(&mut self) {
        let (Some(probe), Some(socket)) = (&mut self.probe, &mut self.socket) else { return };
        if probe.asked && !probe.answered {
            let mut packet = Vec::new();
            write_packet(&mut packet, Packet { kind: PacketKind::Pong, data: PROBE });
            probe.answered = matches!(timeout(GOODBYE, socket.write(&[packet])).await, Ok(Ok(())));
            if !probe.answered {
                self.probe = None;
                self.socket = None;
                return;
            }
        }
        if probe.answered && self.pending.is_empty() {
            self.answer_poll(noop());
        }
    }

    fn take_payload(&mut self) -> Vec<u8> {
        let mut payload = Vec::with_capacity(self.pending_bytes + self.pending.len());
        for packet in self.pending.drain(..) {
            append_to_payload(&mut payload, &packet);
        }
        self.pending_bytes = 0;
        payload
    }

    fn answer_poll(&mut self, payload: Vec<u8>) {
        if let Some(poll) = self.poll.take() {
            let _ = poll.send(Some(payload));
        }
    }

    /// Tells the client that it is over, if it still listens.
    async fn end(mut self) {
        let mut close = Vec::new();
        write_packet(&mut close, Packet { kind: PacketKind::Close, data: "" });
        if let Some(post) = self.post.take() {
            let _ = post.send(true);
        }
        self.push_packet(close);
        match self.socket.take().filter(|_| self.probe.is_none()) {
            Some(mut socket) => {
                let packets: Vec<Vec<u8>> = self.pending.drain(..).collect();
                let goodbye = async move {
                    if socket.write(&packets).await.is_ok() {
                        socket.close().await;
                    }
                };
                let _ = timeout(GOODBYE, goodbye).await;
            }
            None => {
                let payload = self.take_payload();
                self.answer_poll(payload);
            }
        }
    }
}

async fn next_of(socket: &mut Option<GatewaySocket>, max: usize) -> SocketEvent {
    match socket {
        Some(socket) => socket.next(max).await,
        None => std::future::pending().await,
    }
}

async fn closed(poll: &mut Option<oneshot::Sender<PollAnswer>>) {
    match poll {
        Some(poll) => poll.closed().await,
        None => std::future::pending().await,
    }
}

fn noop() -> Vec<u8> {
    let mut packet = Vec::new();
    write_packet(&mut packet, Packet { kind: PacketKind::Noop, data: "" });
    packet
}
