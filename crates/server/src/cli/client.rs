//! A small blocking client of the JSON protocol over WebSocket, for `publish` and `subscribe`. Uses what every client
//! may use and nothing else. Must hold: a message larger than `MESSAGE_BYTES` is refused before it is kept.

use super::options::ServerOptions;
use super::stream::{Address, Stream, header_safe, is_timeout, percent_encode, read_head};
use crate::auth::Credential;
use crate::random::random_bits;
use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};
use tavern_wire::ws::{self, Opcode, Role};

/// The largest message that a server can be configured for, with room for what stands around it.
const MESSAGE_BYTES: usize = 66 << 20;
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said no; asking again would change nothing.
    #[error("{code}: {message}")]
    Refused { code: String, message: String },
    /// The connection ended; connect again and resume.
    #[error("{0}")]
    Lost(String),
    /// Something is wrong on this side or not a Tavern on the other.
    #[error(transparent)]
    Broken(#[from] anyhow::Error),
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Lost(error.to_string())
    }
}

#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    Text(String),
    /// The server asked whether we are alive, and was told.
    Heartbeat,
    /// The time is over.
    Nothing,
}

/// What the server said to `hello`.
pub struct Welcome {
    pub session: String,
    pub resumed: bool,
    pub heartbeat_ms: u64,
}

pub struct Client {
    stream: Stream,
    input: Vec<u8>,
    /// The beginning of a message whose other fragments are still to come.
    message: Vec<u8>,
    /// Events that came while an answer was awaited.
    early: VecDeque<String>,
    next_id: u64,
    /// A token travels in `hello`; any other credential in the handshake, and the answer comes by itself.
    token: Option<String>,
}

impl Client {
    pub fn connect(options: &ServerOptions) -> Result<Client, ClientError> {
        let address = Address::parse(&options.url())?;
        let stream = Stream::connect(&address, options.ca.as_deref())?;
        stream.set_patience(ANSWER_PATIENCE)?;
        let mut client = Client {
            stream,
            input: Vec::new(),
            message: Vec::new(),
            early: VecDeque::new(),
            next_id: 1,
            token: None,
        };
        client.handshake(&address, options.credential())?;
        Ok(client)
    }

