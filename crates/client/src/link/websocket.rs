//! WebSocket: one task reads, one writes and answers pings.
//! Must hold: a message larger than `MESSAGE_BYTES` is refused before it is kept.

use super::frames::{self, Opcode};
use super::stream::{self, Io};
use super::{INCOMING, Link, LinkEvent, LinkRequest, OUTGOING, Transport, checked, refusal, spawn};
use crate::bounds::MESSAGE_BYTES;
use crate::error::{LinkEnd, OpenError};
use crate::fault;
use crate::frame::{Outgoing, ServerFrame};
use crate::random::random;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The largest HTTP head that is accepted.
const HEAD_BYTES: usize = 16 * 1024;
/// Room for one read.
const READ_BYTES: usize = 16 * 1024;
const REFUSAL_BYTES: u64 = 4_096;
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(300);

pub(super) async fn open(request: LinkRequest) -> Result<(Value, Link), OpenError> {
    let mut stream = stream::connect(&request).await?;
    let rest = upgrade(&mut stream, &request).await?;
    let (reader, writer) = tokio::io::split(stream);
    let (events, incoming) = mpsc::channel(INCOMING);
    let (outgoing, commands) = mpsc::channel(OUTGOING);
    let (pong, pongs) = mpsc::channel(2);
    let mut tasks = JoinSet::new();
    spawn(&mut tasks, &events, write(writer, commands, pongs));
    spawn(&mut tasks, &events.clone(), read(reader, rest, events, pong));
    let mut link = Link { transport: Transport::WebSocket, incoming, outgoing, _tasks: tasks };
    hello(&mut link, &request).await.map(|answer| (answer, link))
}

/// The token and the session secret are sent in the hello frame, where no proxy logs them.
async fn hello(link: &mut Link, request: &LinkRequest) -> Result<Value, OpenError> {
    let mut hello = json!({"id": "hello", "op": "hello"});
    if let Some(token) = request.credential.token() {
        hello["token"] = json!(token);
    }
    if let Some((session, seq)) = &request.resume {
        hello["session"] = json!(session);
        hello["seq"] = json!(seq);
    }
    if request.statuses {
        hello["status"] = json!(true);
    }
    // The reading task reports a connection that ended.
    let _ = link.outgoing.send(hello.into()).await;
    loop {
        match link.incoming.recv().await {
            // The reply may follow events.
            Some(LinkEvent::Frame(frame)) if frame.value.get("event").is_some() => {}
            Some(LinkEvent::Frame(frame)) => return checked(&frame.value),
            Some(LinkEvent::Alive) => {}
            Some(LinkEvent::End(ending)) => return Err(OpenError::Blocked(ending)),
            Some(LinkEvent::Failed(cause)) => return Err(OpenError::Failed(cause)),
            None => return Err(OpenError::Lost("the connection ended".into())),
        }
    }
}

/// The handshake; returns bytes that were read after it.
async fn upgrade(stream: &mut Box<dyn Io>, request: &LinkRequest) -> Result<Vec<u8>, OpenError> {
    let mut query = request.credential.query();
    query.push(("hello", "no".to_owned()));
    let target = request.address.target("/v1/connect", &query);
    let nonce = STANDARD.encode(random::<16>());
    let key = request.credential.key.as_ref();
    let authorization = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n{authorization}\r\n",
        request.address.authority()
    );
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut input = Vec::new();
    let end = loop {
        if let Some(at) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if input.len() > HEAD_BYTES || stream.read_buf(&mut input).await? == 0 {
            return Err(OpenError::blocked(
                "the connection ended in the WebSocket handshake; is this a Tavern server?",
            ));
        }
    };
    let head = String::from_utf8_lossy(&input[..end]).into_owned();
    let mut rest = input.split_off(end);
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    if status != 101 {
        // The connection may stay open after the body: read at most an error, and only briefly.
        let reading = stream.take(REFUSAL_BYTES);
        let _ = tokio::time::timeout(REFUSAL_TIMEOUT, { reading }.read_to_end(&mut rest)).await;
        return Err(refusal(status, &rest));
    }
    let field = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-accept").then(|| value.trim().to_owned())
    };
    if head.lines().find_map(field) != Some(accept_of(&nonce)) {
        return Err(OpenError::blocked(
            "the WebSocket handshake has another answer; is this a Tavern server?",
        ));
    }
    Ok(rest)
}

