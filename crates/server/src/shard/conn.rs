//! One socket of a shard: its bytes in and out, and the protocol on it. Knows no commands.
//! Must hold: an idle connection owns no buffer; a connection that is closing accepts no more commands.

use crate::connections::{ClientTransport, ConnectionSlot};
use crate::resp::RedisPeer;
use crate::shard::poll_socket::PollSocket;
use crate::shard::websocket::WebSocket;
use mio::net::TcpStream;
use std::io::{self, Read, Write};
use tavern_hub::ListenerId;

pub struct Conn {
    pub socket: TcpStream,
    pub tls: Option<Box<rustls::ServerConnection>>,
    pub protocol: SocketProtocol,
    /// Written before any event: replies, and the rest of a partly written event.
    pub out: Vec<u8>,
    /// An incomplete command or frame.
    pub input: Vec<u8>,
    /// A command waits for its reply, or the client must read first: the input after it.
    pub stalled: Option<Box<Stalled>>,
    /// Milliseconds since the shard's start at which something was last read. Bytes of a closing connection do not count.
    pub received_ms: u32,
    /// When it arrived, or was last seen with a session or a login, in the same milliseconds.
    pub authenticated_ms: u32,
    /// When the socket last accepted bytes, in the same milliseconds.
    pub written_ms: u32,
    pub state: SocketState,
    /// Its memory as counted in the sums of its shard.
    pub counted: HeldBytes,
    /// Its slot in the counts of connections; released when it is dropped.
    pub slot: ConnectionSlot,
}

pub enum SocketProtocol {
    WebSocket(Box<WebSocket>),
    Redis(Box<RedisPeer>),
    /// An HTTP connection that had a poll.
    Poll(Box<PollSocket>),
    /// Removed while it is worked on.
    Taken,
}

#[derive(Debug, Default)]
pub struct Stalled {
    /// The rest of a frame with several commands.
    pub lines: Vec<u8>,
}

/// The memory that the buffers of a connection occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBytes {
    /// Incomplete and waiting commands.
    pub input: usize,
    /// Output that the client has not read.
    pub output: usize,
    /// All of it, while the client is not authenticated.
    pub unauthenticated: usize,
}

/// The memory of a connection besides its buffers.
const CONN_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
pub struct SocketState {
    /// The socket refused bytes; it becomes writable again.
    pub blocked: bool,
    /// It is in the list of connections with events.
    pub touched: bool,
    /// It is in the list of connections with replies.
    pub replies: bool,
    /// There may be more to read than was read.
    pub unread: bool,
    /// It has unread replies: no more commands run until they are written.
    pub full: bool,
    /// A ping was sent and not answered.
    pub pinged: bool,
    /// No more commands; the content of `out` is written, then the socket is shut down for writing and lingers.
    pub closing: bool,
    /// The socket was shut for writing; `received_ms` is the time of that.
    pub write_closed: bool,
    /// Bytes received since then; they are discarded.
    pub discarded: usize,
    /// It moves to this shard at the end of the turn.
    pub moving: Option<u8>,
}

impl Conn {
    pub fn new(
        socket: TcpStream,
        tls: Option<Box<rustls::ServerConnection>>,
        protocol: SocketProtocol,
        mut slot: ConnectionSlot,
    ) -> Conn {
        match protocol {
            SocketProtocol::WebSocket(_) | SocketProtocol::Taken => {
                slot.count_transport(ClientTransport::WebSocket);
            }
            SocketProtocol::Redis(_) => slot.count_transport(ClientTransport::Redis),
            // A poll is counted while it waits.
            SocketProtocol::Poll(_) => {}
        }
        Conn {
            socket,
            tls,
            protocol,
            out: Vec::new(),
            input: Vec::new(),
            stalled: None,
            received_ms: 0,
            authenticated_ms: 0,
            written_ms: 0,
            counted: HeldBytes::default(),
            state: SocketState::default(),
            slot,
        }
    }

