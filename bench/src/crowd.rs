//! WebSocket clients on one poller: each may have several commands in flight, and receives events between the replies.
//! Counts; knows no presence. Must hold: a refused command, a gap or a close is an error, never a count.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hdrhistogram::Histogram;
use memchr::memmem;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::dial::{Dialer, Line};
use crate::frame;
use crate::scan;

/// How long the server may leave a command without an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one client received in one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    pub client: usize,
    pub replies: u64,
    pub events: u64,
}

pub struct Crowd {
    poll: Poll,
    ready: Events,
    clients: Vec<Client>,
    scratch: Vec<u8>,
    began: Instant,
    /// Nanoseconds from a command to its reply.
    pub latency: Histogram<u64>,
}

struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    out: Vec<u8>,
    /// When each unanswered command was sent.
    asked: VecDeque<u64>,
}

impl Crowd {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            ready: Events::with_capacity(1024),
            clients: Vec::new(),
            scratch: vec![0; 256 * 1024],
            began: Instant::now(),
            latency: Histogram::new_with_bounds(1, PATIENCE.as_nanos() as u64, 3)?,
        })
    }

    /// Connects one more client as this user; returns its number.
    pub fn connect(&mut self, dialer: &mut Dialer<'_>, user: &str) -> anyhow::Result<usize> {
        let Line { stream, rest, .. } = dialer.open(user, None)?;
        let mut stream = TcpStream::from_std(stream);
        let index = self.clients.len();
        self.poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
        self.clients.push(Client { stream, input: rest, out: Vec::new(), asked: VecDeque::new() });
        Ok(index)
    }

    /// Adds a command to what a client sends with the next `flush`.
    pub fn say(&mut self, client: usize, command: &[u8]) {
        let now = self.began.elapsed().as_nanos() as u64;
        let client = &mut self.clients[client];
        client.out.extend_from_slice(&frame::masked(frame::TEXT, command));
        client.asked.push_back(now);
    }

    pub fn flush(&mut self, client: usize) -> anyhow::Result<()> {
        self.clients[client].flush()
    }

    pub fn pending(&self, client: usize) -> usize {
        self.clients[client].asked.len()
    }

    /// Waits for something to read, at most this long, and reads it.
    pub fn turn(&mut self, wait: Duration, received: &mut Vec<Received>) -> anyhow::Result<()> {
        received.clear();
        match self.poll.poll(&mut self.ready, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other.context("the poller failed")?,
        }
        for event in &self.ready {
            let index = event.token().0;
            let client = &mut self.clients[index];
            if event.is_writable() {
                client.flush()?;
            }
            if event.is_readable() || event.is_read_closed() {
                let (replies, events) = client.read(&mut self.scratch)?;
                let now = self.began.elapsed().as_nanos() as u64;
                for _ in 0..replies {
                    let asked = client.asked.pop_front().context("a reply to nothing")?;
                    self.latency.saturating_record((now - asked).max(1));
                }
                // The pong to a ping of the server.
                client.flush()?;
                received.push(Received { client: index, replies, events });
            }
        }
        Ok(())
    }

    /// Sends the queued commands and reads until all are answered; returns the number of events received meanwhile.
    pub fn settle(&mut self) -> anyhow::Result<u64> {
        let mut events = 0;
        let mut received = Vec::new();
        let end = Instant::now() + PATIENCE;
        for client in &mut self.clients {
            client.flush()?;
        }
        while self.clients.iter().any(|client| !client.asked.is_empty()) {
            ensure!(Instant::now() < end, "no answer within {} s", PATIENCE.as_secs());
            self.turn(Duration::from_millis(100), &mut received)?;
            events += received.iter().map(|received| received.events).sum::<u64>();
        }
        Ok(events)
    }

    /// Reads until nothing has come for this long; returns the events.
    pub fn drain(&mut self, quiet: Duration) -> anyhow::Result<u64> {
        let mut events = 0;
        let mut received = Vec::new();
        let mut last = Instant::now();
        // A turn may end without an event, when a connection became writable.
        while last.elapsed() < quiet {
            self.turn(quiet - last.elapsed().min(quiet), &mut received)?;
            let more: u64 = received.iter().map(|received| received.events).sum();
            if more > 0 {
                (events, last) = (events + more, Instant::now());
            }
        }
        Ok(events)
    }
}

impl Client {
    fn flush(&mut self) -> anyhow::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(taken) => drop(self.out.drain(..taken)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("a client could not write"),
            }
        }
        Ok(())
    }

    /// Reads available data; returns the numbers of replies and events.
    fn read(&mut self, scratch: &mut [u8]) -> anyhow::Result<(u64, u64)> {
        let (mut replies, mut events) = (0, 0);
        loop {
            let count = match self.stream.read(scratch) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((replies, events)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("a client could not read"),
            };
            let taken = if self.input.is_empty() {
                let taken = self.take(&scratch[..count], &mut replies, &mut events)?;
                self.input.extend_from_slice(&scratch[taken..count]);
                continue;
            } else {
                self.input.extend_from_slice(&scratch[..count]);
                let input = std::mem::take(&mut self.input);
                let taken = self.take(&input, &mut replies, &mut events)?;
                self.input = input;
                taken
            };
            self.input.drain(..taken);
        }
    }

    fn take(&mut self, bytes: &[u8], replies: &mut u64, events: &mut u64) -> anyhow::Result<usize> {
        let mut at = 0;
        while let Some((opcode, payload, length)) = scan::websocket_frame(&bytes[at..])? {
            match opcode {
                frame::TEXT if payload.starts_with(br#"{"seq":"#) => {
                    ensure!(
                        memmem::find(&payload[..payload.len().min(64)], br#""event":"gap""#).is_none(),
                        "the server lost events: {}",
                        scan::quote(payload)
                    );
                    *events += 1;
                }
                frame::TEXT => {
                    let head = &payload[..payload.len().min(96)];
                    ensure!(memmem::find(head, br#""ok":"#).is_some(), "refused: {}", scan::quote(payload));
                    *replies += 1;
                }
                frame::PING => self.out.extend_from_slice(&frame::masked(frame::PONG, payload)),
                frame::PONG => {}
                _ => bail!("unexpected frame: {}", scan::quote(payload)),
            }
            at += length;
        }
        Ok(at)
    }
}
