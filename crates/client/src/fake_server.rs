//! A server for the tests of a session: it greets on every transport, and otherwise does what the test says.

use crate::link::accept_of;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub(crate) struct FakeServer {
    pub url: String,
    connections: mpsc::UnboundedReceiver<FakeConnection>,
}

/// A connection of a client whose hello was answered.
pub(crate) struct FakeConnection {
    /// What the client sends after hello.
    pub commands: mpsc::UnboundedReceiver<Value>,
    out: mpsc::UnboundedSender<Vec<u8>>,
    frames: bool,
}

impl FakeConnection {
    /// Sends text: as a frame, an event of a stream, or the answer to a poll.
    pub fn send(&self, text: &str) {
        let bytes = match self.frames {
            true => frame(1, text.as_bytes()),
            false => format!("data: {text}\n\n").into_bytes(),
        };
        let _ = self.out.send(bytes);
    }

    pub fn close(&self, code: u16) {
        let _ = self.out.send(frame(8, &code.to_be_bytes()));
    }

    /// The next command of this kind, or the connection's end.
    pub async fn next(&mut self, op: &str) -> Value {
        loop {
            let command =
                self.commands.recv().await.unwrap_or_else(|| panic!("the connection ended before {op}"));
            if command["op"] == op {
                return command;
            }
        }
    }

    pub async fn answer(&mut self, op: &str, ok: Value) {
        let id = self.next(op).await["id"].clone();
        self.send(&json!({"id": id, "ok": ok}).to_string());
    }
}

impl FakeServer {
    /// Answers each hello with `hello`: `{"ok": …}` with the members that the test wants to be different, or `{"error": …}`.
    pub async fn start(hello: Value) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (tell, connections) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, hello.clone(), tell.clone()));
            }
        });
        FakeServer { url, connections }
    }

    pub async fn connection(&mut self) -> FakeConnection {
        self.connections.recv().await.expect("a connection")
    }
}

fn greeting(hello: &Value) -> Value {
    let mut ok =
        json!({"session": "s1", "client": "c1", "user": "ann", "node": "n1", "heartbeat_ms": 15_000});
    if let Some(members) = hello["ok"].as_object() {
        ok.as_object_mut().expect("an object").extend(members.clone());
    }
    if hello["error"].is_object() { hello.clone() } else { json!({"ok": ok}) }
}

async fn serve(
    mut stream: TcpStream,
    hello: Value,
    tell: mpsc::UnboundedSender<FakeConnection>,
) -> Option<()> {
    let (given, commands) = mpsc::unbounded_channel();
    let (out, mut written) = mpsc::unbounded_channel::<Vec<u8>>();
    let mut input = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
                break String::from_utf8_lossy(&input.drain(..end + 4).collect::<Vec<u8>>()).into_owned();
            }
            if stream.read_buf(&mut input).await.ok()? == 0 {
                return None;
            }
        };
        let field = |name: &str| {
            head.lines()
                .find_map(|line| line.split_once(": ").filter(|(is, _)| is.eq_ignore_ascii_case(name)))
        };
        if let Some((_, key)) = field("sec-websocket-key") {
            let accept = accept_of(key);
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.ok()?;
            let mut greeted = Some(FakeConnection { commands, out, frames: true });
            loop {
                while let Some(command) = masked(&mut input) {
                    if let Some(connection) = greeted.take() {
                        let mut reply = greeting(&hello);
                        reply["id"] = command["id"].clone();
                        stream.write_all(&frame(1, reply.to_string().as_bytes())).await.ok()?;
                        let _ = tell.send(connection);
                    } else {
                        let _ = given.send(command);
                    }
                }
                tokio::select! {
                    read = stream.read_buf(&mut input) => if read.ok()? == 0 { return None },
                    Some(bytes) = written.recv() => stream.write_all(&bytes).await.ok()?,
                }
            }
        }
        let length: usize = field("content-length").and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
        while input.len() < length {
            stream.read_buf(&mut input).await.ok()?;
        }
        let body: Value =
            serde_json::from_slice(&input.drain(..length).collect::<Vec<u8>>()).unwrap_or_default();
        if head.starts_with("GET /v1/stream") {
            let text = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {}\n\n",
                greeting(&hello)
            );
            stream.write_all(text.as_bytes()).await.ok()?;
            let _ = tell.send(FakeConnection { commands, out, frames: false });
            while let Some(bytes) = written.recv().await {
                stream.write_all(&bytes).await.ok()?;
            }
            return None;
        }
        if body["op"] == "hello" {
            respond(&mut stream, &greeting(&hello).to_string()).await?;
        } else if head.starts_with("POST /v1/poll") {
            let _ = tell.send(FakeConnection { commands, out, frames: false });
            // Answered when the test sends something.
            written.recv().await?;
            respond(&mut stream, r#"{"events":[]}"#).await?;
            return None;
        }
        // A command is never answered; the next request comes on the same connection.
    }
}

async fn respond(stream: &mut TcpStream, body: &str) -> Option<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.ok()
}

/// A frame of a server.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("a short frame");
    let mut frame = vec![0x80 | opcode, 126];
    if opcode == 8 {
        frame[1] = payload.len() as u8;
    } else {
        frame.extend_from_slice(&len.to_be_bytes());
    }
    frame.extend_from_slice(payload);
    frame
}

/// Takes a frame of a client: its JSON.
fn masked(input: &mut Vec<u8>) -> Option<Value> {
    let (len, at) = match *input.get(1)? & 0x7f {
        126 => (usize::from(u16::from_be_bytes([*input.get(2)?, *input.get(3)?])), 4),
        len => (usize::from(len), 2),
    };
    let end = at + 4 + len;
    if input.len() < end {
        return None;
    }
    let frame: Vec<u8> = input.drain(..end).collect();
    let (mask, payload) = frame[at..].split_at(4);
    let text: Vec<u8> = payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
    Some(serde_json::from_slice(&text).unwrap_or_default())
}
