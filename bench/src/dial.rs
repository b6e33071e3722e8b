//! Opening connections and bringing them to where the load begins: greeted, subscribed, confirmed, parked.
//! Blocking, one after another: it happens before anything is measured.
//! Must hold: when a connection is handed over, the server has confirmed its subscription.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use socket2::{Domain, Protocol as IpProtocol, Socket, Type};

use crate::frame::{self, PollRequest};
use crate::pusher;
use crate::scan::{self, HttpAnswer};
use crate::target::{Protocol, Target};

const PATIENCE: Duration = Duration::from_secs(10);
/// Connections from one source address: below the server's default limit, and far below the number of ports.
const PER_ADDRESS: usize = 900;

/// Opens connections to one target.
pub struct Dialer<'a> {
    pub target: &'a Target,
    pub token: Option<&'a str>,
    address: SocketAddr,
    opened: usize,
}

/// A connection ready for the load.
pub struct Line {
    pub stream: TcpStream,
    /// Bytes that came after the confirmation.
    pub rest: Vec<u8>,
    /// The request of a long-poll, already sent once.
    pub poll: Option<PollRequest>,
}

impl<'a> Dialer<'a> {
    pub fn new(target: &'a Target, token: Option<&'a str>) -> anyhow::Result<Self> {
        Ok(Self { target, token, address: target.resolve()?, opened: 0 })
    }

    /// Opens the next connection, listening to `channel` if there is one. `name` is its user.
    pub fn open(&mut self, name: &str, channel: Option<&str>) -> anyhow::Result<Line> {
        let stream = self.connect().with_context(|| format!("cannot connect to {}", self.target))?;
        let mut wire = Wire { stream, bytes: Vec::new() };
        let poll = match self.target.protocol {
            Protocol::Redis => self.redis(&mut wire, channel).map(|()| None),
            Protocol::Nats => nats(&mut wire, channel).map(|()| None),
            Protocol::WebSocket => self.websocket(&mut wire, name, channel).map(|()| None),
            Protocol::Poll => self.poll(&mut wire, name, channel).map(Some),
            Protocol::Pusher => self.pusher(&mut wire, channel).map(|()| None),
            Protocol::PusherApi => Ok(None),
        }
        .with_context(|| format!("{} did not greet as expected", self.target))?;
        wire.stream.set_nonblocking(true)?;
        Ok(Line { stream: wire.stream, rest: wire.bytes, poll })
    }

