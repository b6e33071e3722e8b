//! One publishing connection of the load: sends batches, counts replies. Does not decide when to send.
//! Must hold: the publishes of a batch leave in one write, on every protocol.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;

use crate::frame::{self, Publish};
use crate::scan;
use crate::stamp::Stamp;
use crate::subscriber::write_small;
use crate::target::Protocol;

pub struct Publisher {
    pub stream: TcpStream,
    pub channel: usize,
    /// Publishes sent since the beginning; also the number of the last one.
    pub sent: u64,
    /// Replies still to come.
    pub awaited: u64,
    /// The server closes it after its last reply: the next publish needs another connection.
    pub closed: bool,
    /// A server may close after each reply, so one publish is sent at a time until it is known that this one does not.
    pub one_by_one: bool,
    /// Already on the list of those who wait for their listeners.
    pub starved: bool,
    protocol: Protocol,
    publish: Publish,
    out: Vec<u8>,
    written: usize,
    carry: Vec<u8>,
}

impl Publisher {
    pub fn new(
        stream: TcpStream,
        channel: usize,
        carry: Vec<u8>,
        protocol: Protocol,
        publish: Publish,
    ) -> Self {
        Self {
            stream,
            channel,
            sent: 0,
            awaited: 0,
            closed: false,
            one_by_one: protocol == Protocol::PusherApi,
            starved: false,
            protocol,
            publish,
            out: Vec::new(),
            written: 0,
            carry,
        }
    }

    /// Whether bytes of an earlier batch still wait for the socket.
    pub fn stuck(&self) -> bool {
        self.written < self.out.len()
    }

    pub fn send(&mut self, count: usize, at_ns: u64) -> anyhow::Result<()> {
        assert!(!self.stuck());
        self.out.clear();
        self.written = 0;
        for _ in 0..count {
            self.sent += 1;
            self.publish.append(Stamp { number: self.sent, at_ns }, &mut self.out);
        }
        // NATS answers no publish. One PING after the batch tells that the server has taken all of it.
        match self.protocol {
            Protocol::Nats => {
                self.out.extend_from_slice(b"PING\r\n");
                self.awaited += 1;
            }
            _ => self.awaited += count as u64,
        }
        self.flush()
    }

    /// Continues on another connection to the same server.
    pub fn reconnect(&mut self) -> anyhow::Result<()> {
        let stream = std::net::TcpStream::connect(self.stream.peer_addr()?)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        (self.stream, self.closed) = (TcpStream::from_std(stream), false);
        Ok(())
    }

    pub fn flush(&mut self) -> anyhow::Result<()> {
        while self.stuck() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("a publisher's connection broke"),
            }
        }
        Ok(())
    }

    /// Reads replies. Returns how many of the reads named other recipients than `expected`.
    pub fn read(&mut self, expected: u64, scratch: &mut [u8]) -> anyhow::Result<u64> {
        let mut short = 0;
        loop {
            let carried = self.carry.len();
            ensure!(carried < scratch.len() / 2, "a reply larger than {} bytes", scratch.len() / 2);
            scratch[..carried].copy_from_slice(&self.carry);
            let filled = match self.stream.read(&mut scratch[carried..]) {
                Ok(0) => bail!("the server closed a publisher"),
                Ok(read) => carried + read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(short),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("a publisher's connection broke"),
            };
            let bytes = &scratch[..filled];
            let scanned = match self.protocol {
                Protocol::Redis => scan::redis_replies(bytes)?,
                Protocol::Nats => scan::nats_replies(bytes)?,
                Protocol::WebSocket | Protocol::Poll => scan::websocket_replies(bytes)?,
                Protocol::Pusher | Protocol::PusherApi => scan::api_replies(bytes)?,
            };
            self.carry.clear();
            self.carry.extend_from_slice(&bytes[scanned.consumed..]);
            self.awaited = self.awaited.checked_sub(scanned.count).context("more replies than publishes")?;
            if scanned.closes {
                self.closed = true;
                return Ok(short);
            }
            self.one_by_one &= scanned.count == 0;
            short += u64::from(scanned.receivers.is_some_and(|receivers| receivers != expected));
            if let Some(ping) = scanned.ping {
                let pong = match self.protocol {
                    Protocol::Nats => b"PONG\r\n".to_vec(),
                    _ => frame::masked(frame::PONG, &ping),
                };
                // Between batches only: inside a half-written one these bytes would land in a payload.
                if !self.stuck() {
                    write_small(&mut self.stream, &pong)?;
                }
            }
            if filled < scratch.len() {
                return Ok(short);
            }
        }
    }
}