/// What a WebSocket server must answer to this key.
pub(crate) fn accept_of(nonce: &str) -> String {
    let joined = format!("{nonce}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let sha1 = &ring::digest::SHA1_FOR_LEGACY_USE_ONLY;
    STANDARD.encode(ring::digest::digest(sha1, joined.as_bytes()))
}

async fn read(
    mut reader: ReadHalf<Box<dyn Io>>,
    input: Vec<u8>,
    events: mpsc::Sender<LinkEvent>,
    pong: mpsc::Sender<Vec<u8>>,
) {
    let mut frames = Frames { input, taken: 0, message: Vec::new() };
    let ending = loop {
        fault::point("read");
        match frames.next() {
            Ok(Some(WebSocketMessage::Message(text))) => match ServerFrame::parse(&text) {
                Ok(frame) => {
                    if events.send(LinkEvent::Frame(frame)).await.is_err() {
                        return;
                    }
                }
                Err(ending) => break ending,
            },
            Ok(Some(WebSocketMessage::Ping(payload))) => {
                // Drop further pings while two pongs wait.
                let _ = pong.try_send(payload);
                if events.send(LinkEvent::Alive).await.is_err() {
                    return;
                }
            }
            Ok(None) => {
                frames.input.reserve(READ_BYTES);
                match reader.read_buf(&mut frames.input).await {
                    Ok(0) => break LinkEnd::new("the server closed the connection"),
                    Ok(_) => {}
                    Err(error) => break LinkEnd::new(error.to_string()),
                }
            }
            Err(ending) => break ending,
        }
    };
    let _ = events.send(LinkEvent::End(ending)).await;
}

/// A decoded WebSocket message.
enum WebSocketMessage {
    Message(Vec<u8>),
    Ping(Vec<u8>),
}

/// Decodes received bytes.
struct Frames {
    input: Vec<u8>,
    /// Bytes of the input that are decoded.
    taken: usize,
    /// The start of a message whose other fragments have not arrived.
    message: Vec<u8>,
}

impl Frames {
    fn next(&mut self) -> Result<Option<WebSocketMessage>, LinkEnd> {
        loop {
            let room = MESSAGE_BYTES - self.message.len();
            let input = &self.input[self.taken..];
            let head = frames::read_head(input, room).map_err(LinkEnd::new)?;
            let Some(head) = head.filter(|head| input.len() >= head.head_len + head.payload_len) else {
                self.input.drain(..std::mem::take(&mut self.taken));
                return Ok(None);
            };
            let end = head.head_len + head.payload_len;
            let payload = input[head.head_len..end].to_vec();
            self.taken += end;
            match head.opcode {
                Opcode::Ping => return Ok(Some(WebSocketMessage::Ping(payload))),
                Opcode::Pong => {}
                Opcode::Close => {
                    return Err(match frames::parse_close(&payload) {
                        Some((code, why)) => LinkEnd::coded(code, format!("closed: {code} {why}")),
                        None => LinkEnd::new("closed without a reason"),
                    });
                }
                Opcode::Data(_) => {
                    self.message.extend_from_slice(&payload);
                    if head.fin {
                        return Ok(Some(WebSocketMessage::Message(std::mem::take(&mut self.message))));
                    }
                }
            }
        }
    }
}

/// Ends with the last sender of commands, or with the connection; the reader reports why.
async fn write(
    mut writer: WriteHalf<Box<dyn Io>>,
    mut commands: mpsc::Receiver<Outgoing>,
    mut pongs: mpsc::Receiver<Vec<u8>>,
) {
    let mut out = Vec::new();
    loop {
        fault::point("write");
        tokio::select! {
            command = commands.recv() => match command {
                Some(command) => frame(&mut out, frames::TEXT, command.text().as_bytes()),
                None => return,
            },
            Some(payload) = pongs.recv() => frame(&mut out, Opcode::Pong, &payload),
        }
        // Everything that is ready is sent in one write.
        while out.len() < HEAD_BYTES
            && let Ok(command) = commands.try_recv()
        {
            frame(&mut out, frames::TEXT, command.text().as_bytes());
        }
        if writer.write_all(&out).await.is_err() || writer.flush().await.is_err() {
            return;
        }
        out.clear();
    }
}

fn frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    frames::write(out, opcode, payload, random());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_is_that_of_the_standard() {
        assert_eq!(accept_of("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn fragments_are_joined_and_closes_are_read() {
        let mut frames = Frames {
            input: vec![0x01, 2, b'{', b'"', 0x89, 1, b'x', 0x80, 3, b'a', b'"', b'}', 0x88, 2, 0x0f, 0xa0],
            taken: 0,
            message: Vec::new(),
        };
        assert!(matches!(frames.next(), Ok(Some(WebSocketMessage::Ping(payload))) if payload == b"x"));
        assert!(matches!(frames.next(), Ok(Some(WebSocketMessage::Message(text))) if text == b"{\"a\"}"));
        assert!(matches!(frames.next(), Err(LinkEnd { code: Some(4000), .. })));
        let mut part = Frames { input: vec![0x81, 5, b'a'], taken: 0, message: Vec::new() };
        assert!(matches!(part.next(), Ok(None)));
    }
}
