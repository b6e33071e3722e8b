//! One listening connection of the load: reads, counts, answers pings, polls again. Knows nothing of the
//! measure; it reports what one read brought.
//! Must hold: an idle listener owns no buffer beyond the bytes of a frame that has not come whole.

use std::io::{ErrorKind, Read, Write};

use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;

use crate::frame::{self, PollRequest};
use crate::scan;
use crate::stamp::Stamp;
use crate::target::Protocol;

/// How the messages of one channel look on the wire.
#[derive(Clone, Debug)]
pub struct Shape {
    pub protocol: Protocol,
    /// The constant bytes before each payload, where there are such.
    pub head: Vec<u8>,
    pub size: usize,
}

pub struct Subscriber {
    pub stream: TcpStream,
    pub channel: usize,
    /// Messages received since the beginning.
    pub received: u64,
    carry: Vec<u8>,
    poll: Option<PollRequest>,
}

/// What reading one connection brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Catch {
    pub messages: u64,
    pub answers: u64,
    /// The stamp of the oldest message of this read.
    pub first: Option<Stamp>,
    /// The stamp of the newest one.
    pub last: Option<Stamp>,
}

impl Subscriber {
    pub fn new(stream: TcpStream, channel: usize, carry: Vec<u8>, poll: Option<PollRequest>) -> Self {
        Self { stream, channel, received: 0, carry, poll }
    }

    /// Reads all there is. The scratch is shared by all connections; it is much larger than one frame.
    pub fn read(&mut self, shape: &Shape, scratch: &mut [u8]) -> anyhow::Result<Catch> {
        let mut catch = Catch::default();
        loop {
            let carried = self.carry.len();
            ensure!(carried < scratch.len() / 2, "a frame larger than {} bytes", scratch.len() / 2);
            scratch[..carried].copy_from_slice(&self.carry);
            let read = match self.stream.read(&mut scratch[carried..]) {
                Ok(0) => bail!("the server closed a listener"),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(catch),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("a listener's connection broke"),
            };
            let filled = carried + read;
            self.take(shape, &scratch[..filled], &mut catch)?;
            // A short read has emptied the socket; the next bytes raise the next edge.
            if filled < scratch.len() {
                return Ok(catch);
            }
        }
    }

    fn take(&mut self, shape: &Shape, bytes: &[u8], catch: &mut Catch) -> anyhow::Result<()> {
        let scanned = match shape.protocol {
            Protocol::Redis | Protocol::Nats => scan::fixed(bytes, &shape.head, shape.size)?,
            Protocol::WebSocket => scan::events(bytes)?,
            Protocol::Pusher | Protocol::PusherApi => scan::pusher_events(bytes)?,
            Protocol::Poll => scan::poll_answer(bytes)?,
        };
        self.carry.clear();
        if scanned.consumed < bytes.len() {
            self.carry.extend_from_slice(&bytes[scanned.consumed..]);
        }
        self.received += scanned.count;
        catch.messages += scanned.count;
        if let Some(at) = scanned.first {
            catch.first = catch.first.or_else(|| Stamp::read(&bytes[at..]));
        }
        if let Some(at) = scanned.last {
            catch.last = Stamp::read(&bytes[at..]);
        }
        if let Some(ping) = scanned.ping {
            self.pong(shape.protocol, &ping)?;
        }
        if let Some(cursor) = scanned.cursor {
            catch.answers += 1;
            self.poll_again(cursor)?;
        }
        Ok(())
    }

    /// Ends a session that would otherwise wait for its client to come back.
    pub fn bye(&mut self, protocol: Protocol) {
        if protocol == Protocol::WebSocket {
            // Errors are ignored: the server may be gone.
            let _ = write_small(&mut self.stream, &frame::masked(frame::TEXT, br#"{"op":"bye"}"#));
        }
    }

    fn pong(&mut self, protocol: Protocol, ping: &[u8]) -> anyhow::Result<()> {
        let bytes = match protocol {
            Protocol::WebSocket | Protocol::Pusher => frame::masked(frame::PONG, ping),
            _ => b"PONG\r\n".to_vec(),
        };
        write_small(&mut self.stream, &bytes)
    }

    fn poll_again(&mut self, cursor: u64) -> anyhow::Result<()> {
        let request = self.poll.as_mut().context("a poll's answer on a connection that does not poll")?;
        request.set_cursor(cursor);
        write_small(&mut self.stream, &request.bytes)
    }
}

/// Writes a few bytes that an idle socket always takes whole.
pub fn write_small(stream: &mut TcpStream, bytes: &[u8]) -> anyhow::Result<()> {
    let written = stream.write(bytes).context("the server stopped reading")?;
    ensure!(written == bytes.len(), "the server stopped reading");
    Ok(())
}
