//! Server-sent events: one endless response, and commands on a second connection.

use super::http::{self, HttpLink};
use super::{
    ANSWER_TIMEOUT, INCOMING, Link, LinkEvent, LinkRequest, OUTGOING, Transport, checked, refusal, spawn,
};
use crate::bounds::MESSAGE_BYTES;
use crate::error::{LinkEnd, OpenError};
use crate::fault;
use crate::frame::ServerFrame;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming as Body;
use serde_json::{Value, json};
use std::collections::VecDeque;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const REFUSAL_BYTES: usize = 4_096;

pub(super) async fn open(request: LinkRequest) -> Result<(Value, Link), OpenError> {
    let mut stream_link = HttpLink::new(&request);
    let answer = stream_link.stream(request.resume.as_ref()).await?;
    let status = answer.status().as_u16();
    if status != 200 {
        let body = Limited::new(answer.into_body(), REFUSAL_BYTES).collect().await;
        return Err(refusal(status, &body.map(|body| body.to_bytes()).unwrap_or_default()));
    }
    let mut stream =
        SseStream { body: answer.into_body(), blocks: Blocks::default(), ready: VecDeque::new() };
    let hello = loop {
        match stream.next().await.map_err(OpenError::Blocked)? {
            // The reply may follow events.
            Some(frame) if frame.value.get("event").is_some() => continue,
            Some(frame) => break checked(&frame.value)?,
            None => continue,
        }
    };
    let session = hello["session"].as_str().unwrap_or_default().to_owned();
    let mut beside = HttpLink::new(&request);
    if request.statuses {
        beside
            .post(
                "/v1/command",
                json!({"op": "hello", "session": session, "status": true}).to_string(),
                ANSWER_TIMEOUT,
            )
            .await?;
    }
    let (events, incoming) = mpsc::channel(INCOMING);
    let (outgoing, commands) = mpsc::channel(OUTGOING);
    let mut tasks = JoinSet::new();
    spawn(&mut tasks, &events, http::commands(beside, session, commands, events.clone()));
    spawn(&mut tasks, &events.clone(), read(stream, stream_link, events));
    Ok((hello, Link { transport: Transport::Sse, incoming, outgoing, _tasks: tasks }))
}

/// Holds the connection too: the stream ends with it.
async fn read(mut stream: SseStream, _connection: HttpLink, events: mpsc::Sender<LinkEvent>) {
    loop {
        fault::point("stream");
        let event = match stream.next().await {
            Ok(Some(frame)) => LinkEvent::Frame(frame),
            Ok(None) => LinkEvent::Alive,
            Err(ending) => LinkEvent::End(ending),
        };
        let over = matches!(event, LinkEvent::End(_));
        if events.send(event).await.is_err() || over {
            return;
        }
    }
}

struct SseStream {
    body: Body,
    blocks: Blocks,
    ready: VecDeque<Vec<u8>>,
}

impl SseStream {
    /// The next frame; None: bytes arrived without completing one.
    async fn next(&mut self) -> Result<Option<ServerFrame>, LinkEnd> {
        if let Some(block) = self.ready.pop_front() {
            return ServerFrame::parse(&block).map(Some);
        }
        let piece = match self.body.frame().await {
            Some(Ok(piece)) => piece.into_data().unwrap_or_default(),
            Some(Err(error)) => return Err(LinkEnd::new(error.to_string())),
            None => return Err(LinkEnd::new("the stream ended")),
        };
        self.ready = self.blocks.feed(&piece)?;
        self.ready.pop_front().map(|block| ServerFrame::parse(&block)).transpose()
    }
}

/// Assembles the lines of a stream into events.
#[derive(Default)]
struct Blocks {
    rest: Vec<u8>,
    data: Vec<u8>,
}

impl Blocks {
    fn feed(&mut self, piece: &[u8]) -> Result<VecDeque<Vec<u8>>, LinkEnd> {
        let mut ready = VecDeque::new();
        for byte in piece {
            if *byte != b'\n' {
                self.rest.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.rest);
            let line = line.strip_suffix(b"\r").unwrap_or(&line);
            if let Some(data) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            } else if line.is_empty() && !self.data.is_empty() {
                ready.push_back(std::mem::take(&mut self.data));
            }
        }
        if self.rest.len() + self.data.len() > MESSAGE_BYTES {
            return Err(LinkEnd::new("an event is too large"));
        }
        Ok(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_the_pieces_end() {
        let text = b": hello\n\nid: 1\ndata: {\"a\":1}\n\ndata: {\"b\":\r\ndata: 2}\r\n\r\n";
        let expected: Vec<Vec<u8>> = vec![b"{\"a\":1}".to_vec(), b"{\"b\":\n2}".to_vec()];
        for size in 1..text.len() {
            let mut blocks = Blocks::default();
            let found: Vec<Vec<u8>> =
                text.chunks(size).flat_map(|piece| blocks.feed(piece).expect("small enough")).collect();
            assert_eq!(found, expected, "pieces of {size}");
        }
    }
}
