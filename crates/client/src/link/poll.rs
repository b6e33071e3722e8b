//! Long-poll: one request after the other; each acknowledges what came with those before.
//! Must hold: nothing is acknowledged that the session has not taken.

use super::http::{self, Connection};
use super::{
    ANSWER_PATIENCE, Door, INCOMING, Incoming, Link, OPEN_PATIENCE, OUTGOING, SUPERSEDED, Transport, checked,
};
use crate::error::{Ending, Error, OpenError};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

const POLL_MS: u64 = 15_000;

pub(super) async fn open(door: Door) -> Result<(Value, Link), OpenError> {
    let connection = || Connection::new(door.address.clone(), door.tls.clone(), door.credential.clone());
    let mut first = connection();
    let mut asked = json!({"op": "hello"});
    if let Some((session, seq)) = &door.resume {
        asked["session"] = json!(session);
        asked["seq"] = json!(seq);
    }
    if door.statuses {
        asked["status"] = json!(true);
    }
    let hello = checked(&first.post("/v1/command", &asked, OPEN_PATIENCE).await?)?;
    let session = hello["session"].as_str().unwrap_or_default().to_owned();
    let (tell, incoming) = mpsc::channel(INCOMING);
    let (outgoing, commands) = mpsc::channel(OUTGOING);
    let mut tasks = JoinSet::new();
    let fresh = hello["resumed"] != true || hello["reset"] == true;
    let cursor = door.resume.as_ref().filter(|_| !fresh).map_or(0, |(_, seq)| *seq);
    tasks.spawn(http::commands(first, session.clone(), commands, tell.clone()));
    tasks.spawn(poll(connection(), session, cursor, door.taken.clone(), tell));
    Ok((hello, Link { transport: Transport::Poll, incoming, outgoing, _tasks: tasks }))
}

async fn poll(
    mut connection: Connection,
    session: String,
    mut cursor: u64,
    mut taken: watch::Receiver<u64>,
    tell: mpsc::Sender<Incoming>,
) {
    let patience = Duration::from_millis(POLL_MS + POLL_MS / 10) + ANSWER_PATIENCE;
    loop {
        let asked = json!({"session": session, "cursor": cursor, "timeout_ms": POLL_MS});
        let frames = match connection
            .post("/v1/poll", &asked, patience)
            .await
            .map_err(http::ending)
            .and_then(frames)
        {
            Ok(frames) => frames,
            Err(ending) => {
                let _ = tell.send(Incoming::End(ending)).await;
                return;
            }
        };
        let last = frames.iter().filter_map(|frame| frame["seq"].as_u64()).max();
        for frame in frames {
            if tell.send(Incoming::Frame(frame)).await.is_err() {
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

/// What a poll's answer holds, as frames.
fn frames(mut answer: Value) -> Result<Vec<Value>, Ending> {
    if let Some(error) = answer.get("error") {
        return Err(http::ending(OpenError::Refused(Error::from_wire(Some(error)))));
    }
    if answer["superseded"] == true {
        return Err(Ending::coded(SUPERSEDED, "superseded"));
    }
    if answer["reset"] == true {
        return Err(Ending::new("the server does not know this session as we do"));
    }
    let mut frames = match answer["events"].take() {
        Value::Array(events) => events,
        _ => Vec::new(),
    };
    if answer["gap"] == true && !frames.iter().any(|frame| frame["event"] == "gap") {
        frames.insert(0, json!({"event": "gap"}));
    }
    if let Some(party) = answer.get("party") {
        frames.push(json!({"party": party}));
    }
    Ok(frames)
}
