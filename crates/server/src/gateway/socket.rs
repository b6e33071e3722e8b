//! The WebSocket of a gateway: text messages in and out. Pings of the protocol below are answered. A plain socket can be shared
//! with the shard of a session.
//! Must hold: reading can be cancelled at any await; a message has no more bytes than allowed.

use crate::connections::ConnectionSlot;
use crate::shard::shared_output::SharedOutput;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tavern_wire::ws::{self, Opcode, Role, WsError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

/// Bytes read at once.
const READ_BYTES: usize = 4 * 1024;

pub struct GatewaySocket {
    io: GatewayIo,
    input: Vec<u8>,
    /// The fragments of a message that is not complete.
    message: Vec<u8>,
    is_fragmented: bool,
    /// Control frames to be written with the next message.
    control: Vec<u8>,
    /// When the client was last heard.
    heard: Instant,
    /// Its slot in the counts of connections, if the connection has another one.
    _slot: Option<ConnectionSlot>,
}

enum GatewayIo {
    /// Of any kind of connection, such as an encrypted one.
    Upgraded(TokioIo<Upgraded>),
    Shared(Arc<SharedOutput>),
}

impl GatewayIo {
    async fn read(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            GatewayIo::Upgraded(io) => io.read_buf(input).await,
            GatewayIo::Shared(socket) => socket.read(input).await,
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            GatewayIo::Upgraded(io) => {
                io.write_all(bytes).await?;
                io.flush().await
            }
            GatewayIo::Shared(socket) => socket.write(bytes).await,
        }
    }
}

/// What a socket has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum SocketEvent {
    Text(String),
    /// Something is to be written back: a pong.
    Control,
    Closed,
}

impl GatewaySocket {
    pub fn new(upgraded: Upgraded) -> GatewaySocket {
        GatewaySocket::of(GatewayIo::Upgraded(TokioIo::new(upgraded)), Vec::new())
    }

    fn of(io: GatewayIo, input: Vec<u8>) -> GatewaySocket {
        GatewaySocket {
            io,
            input,
            message: Vec::new(),
            is_fragmented: false,
            control: Vec::new(),
            heard: Instant::now(),
            _slot: None,
        }
    }

    /// A socket that gives its slot back when it is dropped.
    pub fn counted(upgraded: Upgraded, slot: ConnectionSlot) -> GatewaySocket {
        GatewaySocket { _slot: Some(slot), ..GatewaySocket::new(upgraded) }
    }

    /// The same over a plain socket, which the shard may write to as well; `input` was read already.
    pub fn shared(socket: SharedOutput, input: Vec<u8>, slot: ConnectionSlot) -> GatewaySocket {
        let io = GatewayIo::Shared(Arc::new(socket));
        GatewaySocket { _slot: Some(slot), ..GatewaySocket::of(io, input) }
    }

    pub fn shared_output(&self) -> Option<Arc<SharedOutput>> {
        match &self.io {
            GatewayIo::Shared(socket) => Some(socket.clone()),
            GatewayIo::Upgraded(_) => None,
        }
    }

    /// The next message. Every error closes the socket.
    pub async fn next(&mut self, max: usize) -> SocketEvent {
        loop {
            match self.take(max) {
                Ok(Some(event)) => return event,
                Ok(None) => {}
                Err(error) => {
                    ws::write_close(&mut self.control, error.close_code(), &error.to_string());
                    let _ = tokio::time::timeout(Duration::from_secs(1), self.write(&[])).await;
                    return SocketEvent::Closed;
                }
            }
            self.input.reserve(READ_BYTES);
            match self.io.read(&mut self.input).await {
                Ok(0) | Err(_) => return SocketEvent::Closed,
                Ok(_) => self.heard = Instant::now(),
            }
        }
    }

    /// A message that was read already.
    fn take(&mut self, max: usize) -> Result<Option<SocketEvent>, WsError> {
        loop {
            let room = max.saturating_sub(self.message.len());
            let Some(head) = ws::read_head(&self.input, Role::Server, room)? else { return Ok(None) };
            let end = head.head_len + head.payload_len;
            if self.input.len() < end {
                return Ok(None);
            }
            let mut payload = self.input[head.head_len..end].to_vec();
            self.input.drain(..end);
            if let Some(mask) = head.mask {
                ws::unmask(&mut payload, mask);
            }
            match head.opcode {
                Opcode::Close => return Ok(Some(SocketEvent::Closed)),
                Opcode::Pong => continue,
                Opcode::Ping => {
                    ws::write_head(&mut self.control, Opcode::Pong, payload.len());
                    self.control.extend_from_slice(&payload);
                    return Ok(Some(SocketEvent::Control));
                }
                Opcode::Binary => return Err(WsError::Protocol("binary messages are not supported")),
                Opcode::Text if self.is_fragmented => {
                    return Err(WsError::Protocol("a message begins inside another"));
                }
                Opcode::Continuation if !self.is_fragmented => {
                    return Err(WsError::Protocol("a fragment without a beginning"));
                }
                Opcode::Text | Opcode::Continuation => self.message.extend_from_slice(&payload),
            }
            self.is_fragmented = !head.fin;
            if head.fin {
                let text =
                    String::from_utf8(std::mem::take(&mut self.message)).map_err(|_| WsError::NotUtf8)?;
                return Ok(Some(SocketEvent::Text(text)));
            }
        }
    }

    /// Writes these, each as a message.
    pub async fn write(&mut self, messages: &[Vec<u8>]) -> io::Result<()> {
        let mut bytes = std::mem::take(&mut self.control);
        for message in messages {
            ws::write_head(&mut bytes, Opcode::Text, message.len());
            bytes.extend_from_slice(message);
        }
        self.io.write(&bytes).await
    }

    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Adds a ping to what is written next; every client library answers it.
    pub fn ping(&mut self) {
        ws::write_head(&mut self.control, Opcode::Ping, 0);
    }

    /// Says goodbye; the other side may be gone.
    pub async fn close(self) {
        self.close_with(1000, "").await;
    }

    pub async fn close_with(mut self, code: u16, reason: &str) {
        ws::write_close(&mut self.control, code, reason);
        if let GatewayIo::Shared(socket) = &self.io {
            socket.close();
        }
        let _ = self.write(&[]).await;
        match &mut self.io {
            GatewayIo::Upgraded(io) => drop(io.shutdown().await),
            GatewayIo::Shared(socket) => socket.shut_down(),
        }
    }
}