    fn handshake(&mut self, address: &Address, credential: Credential) -> Result<(), ClientError> {
        let mut path = "/v1/connect".to_owned();
        let mut field = String::new();
        match credential {
            Credential::User(name) => path.push_str(&format!("?user={}", percent_encode(&name))),
            Credential::Key(key) => field = format!("Authorization: Bearer {}\r\n", header_safe(&key)?),
            Credential::Token(token) => self.token = Some(token),
        }
        let nonce = STANDARD.encode(random_bits().to_le_bytes());
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n{field}\r\n",
            address.authority()
        );
        self.stream.write_all(request.as_bytes())?;
        let head = read_head(&mut self.stream)?;
        if head.status != 101 {
            return Err(self.refusal(head.status, head.rest));
        }
        if head.field("Sec-WebSocket-Accept") != Some(&accept(&nonce)) {
            return Err(anyhow!("{} does not speak WebSocket", address.authority()).into());
        }
        self.input = head.rest;
        Ok(())
    }

    /// The refusal inside an HTTP answer; its body is an error like any other.
    fn refusal(&mut self, status: u16, mut body: Vec<u8>) -> ClientError {
        // The connection may stay open behind the body, so read only what an error can hold and only briefly.
        let _ = self.stream.set_patience(Duration::from_millis(300));
        let _ = Read::by_ref(&mut self.stream).take(4_096).read_to_end(&mut body);
        let answer: Option<Value> = serde_json::from_slice(&body).ok();
        match answer.as_ref().and_then(|answer| answer.get("error")) {
            Some(error) => refused(error),
            None if status >= 500 => ClientError::Lost(format!("the server answered {status}")),
            None => anyhow!("the server answered {status}; is this a Tavern?").into(),
        }
    }

    /// Begins a session, or goes on with one after its event `seq`.
    pub fn hello(&mut self, resume: Option<(&str, u64)>) -> Result<Welcome, ClientError> {
        let mut command = json!({"op": "hello"});
        if let Some((session, seq)) = resume {
            command["session"] = json!(session);
            command["seq"] = json!(seq);
        }
        let ok = match self.token.clone() {
            Some(token) => {
                command["token"] = json!(token);
                self.ask(command)?
            }
            None => {
                let implicit = self.answer(None)?;
                if resume.is_some() { self.ask(command)? } else { implicit }
            }
        };
        Ok(Welcome {
            session: ok["session"].as_str().context("the server's hello names no session")?.to_owned(),
            resumed: ok["resumed"].as_bool().unwrap_or(false),
            heartbeat_ms: ok["heartbeat_ms"].as_u64().unwrap_or(15_000),
        })
    }

    /// Sends a command and waits for its answer.
    pub fn ask(&mut self, mut command: Value) -> Result<Value, ClientError> {
        let id = self.take_id();
        command["id"] = json!(id);
        self.send(&command.to_string())?;
        self.answer(Some(id))
    }

    pub fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub fn send(&mut self, text: &str) -> Result<(), ClientError> {
        self.write(Opcode::Text, text.as_bytes())
    }

    /// Waits for the answer to a command, or for the one that comes by itself. Events wait in line meanwhile.
    pub fn answer(&mut self, id: Option<u64>) -> Result<Value, ClientError> {
        let until = Instant::now() + ANSWER_PATIENCE;
        loop {
            let text = match self.next(until)? {
                Incoming::Text(text) => text,
                Incoming::Heartbeat => continue,
                Incoming::Nothing => {
                    return Err(ClientError::Lost("the server did not answer in time".into()));
                }
            };
            let frame: Value =
                serde_json::from_str(&text).context("the server sent something else than JSON")?;
            if frame.get("event").is_some() {
                self.early.push_back(text);
            } else if frame.get("id").and_then(Value::as_u64) == id {
                return match frame.get("error") {
                    Some(error) => Err(refused(error)),
                    None => Ok(frame.get("ok").cloned().unwrap_or(Value::Null)),
                };
            }
        }
    }

    /// The next event, or a heartbeat, or nothing when the time is over.
    pub fn receive(&mut self, until: Instant) -> Result<Incoming, ClientError> {
        match self.early.pop_front() {
            Some(text) => Ok(Incoming::Text(text)),
            None => self.next(until),
        }
    }

    fn next(&mut self, until: Instant) -> Result<Incoming, ClientError> {
        loop {
            if let Some(incoming) = self.take_frame()? {
                return Ok(incoming);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Incoming::Nothing);
            }
            self.stream.set_patience(left)?;
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ClientError::Lost("the server closed the connection".into())),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if is_timeout(&error) => return Ok(Incoming::Nothing),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the frames that have arrived, up to the first that concerns the caller.
    fn take_frame(&mut self) -> Result<Option<Incoming>, ClientError> {
        loop {
            let room = MESSAGE_BYTES - self.message.len();
            let head = ws::read_head(&self.input, Role::Client, room).map_err(|error| anyhow!(error))?;
            let Some(head) = head.filter(|head| self.input.len() >= head.head_len + head.payload_len) else {
                return Ok(None);
            };
            let payload: Vec<u8> = self.input[head.head_len..head.head_len + head.payload_len].to_vec();
            self.input.drain(..head.head_len + head.payload_len);
            match head.opcode {
                Opcode::Ping => {
                    self.write(Opcode::Pong, &payload)?;
                    return Ok(Some(Incoming::Heartbeat));
                }
                Opcode::Pong => {}
                Opcode::Close => {
                    let reason = ws::parse_close(&payload).ok().flatten();
                    let reason =
                        reason.map_or("without a reason".to_owned(), |(code, why)| format!("{code} {why}"));
                    return Err(ClientError::Lost(format!("the server closed the connection: {reason}")));
                }
                Opcode::Text | Opcode::Binary | Opcode::Continuation => {
                    self.message.extend_from_slice(&payload);
                    if head.fin {
                        let text = String::from_utf8(std::mem::take(&mut self.message));
                        return Ok(Some(Incoming::Text(
                            text.context("the server sent text that is not UTF-8")?,
                        )));
                    }
                }
            }
        }
    }

    /// Says goodbye: the session ends now and nobody waits for it.
    pub fn bye(mut self) {
        // The answer does not matter: whatever goes wrong here, the server notices the end by itself.
        let _ = self.ask(json!({"op": "bye"}));
        let _ = self.write(Opcode::Close, &1000u16.to_be_bytes());
    }

    fn write(&mut self, opcode: Opcode, payload: &[u8]) -> Result<(), ClientError> {
        let mask = (random_bits() as u32).to_le_bytes();
        let mut frame = Vec::with_capacity(payload.len() + ws::HEAD_BYTES);
        ws::write_frame_masked(&mut frame, opcode, payload, mask);
        self.stream.write_all(&frame)?;
        Ok(self.stream.flush()?)
    }
}

fn refused(error: &Value) -> ClientError {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    ClientError::Refused { code: text("code"), message: text("message") }
}

/// What a WebSocket server must answer to this key.
fn accept(nonce: &str) -> String {
    let joined = format!("{nonce}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let sha1 = &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;
    STANDARD.encode(aws_lc_rs::digest::digest(sha1, joined.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_that_of_the_standard() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
