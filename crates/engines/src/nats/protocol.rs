//! The NATS protocol, as far as a bus needs it. Subjects are native NATS subjects: a wide one also ends with `>`. The
//! server is asked not to echo the node's own messages.

use super::credentials::Credentials;
use crate::remote::{BusFrame, BusProtocol, BusSocket, BusTls, Host, ServerAddress, broken, dial, line};
use bytes::BytesMut;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, Write};
use tavern_store::{BusError, Subject, planted_every};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// No message is longer than this, even if the server announces a higher limit: it is the limit of NATS itself.
const LARGEST: usize = 64 * 1024 * 1024;
/// For a server that does not announce its limit.
const DEFAULT_MAX: usize = 1024 * 1024;

const PORT: u16 = 4222;
const OPTIONS: &[&str] = &["token", "creds", "ca"];

pub fn parse(url: &str) -> Result<ServerAddress, BusError> {
    ServerAddress::parse(url, PORT, OPTIONS)
}

pub struct Nats {
    address: ServerAddress,
    node: String,
    tls: BusTls,
    max_message: usize,
    /// The server knows subscriptions by number.
    numbers: HashMap<Subject, u64>,
    numbered: u64,
}

/// What the server announces about itself (`INFO`).
pub struct Server {
    pub version: String,
    /// The largest message that it accepts.
    pub max_message: usize,
    pub is_tls: bool,
}

impl Nats {
    pub fn new(address: ServerAddress, node: &str) -> Result<Nats, BusError> {
        let tls = BusTls::new(address.options.get("ca").map(String::as_str))?;
        let nats = Nats {
            address,
            node: node.to_owned(),
            tls,
            max_message: DEFAULT_MAX,
            numbers: HashMap::new(),
            numbered: 0,
        };
        nats.credentials().map_err(|_| BusError::Malformed { what: "file of option creds" })?;
        Ok(nats)
    }

    /// Read for each connection, because such files are rotated.
    fn credentials(&self) -> io::Result<Option<Credentials>> {
        let Some(path) = self.address.options.get("creds") else { return Ok(None) };
        let text = std::fs::read_to_string(path)?;
        Credentials::parse(&text).map(Some).ok_or_else(|| broken("the credentials file cannot be read"))
    }

    /// The first commands of a connection.
    fn hello(&self, info: &Value, is_tls: bool) -> io::Result<Vec<u8>> {
        let mut options = json!({
            "verbose": false, "pedantic": false, "echo": false, "headers": false, "no_responders": false,
            "protocol": 1, "lang": "rust", "version": env!("CARGO_PKG_VERSION"),
            "name": format!("tavern {}", self.node), "tls_required": is_tls,
        });
        let address = &self.address;
        match (&address.user, &address.password) {
            (Some(user), Some(password)) => {
                options["user"] = json!(user);
                options["pass"] = json!(password);
            }
            (Some(token), None) => options["auth_token"] = json!(token),
            _ => {}
        }
        if let Some(token) = address.options.get("token") {
            options["auth_token"] = json!(token);
        }
        if let Some(credentials) = self.credentials()? {
            options["jwt"] = json!(credentials.jwt);
            options["sig"] = json!(credentials.sign(info["nonce"].as_str().unwrap_or("")));
        }
        Ok(format!("CONNECT {options}\r\nPING\r\n").into_bytes())
    }

    pub async fn log_in(&mut self, host: &Host) -> io::Result<(BusSocket, BytesMut, Server)> {
        let mut plain = dial(host).await?;
        let mut input = BytesMut::new();
        let first = read_line(&mut plain, &mut input).await?;
        let info = first.strip_prefix("INFO ").ok_or_else(|| broken("not a NATS server"))?;
        let info: Value = serde_json::from_str(info).map_err(|_| broken("not a NATS server"))?;
        let is_tls = self.address.scheme == "tls" || info["tls_required"].as_bool().unwrap_or(false);
        let mut socket: BusSocket = if is_tls { self.tls.wrap(plain, host).await? } else { Box::new(plain) };
        let version = info["version"].as_str().unwrap_or("unknown").to_owned();
        let max_message =
            info["max_payload"].as_u64().map_or(DEFAULT_MAX, |bytes| bytes as usize).min(LARGEST);
        socket.write_all(&self.hello(&info, is_tls)?).await?;
        socket.flush().await?;
        loop {
            match read_line(&mut socket, &mut input).await?.as_str() {
                "PONG" => return Ok((socket, input, Server { version, max_message, is_tls })),
                refusal if refusal.starts_with("-ERR") => return Err(broken(refusal)),
                _ => {}
            }
        }
    }
}

