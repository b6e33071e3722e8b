//! The connection to the server: connected, used until it breaks, reconnected. Must hold: after a break everything is
//! subscribed to again before the loss is reported; a server that is silent for a while counts as down; no caller
//! waits long for it.

use super::line::broken;
use super::protocol::BusProtocol;
use super::reader::{BusDelivery, FrameReader};
use super::shared::{RemoteShared, unavailable};
use super::socket::{BusSocket, read_more};
use super::writer::FrameWriter;
pub use super::writer::PING_EVERY;
use bytes::BytesMut;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// For connecting to a server and logging in.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between attempts to reconnect: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A server that sends nothing for this long is down; so is one that reads nothing.
pub const SILENCE: Duration = Duration::from_secs(15);
/// How long a subscription waits for a server that is down: long enough for a restart.
const GRACE: Duration = Duration::from_secs(1);
/// How long a stopping bus waits for the server to accept its last messages.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest frame of a server. Messages of a node are shorter: longer ones are sent in parts.
const FRAME_BYTES: usize = 64 * 1024 * 1024;

type FirstConnect = std::sync::mpsc::Sender<io::Result<()>>;

/// How an engine connects to its server, and how the outbox and what arrives cross a connection.
pub trait BusLink: Send + 'static {
    const NAME: &'static str;
    /// Other programs can listen on the server to what is published for them.
    const REACHES_SERVICES: bool;
    type Connection;

    /// Connects to the first server that accepts the node.
    fn connect(&mut self) -> impl Future<Output = io::Result<Self::Connection>>;

    /// Sends and receives until the connection breaks, or until the last ping of a stopping bus was answered.
    fn transfer(
        &mut self,
        connection: Self::Connection,
        shared: &RemoteShared,
        has_lost: bool,
        deliveries: &mpsc::Sender<BusDelivery>,
    ) -> impl Future<Output = io::Result<()>>;
}

/// The link to a server with a protocol of its own.
pub struct SocketLink<P> {
    protocol: P,
    reader: FrameReader,
}

impl<P: BusProtocol> SocketLink<P> {
    pub fn new(protocol: P) -> SocketLink<P> {
        SocketLink { protocol, reader: FrameReader::default() }
    }
}

impl<P: BusProtocol> BusLink for SocketLink<P> {
    const NAME: &'static str = P::NAME;
    const REACHES_SERVICES: bool = true;
    type Connection = (BusSocket, BytesMut);

    async fn connect(&mut self) -> io::Result<(BusSocket, BytesMut)> {
        connect(&mut self.protocol).await
    }

    async fn transfer(
        &mut self,
        (socket, input): (BusSocket, BytesMut),
        shared: &RemoteShared,
        has_lost: bool,
        deliveries: &mpsc::Sender<BusDelivery>,
    ) -> io::Result<()> {
        let stream = random();
        self.reader.reassembler.own = stream;
        let writer = FrameWriter::new(stream, has_lost.then(|| shared.loss_subject.clone()));
        let (incoming, outgoing) = tokio::io::split(socket);
        tokio::select! {
            received = receive::<P>(shared, &mut self.reader, deliveries, incoming, input) => received,
            sent = send(shared, &mut self.protocol, writer, outgoing) => sent,
            () = stopped(shared) => Ok(()),
        }
    }
}

