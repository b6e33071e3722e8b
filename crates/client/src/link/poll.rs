//! Long-poll: one request after the other; each acknowledges the events of the previous one.
//! Must hold: only events that the session has processed are acknowledged.

use super::http::{self, HttpLink};
use super::{
    ANSWER_TIMEOUT, INCOMING, Link, LinkEvent, LinkRequest, OUTGOING, SUPERSEDED, Transport, checked, spawn,
};
use crate::error::{Error, LinkEnd, OpenError};
use crate::fault;
use crate::frame::ServerFrame;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

const POLL_MS: u64 = 15_000;

pub(super) async fn open(request: LinkRequest) -> Result<(Value, Link), OpenError> {
    let mut first = HttpLink::new(&request);
    let mut asked = json!({"op": "hello"});
    if let Some((session, seq)) = &request.resume {
        asked["session"] = json!(session);
        asked["seq"] = json!(seq);
    }
    if request.statuses {
        asked["status"] = json!(true);
    }
    let hello = checked(&first.post("/v1/command", asked.to_string(), request.timeout).await?.value)?;
    let session = hello["session"].as_str().unwrap_or_default().to_owned();
    let (events, incoming) = mpsc::channel(INCOMING);
    let (outgoing, commands) = mpsc::channel(OUTGOING);
    let mut tasks = JoinSet::new();
    let fresh = hello["resumed"] != true || hello["reset"] == true;
    let cursor = request.resume.as_ref().filter(|_| !fresh).map_or(0, |(_, seq)| *seq);
    let sending = http::commands(first, session.clone(), commands, events.clone());
    spawn(&mut tasks, &events, sending);
    let polling = poll(HttpLink::new(&request), session, cursor, request.taken, events.clone());
    spawn(&mut tasks, &events, polling);
    Ok((hello, Link { transport: Transport::Poll, incoming, outgoing, _tasks: tasks }))
}

async fn poll(
    mut connection: HttpLink,
    session: String,
    mut cursor: u64,
    mut taken: watch::Receiver<u64>,
    events: mpsc::Sender<LinkEvent>,
) {
    let timeout = Duration::from_millis(POLL_MS + POLL_MS / 10) + ANSWER_TIMEOUT;
    loop {
        fault::point("poll");
        let asked = json!({"session": session, "cursor": cursor, "timeout_ms": POLL_MS});
        let frames = match connection
            .post("/v1/poll", asked.to_string(), timeout)
            .await
            .map_err(http::link_end)
            .and_then(frames)
        {
            Ok(frames) => frames,
            Err(ending) => {
                let _ = events.send(LinkEvent::End(ending)).await;
                return;
            }
        };
        let last = frames.iter().filter_map(|frame| frame.value["seq"].as_u64()).max();
        for frame in frames {
            if events.send(LinkEvent::Frame(frame)).await.is_err() {
                return;
            }
        }
        if let Some(last) = last {
            if taken.wait_for(|seq| *seq >= last).await.is_err() {
                return;
            }
            cursor = last;
        }
    }
}

/// The frames in the answer to a poll.
fn frames(answer: ServerFrame) -> Result<Vec<ServerFrame>, LinkEnd> {
    let ServerFrame { value, text } = answer;
    if let Some(error) = value.get("error") {
        return Err(http::link_end(OpenError::Refused(Error::from_wire(Some(error)))));
    }
    if value["superseded"] == true {
        return Err(LinkEnd::coded(SUPERSEDED, "superseded"));
    }
    if value["reset"] == true {
        return Err(LinkEnd::new("the server has reset the session"));
    }
    let PolledEvents { events } =
        serde_json::from_str(&text).map_err(|error| LinkEnd::new(error.to_string()))?;
    let parsed = events.into_iter().map(|event| ServerFrame::parse(event.get().as_bytes()));
    let mut frames = parsed.collect::<Result<Vec<ServerFrame>, LinkEnd>>()?;
    if value["gap"] == true && !frames.iter().any(|frame| frame.value["event"] == "gap") {
        frames.insert(0, json!({"event": "gap"}).into());
    }
    if let Some(party) = value.get("party") {
        frames.push(json!({"party": party}).into());
    }
    Ok(frames)
}

/// The events of an answer, not parsed yet.
#[derive(Deserialize)]
struct PolledEvents<'a> {
    #[serde(borrow, default)]
    events: Vec<&'a RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_an_answer_keep_their_text() {
        let answer =
            ServerFrame::parse(br#"{"events":[{"seq":1,"data":1.50}, {"seq": 2}],"gap":true,"party":null}"#);
        let frames = frames(answer.expect("a frame")).expect("frames");
        let texts: Vec<&str> = frames.iter().map(|frame| &*frame.text).collect();
        assert_eq!(
            texts,
            [r#"{"event":"gap"}"#, r#"{"seq":1,"data":1.50}"#, r#"{"seq": 2}"#, r#"{"party":null}"#]
        );
    }
}