async fn read_line(socket: &mut (impl AsyncRead + Unpin), input: &mut BytesMut) -> io::Result<String> {
    loop {
        if let Some((found, used)) = line(input)? {
            let found = String::from_utf8_lossy(found).trim_end().to_owned();
            let _ = input.split_to(used);
            return Ok(found);
        }
        if socket.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

impl BusProtocol for Nats {
    const NAME: &'static str = "nats";

    fn hosts(&self) -> &[Host] {
        &self.address.hosts
    }

    async fn connect(&mut self, host: &Host) -> io::Result<(BusSocket, BytesMut)> {
        self.numbers.clear();
        let (socket, input, server) = self.log_in(host).await?;
        self.max_message = server.max_message;
        Ok((socket, input))
    }

    fn max_message(&self) -> usize {
        self.max_message
    }

    fn begin(&self, subject: &Subject, length: usize, out: &mut Vec<u8>) {
        let _ = write!(out, "PUB {subject} {length}\r\n");
    }

    fn subscribe(&mut self, subject: &Subject, out: &mut Vec<u8>) {
        self.numbered += 1;
        self.numbers.insert(subject.clone(), self.numbered);
        let _ = write!(out, "SUB {subject} {}\r\n", self.numbered);
    }

    fn unsubscribe(&mut self, subject: &Subject, out: &mut Vec<u8>) {
        if let Some(number) = self.numbers.remove(subject) {
            let _ = write!(out, "UNSUB {number}\r\n");
        }
    }

    fn ping(out: &mut Vec<u8>) {
        out.extend_from_slice(b"PING\r\n");
    }

    fn pong(out: &mut Vec<u8>) {
        out.extend_from_slice(b"PONG\r\n");
    }

    fn read(input: &mut BytesMut) -> io::Result<Option<BusFrame>> {
        let Some((found, used)) = line(input)? else { return Ok(None) };
        let frame = match found {
            b"PONG" => BusFrame::Pong,
            b"PING" => BusFrame::Ping,
            other if other.starts_with(b"MSG ") => {
                let Some((subject, length)) = message(other) else {
                    return Err(broken("a message cannot be read"));
                };
                if input.len() < used + length + 2 {
                    return Ok(None);
                }
                let whole = input.split_to(used + length + 2).freeze();
                if planted_every("nats-drop", 50) {
                    return Ok(Some(BusFrame::Other));
                }
                return Ok(Some(BusFrame::Message {
                    subject: whole.slice(4..4 + subject),
                    body: whole.slice(used..used + length),
                }));
            }
            other if other.starts_with(b"-ERR") => {
                BusFrame::Refused(broken(&String::from_utf8_lossy(other)).to_string())
            }
            // An update of the server's settings: not needed.
            other if other.starts_with(b"INFO") || other == b"+OK" => BusFrame::Other,
            other => return Err(broken(&String::from_utf8_lossy(other))),
        };
        let _ = input.split_to(used);
        Ok(Some(frame))
    }
}

/// `MSG subject number [reply] length`: how long the subject and the message are.
fn message(line: &[u8]) -> Option<(usize, usize)> {
    let mut parts = std::str::from_utf8(line).ok()?.split(' ').skip(1);
    let subject = parts.next()?.len();
    let length = parts.last()?.parse().ok().filter(|&length| length <= LARGEST)?;
    Some((subject, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_whole() {
        let received = b"MSG p.game.A 7 5\r\nhe\r\no\r\nPING\r\nMSG p.b.c 8 reply.to 0\r\n\r\n+OK\r\n-ERR 'No'\r\nPONG\r\n";
        let mut read = Vec::new();
        let mut input = BytesMut::new();
        for &byte in received {
            input.extend_from_slice(&[byte]);
            read.extend(Nats::read(&mut input).unwrap());
        }
        let message = |subject: &'static str, body: &'static str| BusFrame::Message {
            subject: subject.into(),
            body: body.into(),
        };
        assert_eq!(
            read,
            [
                message("p.game.A", "he\r\no"),
                BusFrame::Ping,
                message("p.b.c", ""),
                BusFrame::Other,
                BusFrame::Refused("-ERR 'No'".into()),
                BusFrame::Pong
            ]
        );
        assert!(input.is_empty());
    }

    #[test]
    fn an_unknown_frame_ends_the_connection() {
        for received in ["MSG p.game.A 7 99999999999\r\n", "MSG x\r\n", "HTTP/1.1 400 Bad Request\r\n"] {
            assert!(Nats::read(&mut BytesMut::from(received)).is_err(), "{received}");
        }
        assert!(Nats::read(&mut BytesMut::from(&vec![b'x'; 100_000][..])).is_err());
    }
}