pub async fn run<L: BusLink>(
    shared: &RemoteShared,
    mut link: L,
    deliveries: mpsc::Sender<BusDelivery>,
    reached: FirstConnect,
) {
    let mut pause = FIRST_PAUSE;
    let mut is_reconnect = false;
    let mut away = Disconnected::new(shared, &deliveries);
    while !shared.is_stopping() {
        match away.during(link.connect()).await {
            Ok(connection) => {
                if is_reconnect {
                    tracing::info!(bus = L::NAME, "bus reconnected");
                }
                let has_lost = shared.outbox().connect(is_reconnect);
                let _ = reached.send(Ok(()));
                let began = Instant::now();
                shared.note_received();
                let ended = link.transfer(connection, shared, has_lost, &deliveries).await;
                let failed = shared.outbox().disconnect();
                away = Disconnected::new(shared, &deliveries);
                shared.counts.failed.fetch_add(failed as u64, Ordering::Relaxed);
                if let Err(error) = ended {
                    tracing::warn!(bus = L::NAME, %error, failed, "bus connection lost");
                }
                is_reconnect = true;
                if began.elapsed() > LONGEST_PAUSE {
                    pause = FIRST_PAUSE;
                }
            }
            Err(error) if !is_reconnect => {
                let _ = reached.send(Err(error));
                return;
            }
            Err(error) => tracing::debug!(bus = L::NAME, %error, "bus still unreachable"),
        }
        if !shared.is_stopping() {
            // Jitter, so that nodes do not reconnect at the same moment.
            let jittered = pause.mul_f64(0.5 + (random() % 1000) as f64 / 2000.0);
            let _ = away.during(tokio::time::timeout(jittered, shared.ending.notified())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The time without a connection: waiting subscriptions are failed periodically.
struct Disconnected<'a> {
    shared: &'a RemoteShared,
    deliveries: &'a mpsc::Sender<BusDelivery>,
    until: tokio::time::Instant,
}

impl<'a> Disconnected<'a> {
    fn new(shared: &'a RemoteShared, deliveries: &'a mpsc::Sender<BusDelivery>) -> Disconnected<'a> {
        Disconnected { shared, deliveries, until: tokio::time::Instant::now() + GRACE }
    }

    async fn during<T>(&mut self, trying: impl Future<Output = T>) -> T {
        let mut trying = std::pin::pin!(trying);
        loop {
            if let Ok(outcome) = tokio::time::timeout_at(self.until, &mut trying).await {
                return outcome;
            }
            self.until = tokio::time::Instant::now() + GRACE;
            let waiting = self.shared.outbox().give_up();
            if !waiting.is_empty() {
                let away = Err(unavailable(Arc::new(broken("the server is down"))));
                // The receiver is dropped only when the bus stops.
                let _ = self.deliveries.send(BusDelivery::Confirmed(waiting, away)).await;
            }
        }
    }
}

/// One round over the servers; the first that accepts the node.
async fn connect<P: BusProtocol>(protocol: &mut P) -> io::Result<(BusSocket, BytesMut)> {
    let mut outcome = Err(broken("the address has no server"));
    for host in protocol.hosts().to_vec() {
        let reached = tokio::time::timeout(CONNECT_TIMEOUT, protocol.connect(&host)).await;
        outcome = reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The bus stops, and the server has had time to accept its last messages.
pub async fn stopped(shared: &RemoteShared) {
    while !shared.is_stopping() {
        shared.ending.notified().await;
    }
    tokio::time::sleep(STOP_TIMEOUT).await;
}

/// Writes the outbox.
async fn send<P: BusProtocol>(
    shared: &RemoteShared,
    protocol: &mut P,
    mut writer: FrameWriter,
    mut socket: WriteHalf<BusSocket>,
) -> io::Result<()> {
    loop {
        let out = writer.fill(shared, protocol);
        if out.is_empty() {
            let _ = tokio::time::timeout(PING_EVERY, shared.changed.notified()).await;
            continue;
        }
        let written = tokio::time::timeout(SILENCE, async {
            socket.write_all(&out).await?;
            socket.flush().await
        });
        written.await.map_err(|_| broken("the server does not read"))??;
        let sent = shared.outbox().wrote();
        shared.counts.sent.fetch_add(sent as u64, Ordering::Relaxed);
    }
}

/// Reads from the socket. Ends without an error when the last ping was answered.
async fn receive<P: BusProtocol>(
    shared: &RemoteShared,
    reader: &mut FrameReader,
    deliveries: &mpsc::Sender<BusDelivery>,
    mut socket: ReadHalf<BusSocket>,
    mut input: BytesMut,
) -> io::Result<()> {
    loop {
        let is_empty = reader.read::<P>(shared, &mut input)?;
        reader.end_batch();
        while !reader.deliveries.is_empty() {
            let Ok(room) = deliveries.reserve().await else { return Ok(()) };
            if let Some(delivery) = reader.deliveries.pop_front() {
                room.send(delivery);
            }
        }
        if reader.is_last {
            return Ok(());
        }
        if is_empty {
            let read = tokio::time::timeout(SILENCE, read_more(&mut socket, &mut input, FRAME_BYTES)).await;
            read.map_err(|_| broken("the server is silent"))??;
            shared.note_received();
        }
    }
}
