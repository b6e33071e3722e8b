//! The connection to the server: made, used until it breaks, made again. Must hold: after a break everything is
//! subscribed to again before the loss is told; a server that says nothing for a while is taken for gone; nobody waits long
//! for one that is.

use super::bus::{Shared, unavailable};
use super::dialect::{Dialect, broken};
use super::ear::{Delivery, Ear};
use super::pen::Pen;
use super::socket::{Socket, read_more};
use bytes::BytesMut;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// How long reaching a server and logging in may take.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Waits between attempts to come back: they double from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// The server is asked this often whether it is there.
pub const PING_EVERY: Duration = Duration::from_secs(5);
/// A server that has said nothing for this long is gone; so is one that takes nothing.
const SILENCE: Duration = Duration::from_secs(15);
/// How long whoever asked for something waits for a server that is away: a restart is bridged.
const BRIDGE: Duration = Duration::from_secs(1);
/// What a stopping node waits for the server to take its last words.
const FAREWELL: Duration = Duration::from_secs(1);
/// Bytes written together.
pub const BYTES_TOGETHER: usize = 256 * 1024;

/// The longest frame of a server. Messages of a node are shorter: longer ones travel in parts.
const FRAME_BYTES: usize = 64 * 1024 * 1024;

type Reached = std::sync::mpsc::Sender<io::Result<()>>;

pub async fn run<D: Dialect>(
    shared: &Shared,
    mut dialect: D,
    inbox: mpsc::Sender<Delivery>,
    reached: Reached,
) {
    let mut ear = Ear::default();
    let mut wait = FIRST_WAIT;
    let mut is_return = false;
    let mut away = Away::new(shared, &inbox);
    while !shared.is_stopping() {
        match away.during(connect(&mut dialect)).await {
            Ok((socket, input)) => {
                if is_return {
                    tracing::info!(bus = D::NAME, "the bus is back");
                }
                let voice = random();
                ear.reader.own = voice;
                let is_torn = shared.desk().connect(is_return);
                let _ = reached.send(Ok(()));
                let pen = Pen::new(voice, is_torn.then(|| shared.own.clone()));
                let began = Instant::now();
                shared.hear();
                let ended = pump(shared, &mut dialect, pen, &mut ear, &inbox, socket, input).await;
                let failed = shared.desk().disconnect();
                away = Away::new(shared, &inbox);
                shared.counts.failed.fetch_add(failed as u64, Ordering::Relaxed);
                if let Err(error) = ended {
                    tracing::warn!(bus = D::NAME, %error, failed, "the bus lost its server");
                }
                is_return = true;
                if began.elapsed() > LAST_WAIT {
                    wait = FIRST_WAIT;
                }
            }
            Err(error) if !is_return => {
                let _ = reached.send(Err(error));
                return;
            }
            Err(error) => tracing::debug!(bus = D::NAME, %error, "the bus is not back yet"),
        }
        if !shared.is_stopping() {
            // Not all nodes at the same moment.
            let spread = wait.mul_f64(0.5 + (random() % 1000) as f64 / 2000.0);
            let _ = away.during(tokio::time::timeout(spread, shared.ending.notified())).await;
            wait = (wait * 2).min(LAST_WAIT);
        }
    }
}

/// The time without a connection: whoever waits for one is told now and then that there is none.
struct Away<'a> {
    shared: &'a Shared,
    inbox: &'a mpsc::Sender<Delivery>,
    until: tokio::time::Instant,
}

impl<'a> Away<'a> {
    fn new(shared: &'a Shared, inbox: &'a mpsc::Sender<Delivery>) -> Away<'a> {
        Away { shared, inbox, until: tokio::time::Instant::now() + BRIDGE }
    }

    async fn during<T>(&mut self, trying: impl Future<Output = T>) -> T {
        let mut trying = std::pin::pin!(trying);
        loop {
            if let Ok(outcome) = tokio::time::timeout_at(self.until, &mut trying).await {
                return outcome;
            }
            self.until = tokio::time::Instant::now() + BRIDGE;
            let waiting = self.shared.desk().give_up();
            if !waiting.is_empty() {
                let away = Err(unavailable(Arc::new(broken("its server is away"))));
                // Only a bus that stops has no inbox.
                let _ = self.inbox.send(Delivery::Confirmed(waiting, away)).await;
            }
        }
    }
}

/// One round over the servers; the first that takes us.
async fn connect<D: Dialect>(dialect: &mut D) -> io::Result<(Socket, BytesMut)> {
    let mut outcome = Err(broken("no server is named"));
    for host in dialect.hosts().to_vec() {
        let reached = tokio::time::timeout(PATIENCE, dialect.connect(&host)).await;
        outcome = reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

async fn pump<D: Dialect>(
    shared: &Shared,
    dialect: &mut D,
    pen: Pen,
    ear: &mut Ear,
    inbox: &mpsc::Sender<Delivery>,
    socket: Socket,
    input: BytesMut,
) -> io::Result<()> {
    let (incoming, outgoing) = tokio::io::split(socket);
    tokio::select! {
        heard = hear::<D>(shared, ear, inbox, incoming, input) => heard,
        said = say(shared, dialect, pen, outgoing) => said,
        () = farewell(shared) => Ok(()),
    }
}

async fn farewell(shared: &Shared) {
    while !shared.is_stopping() {
        shared.ending.notified().await;
    }
    tokio::time::sleep(FAREWELL).await;
}

/// Writes what the desk has.
async fn say<D: Dialect>(
    shared: &Shared,
    dialect: &mut D,
    mut pen: Pen,
    mut socket: WriteHalf<Socket>,
) -> io::Result<()> {
    loop {
        let out = pen.fill(shared, dialect);
        if out.is_empty() {
            let _ = tokio::time::timeout(PING_EVERY, shared.stirred.notified()).await;
            continue;
        }
        let written = tokio::time::timeout(SILENCE, async {
            socket.write_all(&out).await?;
            socket.flush().await
        });
        written.await.map_err(|_| broken("the server takes nothing"))??;
        let sent = shared.desk().wrote();
        shared.counts.sent.fetch_add(sent as u64, Ordering::Relaxed);
    }
}

/// Reads what comes. Ends well when the last ping was answered.
async fn hear<D: Dialect>(
    shared: &Shared,
    ear: &mut Ear,
    inbox: &mpsc::Sender<Delivery>,
    mut socket: ReadHalf<Socket>,
    mut input: BytesMut,
) -> io::Result<()> {
    loop {
        let is_empty = ear.read::<D>(shared, &mut input)?;
        ear.end_words();
        while !ear.deliveries.is_empty() {
            let Ok(room) = inbox.reserve().await else { return Ok(()) };
            if let Some(delivery) = ear.deliveries.pop_front() {
                room.send(delivery);
            }
        }
        if ear.is_last {
            return Ok(());
        }
        if is_empty {
            let read = tokio::time::timeout(SILENCE, read_more(&mut socket, &mut input, FRAME_BYTES)).await;
            read.map_err(|_| broken("the server says nothing"))??;
            shared.hear();
        }
    }
}