    pub fn listener(&self) -> Option<ListenerId> {
        match &self.protocol {
            SocketProtocol::WebSocket(socket) => socket.caller.listener,
            SocketProtocol::Redis(peer) => peer.listener,
            SocketProtocol::Poll(socket) => socket.listener(),
            SocketProtocol::Taken => None,
        }
    }

    /// Whether its client has a session or has logged in.
    pub fn is_authenticated(&self) -> bool {
        match &self.protocol {
            SocketProtocol::WebSocket(socket) => socket.caller.listener.is_some(),
            SocketProtocol::Redis(peer) => peer.identity.is_some(),
            SocketProtocol::Poll(socket) => socket.is_proved(),
            SocketProtocol::Taken => true,
        }
    }

    /// The memory of its buffers now. Vectors count with their capacity.
    pub fn held(&self) -> HeldBytes {
        let protocol = match &self.protocol {
            SocketProtocol::WebSocket(socket) => socket.held_bytes(),
            SocketProtocol::Redis(peer) => peer.held_bytes(),
            SocketProtocol::Poll(_) | SocketProtocol::Taken => 0,
        };
        let stalled = self.stalled.as_ref().map_or(0, |stalled| stalled.lines.capacity());
        let (input, output) = (self.input.capacity() + protocol + stalled, self.out.capacity());
        let unauthenticated = if self.is_authenticated() { 0 } else { CONN_BYTES + input + output };
        HeldBytes { input, output, unauthenticated }
    }

    /// Commands that run later.
    pub fn keep_stalled(&mut self, lines: &[u8]) {
        self.stalled.get_or_insert_default().lines = lines.to_vec();
    }

    /// Whether the input may run.
    pub fn may_run(&self) -> bool {
        self.stalled.is_none() && !self.state.closing && !self.state.full && self.state.moving.is_none()
    }

    /// The hub keeps a command that it has not answered.
    pub fn has_waiting_command(&self) -> bool {
        matches!(&self.protocol, SocketProtocol::WebSocket(socket) if socket.caller.is_waiting())
    }

    /// A Redis connection in `TAVERN.WAIT`, or a poll without an answer: it is answered by its command, not by the flush.
    pub fn is_waiting(&self) -> bool {
        match &self.protocol {
            SocketProtocol::Redis(peer) => peer.waiting_until.is_some(),
            SocketProtocol::Poll(socket) => socket.is_waiting(),
            SocketProtocol::WebSocket(_) | SocketProtocol::Taken => false,
        }
    }

    pub fn has_polls(&self) -> bool {
        matches!(self.protocol, SocketProtocol::Poll(_))
    }

    /// Reads available bytes. `Ok(0)` is the end.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(into) };
        loop {
            match tls.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    /// Writes as much as the socket accepts. Under TLS, encrypted bytes count as accepted; `has_encrypted`: some of
    /// them still wait for the socket.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.socket.write(bytes);
        }
        let mut taken = 0;
        loop {
            match self.write_encrypted() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => return Ok(taken),
                Err(error) => return Err(error),
            }
            match &mut self.tls {
                Some(tls) if taken < bytes.len() => taken += tls.writer().write(&bytes[taken..])?,
                _ => return Ok(taken),
            }
        }
    }

    /// Encrypted bytes that the socket has not accepted yet.
    pub fn has_encrypted(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Writes encrypted bytes as far as the socket accepts them.
    pub fn write_encrypted(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        Ok(())
    }

    /// Frees the memory of empty buffers.
    pub fn release(&mut self) {
        if self.out.is_empty() {
            self.out = Vec::new();
        }
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::links::LinkTarget;

    /// Each size is a size class of the allocator: one byte more costs the next class, for every connection.
    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Conn>() <= 192);
        assert!(size_of::<WebSocket>() <= 160);
        assert!(size_of::<RedisPeer>() <= 256);
        assert!(size_of::<PollSocket>() <= 128);
        assert!(size_of::<Option<LinkTarget>>() <= 16);
    }
}
