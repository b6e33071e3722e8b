//! The connection to the server: made, used until it breaks, made again. Must hold: after a break everything is
//! subscribed to again before the loss is told; copies of a word, the node's own words and what nobody here asked for
//! end here; a server that says nothing for a while is taken for gone.

use super::bus::{Shared, unavailable};
use super::desk::Order;
use super::dialect::{Dialect, Frame, broken};
use super::envelope::{self, Read, Reader, Voice};
use super::socket::Socket;
use crate::bus::{BusError, Lost, Parcel};
use crate::store::Ticket;
use crate::subject::Subject;
use bytes::BytesMut;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// Waits between attempts to come back: they double from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(2);
/// The server is asked this often whether it is there.
const PING_EVERY: Duration = Duration::from_secs(5);
/// A server that has said nothing for this long is gone; so is one that takes nothing.
const SILENCE: Duration = Duration::from_secs(15);
/// What a stopping node waits for the server to take its last words.
const FAREWELL: Duration = Duration::from_secs(1);
/// Words handed over together, and bytes written together.
const WORDS_TOGETHER: usize = 256;
const BYTES_TOGETHER: usize = 256 * 1024;

/// What the inbox hears, in this order.
pub enum Delivery {
    Words(Vec<Parcel>),
    Confirmed(Vec<Ticket>, Result<(), BusError>),
    Lost(Lost),
}

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
    while !shared.is_stopping() {
        match connect(&mut dialect).await {
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
                let ended = pump(shared, &mut dialect, pen, &mut ear, &inbox, socket, input).await;
                let failed = shared.desk().disconnect();
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
            let _ = tokio::time::timeout(spread, shared.ending.notified()).await;
            wait = (wait * 2).min(LAST_WAIT);
        }
    }
}