    fn connect(&mut self) -> anyhow::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, Some(IpProtocol::TCP))?;
        if self.address.ip() == Ipv4Addr::LOCALHOST && self.opened >= PER_ADDRESS {
            socket.bind(&SocketAddr::from((source(self.opened), 0)).into())?;
        }
        self.opened += 1;
        socket.connect_timeout(&self.address.into(), PATIENCE)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        // Ten thousand ports in TIME_WAIT would be missing in the next load.
        socket.set_linger(Some(Duration::ZERO))?;
        Ok(socket.into())
    }

    fn redis(&self, wire: &mut Wire, channel: Option<&str>) -> anyhow::Result<()> {
        if let Some(token) = self.token {
            wire.send(&frame::redis(&["AUTH", token]))?;
            ensure!(wire.line()? == b"+OK", "AUTH was refused");
        }
        let Some(channel) = channel else {
            wire.send(&frame::redis(&["PING"]))?;
            let reply = wire.line()?;
            ensure!(reply == b"+PONG", "unexpected reply: {}", scan::quote(&reply));
            return Ok(());
        };
        wire.send(&frame::redis(&["SUBSCRIBE", channel]))?;
        for expected in [&b"*3"[..], b"$9", b"subscribe"] {
            let line = wire.line()?;
            ensure!(line == expected, "unexpected reply: {}", scan::quote(&line));
        }
        for _ in 0..3 {
            wire.line()?;
        }
        Ok(())
    }

    fn websocket(&self, wire: &mut Wire, name: &str, channel: Option<&str>) -> anyhow::Result<()> {
        self.upgrade(wire, &format!("/v1/connect{}", self.query(name)))?;
        let hello = wire.text_frame()?;
        ensure!(memchr::memmem::find(&hello, br#""ok":"#).is_some(), "no hello: {}", scan::quote(&hello));
        if let Some(channel) = channel {
            let command = format!(r#"{{"id":1,"op":"subscribe","channel":"{channel}"}}"#);
            wire.send(&frame::masked(frame::TEXT, command.as_bytes()))?;
            let reply = wire.text_frame()?;
            ensure!(memchr::memmem::find(&reply, br#""ok":"#).is_some(), "refused: {}", scan::quote(&reply));
        }
        Ok(())
    }

    fn upgrade(&self, wire: &mut Wire, path: &str) -> anyhow::Result<()> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGF2ZXJuLWJlbmNoLTE2Yg==\r\n\r\n",
            self.target.authority
        );
        wire.send(request.as_bytes())?;
        let status = wire.line()?;
        ensure!(status.starts_with(b"HTTP/1.1 101"), "no WebSocket: {}", scan::quote(&status));
        while !wire.line()?.is_empty() {}
        Ok(())
    }

    fn pusher(&self, wire: &mut Wire, channel: Option<&str>) -> anyhow::Result<()> {
        self.upgrade(wire, &format!("/app/{}?protocol=7", pusher::KEY))?;
        let frame = wire.text_frame()?;
        let established = memchr::memmem::find(&frame, b"pusher:connection_established");
        ensure!(established.is_some(), "unexpected frame: {}", scan::quote(&frame));
        if let Some(channel) = channel {
            let subscribe = format!(r#"{{"event":"pusher:subscribe","data":{{"channel":"{channel}"}}}}"#);
            wire.send(&frame::masked(frame::TEXT, subscribe.as_bytes()))?;
            let mut frame = wire.text_frame()?;
            // A server may count subscriptions first.
            if memchr::memmem::find(&frame, b"subscription_count").is_some() {
                frame = wire.text_frame()?;
            }
            let succeeded = memchr::memmem::find(&frame, b"pusher_internal:subscription_succeeded");
            ensure!(succeeded.is_some(), "refused: {}", scan::quote(&frame));
        }
        Ok(())
    }

    fn poll(&self, wire: &mut Wire, name: &str, channel: Option<&str>) -> anyhow::Result<PollRequest> {
        let query = self.query(name);
        let path = format!("/v1/command{query}");
        let authority = &self.target.authority;
        let hello = wire.ask(&frame::post(authority, &path, r#"{"id":1,"op":"hello"}"#))?;
        let session = hello["ok"]["session"].as_str().context("hello without a session")?.to_owned();
        if let Some(channel) = channel {
            let command =
                format!(r#"{{"id":2,"session":"{session}","op":"subscribe","channel":"{channel}"}}"#);
            let reply = wire.ask(&frame::post(authority, &path, &command))?;
            ensure!(reply.get("ok").is_some(), "refused: {reply}");
        }
        let request = PollRequest::new(authority, &query, &session);
        wire.send(&request.bytes)?;
        Ok(request)
    }

    fn query(&self, name: &str) -> String {
        match self.token {
            Some(token) => format!("?token={token}"),
            None => format!("?user={name}"),
        }
    }
}

fn nats(wire: &mut Wire, channel: Option<&str>) -> anyhow::Result<()> {
    let info = wire.line()?;
    ensure!(info.starts_with(b"INFO "), "no INFO: {}", scan::quote(&info));
    let subscription = channel.map(|name| format!("SUB {name} {}\r\n", frame::NATS_SID)).unwrap_or_default();
    wire.send(
        format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"name\":\"bench\"}}\r\n{subscription}PING\r\n"
        )
        .as_bytes(),
    )?;
    loop {
        let line = wire.line()?;
        match &line[..] {
            b"PONG" => return Ok(()),
            b"PING" => wire.send(b"PONG\r\n")?,
            b"+OK" => {}
            _ => bail!("unexpected reply: {}", scan::quote(&line)),
        }
    }
}

/// The loopback address that the n-th connection comes from.
fn source(opened: usize) -> Ipv4Addr {
    match (opened / PER_ADDRESS) as u32 {
        0 => Ipv4Addr::LOCALHOST,
        group => Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 0)) + group),
    }
}

/// A blocking connection and what was read ahead from it.
struct Wire {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Wire {
    fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    fn more(&mut self) -> anyhow::Result<()> {
        let mut chunk = [0; 4096];
        let read = self.stream.read(&mut chunk).context("no answer")?;
        ensure!(read > 0, "the server closed the connection");
        self.bytes.extend_from_slice(&chunk[..read]);
        Ok(())
    }

    fn line(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some(line) = scan::line(&self.bytes) {
                let line = line.to_vec();
                self.bytes.drain(..line.len() + 2);
                return Ok(line);
            }
            self.more()?;
        }
    }

    fn text_frame(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            if let Some((opcode, payload, length)) = scan::websocket_frame(&self.bytes)? {
                let payload = payload.to_vec();
                self.bytes.drain(..length);
                match opcode {
                    frame::TEXT => return Ok(payload),
                    frame::PING => self.send(&frame::masked(frame::PONG, &payload))?,
                    _ => bail!("unexpected frame: {}", scan::quote(&payload)),
                }
                continue;
            }
            self.more()?;
        }
    }

    fn ask(&mut self, request: &[u8]) -> anyhow::Result<serde_json::Value> {
        self.send(request)?;
        loop {
            if let Some(HttpAnswer { head, body, length }) = scan::http_answer(&self.bytes)? {
                ensure!(head.starts_with(b"HTTP/1.1 200"), "{}: {}", scan::quote(head), scan::quote(body));
                let value = serde_json::from_slice(body)?;
                self.bytes.drain(..length);
                return Ok(value);
            }
            self.more()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_come_from_several_addresses() {
        assert_eq!(source(0), Ipv4Addr::LOCALHOST);
        assert_eq!(source(899), Ipv4Addr::LOCALHOST);
        assert_eq!(source(900), Ipv4Addr::new(127, 0, 1, 1));
        assert!(source(999_999).is_loopback());
    }
}