/// One round over the servers; the first that takes us.
async fn connect<D: Dialect>(dialect: &mut D) -> io::Result<(Socket, BytesMut)> {
    let mut outcome = Err(broken("no server is named"));
    for host in dialect.hosts().to_vec() {
        outcome = dialect.connect(&host).await;
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

/// Puts down in the server's words what the desk has.
struct Pen {
    voice: Voice,
    /// Where to tell that words were lost before this connection.
    torn: Option<Subject>,
    pinged_at: Instant,
    is_last: bool,
}

impl Pen {
    fn new(voice: u64, torn: Option<Subject>) -> Pen {
        Pen { voice: Voice::new(voice), torn, pinged_at: Instant::now(), is_last: false }
    }

    fn fill<D: Dialect>(&mut self, shared: &Shared, dialect: &mut D) -> Vec<u8> {
        let mut out = Vec::new();
        let desk = &mut *shared.desk();
        for order in desk.orders() {
            match order {
                Order::Subscribe(subject) => dialect.subscribe(&subject, &mut out),
                Order::Unsubscribe(subject) => dialect.unsubscribe(&subject, &mut out),
            }
        }
        (0..std::mem::take(&mut desk.pongs)).for_each(|_| D::pong(&mut out));
        if let Some(subject) = self.torn.take() {
            dialect.begin(&subject, envelope::HEAD_BYTES, &mut out);
            self.voice.torn(&mut out);
            out.extend_from_slice(b"\r\n");
        }
        while out.len() < BYTES_TOGETHER
            && let Some(word) = desk.next_word()
        {
            if !self.write(&word, dialect, &mut out) {
                desk.drop_word();
                shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.note_fullness(desk);
        let is_last = shared.is_stopping() && !desk.has_words() && !self.is_last;
        if desk.is_asked() || is_last || self.pinged_at.elapsed() >= PING_EVERY {
            self.pinged_at = Instant::now();
            self.is_last |= is_last;
            desk.take_off(is_last);
            D::ping(&mut out);
        }
        out
    }

    /// False: it is longer than any bound.
    fn write<D: Dialect>(&mut self, word: &Parcel, dialect: &D, out: &mut Vec<u8>) -> bool {
        let length = envelope::body_bytes(word);
        let Some(pieces) = Voice::pieces(length, dialect.longest()) else {
            tracing::warn!(bytes = length, "a word is too long for the bus");
            return false;
        };
        let pieces: Vec<usize> = pieces.collect();
        let mut body = Vec::new();
        if pieces.len() > 1 {
            envelope::body(word, &mut body);
        }
        let mut rest = &body[..];
        for (at, &bytes) in pieces.iter().enumerate() {
            dialect.begin(&word.subject, envelope::HEAD_BYTES + bytes, out);
            self.voice.head(at == 0, at + 1 == pieces.len(), out);
            if pieces.len() == 1 {
                envelope::body(word, out);
            } else {
                let (piece, after) = rest.split_at(bytes);
                out.extend_from_slice(piece);
                rest = after;
            }
            out.extend_from_slice(b"\r\n");
        }
        true
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
            input.reserve(BYTES_TOGETHER / 4);
            let read = tokio::time::timeout(SILENCE, socket.read_buf(&mut input)).await;
            if read.map_err(|_| broken("the server says nothing"))?? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// What was read and is not handed over. It outlives the connection: a ticket that was answered there has no other answer.
#[derive(Default)]
struct Ear {
    reader: Reader,
    deliveries: VecDeque<Delivery>,
    words: Vec<Parcel>,
    is_last: bool,
    /// Words that are no node's were mentioned in the log.
    is_foreign: bool,
}

impl Ear {
    /// True: nothing whole is left in the input.
    fn read<D: Dialect>(&mut self, shared: &Shared, input: &mut BytesMut) -> io::Result<bool> {
        let desk = &mut *shared.desk();
        while self.words.len() < WORDS_TOGETHER {
            match D::read(input)? {
                None => return Ok(true),
                Some(Frame::Word { subject, body }) => {
                    let subject =
                        std::str::from_utf8(&subject).ok().and_then(|text| Subject::parse(text).ok());
                    let Some(subject) = subject.filter(|subject| desk.book.hears(subject)) else { continue };
                    let read = self.reader.read(&subject, &body);
                    self.open(shared, read);
                }
                Some(Frame::Ping) => {
                    desk.pongs += 1;
                    shared.stirred.notify_one();
                }
                Some(Frame::Pong) => {
                    let Some(flight) = desk.land() else {
                        return Err(broken("an answer without a question"));
                    };
                    self.is_last |= flight.is_last;
                    if flight.is_return {
                        self.add(Delivery::Lost(Lost::Everything));
                    }
                    let refused = || unavailable(Arc::new(broken("the server refused it")));
                    let outcome = if flight.is_refused { Err(refused()) } else { Ok(()) };
                    if !flight.tickets.is_empty() {
                        self.add(Delivery::Confirmed(flight.tickets, outcome));
                    }
                    shared.stirred.notify_one();
                }
                Some(Frame::Refused(text)) => {
                    tracing::warn!(bus = D::NAME, text, "the server of the bus refused something");
                    desk.refuse();
                }
                Some(Frame::Other) => {}
            }
        }
        Ok(false)
    }

    fn open(&mut self, shared: &Shared, read: Read) {
        match read {
            Read::Word(parcel) if parcel.from.node == shared.node => {}
            Read::Word(parcel) => self.words.push(parcel),
            Read::Nothing => {}
            Read::Incomplete(subject) => self.add(Delivery::Lost(Lost::On(subject))),
            Read::Torn => self.add(Delivery::Lost(Lost::Everything)),
            Read::Foreign => {
                if !std::mem::replace(&mut self.is_foreign, true) {
                    tracing::warn!("somebody who is no node speaks on the bus; it is not heard");
                }
            }
        }
    }

    fn add(&mut self, delivery: Delivery) {
        self.end_words();
        self.deliveries.push_back(delivery);
    }

    fn end_words(&mut self) {
        if !self.words.is_empty() {
            self.deliveries.push_back(Delivery::Words(std::mem::take(&mut self.words)));
        }
    }
}
