//! Handles the frames of a client: answers, events, answers to polls; each event is checked against the promises to its
//! session.

use super::client::{PUBLISH, SUBSCRIBE};
use super::{CHANNELS, MessagesWorkload};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use crate::workload::promise::Promise;
use serde_json::Value;

/// The shortest lifetime of a session without a connection.
const SESSION_MS: u64 = 60_000;

impl MessagesWorkload {
    pub(super) fn receive_frame(&mut self, cluster: &mut Cluster, who: usize, frame: &Value) -> Outcome {
        cluster.trace.note(frame["seq"].as_u64().unwrap_or(7) ^ (who as u64) << 32);
        cluster.trace.say(cluster.now, || format!("client {who} receives {frame}"));
        if frame["error"].is_object() {
            return Err(format!("refused: {frame}"));
        }
        match frame["id"].as_u64() {
            Some(1) => self.greeted(cluster, who, &frame["ok"]),
            Some(id) if id >= SUBSCRIBE => {
                let client = &mut self.clients[who];
                if let Some(channel) = client.subscribed_by(id) {
                    client.promise.subscribed(channel, &self.sent);
                }
                Ok(())
            }
            Some(id) if (PUBLISH..PUBLISH + CHANNELS as u64).contains(&id) => {
                let source = (self.clients[who].publisher, (id - PUBLISH) as usize);
                *self.accepted.entry(source).or_default() += 1;
                Ok(())
            }
            Some(_) => Ok(()),
            None => self.event(who, frame),
        }
    }

    fn greeted(&mut self, cluster: &Cluster, who: usize, ok: &Value) -> Outcome {
        match ok["resumed"] == true {
            true => self.count("sessions resumed"),
            false => self.forgotten(cluster, who)?,
        }
        let client = &mut self.clients[who];
        client.session = Some(ok["session"].as_str().ok_or("hello without a session")?.to_owned());
        client.greeted = true;
        client.heard_of(cluster.now);
        Ok(())
    }

    fn event(&mut self, who: usize, event: &Value) -> Outcome {
        let Some(seq) = event["seq"].as_u64() else { return Ok(()) };
        if event["event"] == "gap" {
            self.count("gaps");
            let (from, to) = (event["from"].as_u64().unwrap_or(0), event["to"].as_u64().unwrap_or(0));
            return self.clients[who].promise.gap(from, to);
        }
        self.count("events received");
        let promise = &mut self.clients[who].promise;
        promise.numbered(seq)?;
        let channel = event["channel"].as_str().and_then(|name| name.strip_prefix("room#")?.parse().ok());
        let (publisher, count) = (event["data"]["p"].as_u64(), event["data"]["c"].as_u64());
        match (channel, publisher, count) {
            (Some(channel), Some(publisher), Some(count)) => {
                promise.message((publisher as usize, channel), count)
            }
            _ => Err(format!("an unknown event: {event}")),
        }
    }

    pub(super) fn polled(&mut self, cluster: &mut Cluster, who: usize, answer: Option<Value>) -> Outcome {
        let client = &mut self.clients[who];
        client.detach(cluster.now);
        client.heard_of(cluster.now);
        // A lost answer: the same events must be sent again.
        let Some(answer) = answer else { return Ok(()) };
        cluster.trace.say(cluster.now, || format!("client {who} polls {answer}"));
        if answer["superseded"] == true {
            return Ok(());
        }
        if answer["reset"] == true {
            return Err("a poll with a valid cursor was answered with reset".into());
        }
        for event in answer["events"].as_array().into_iter().flatten() {
            self.event(who, event)?;
        }
        let seq = self.clients[who].promise.seq;
        match answer["cursor"].as_u64() == Some(seq) {
            true => Ok(()),
            false => Err(format!("cursor {} after {seq}", answer["cursor"])),
        }
    }

    /// The session has ended. That is correct only after its time to resume.
    pub(super) fn forgotten(&mut self, cluster: &Cluster, who: usize) -> Outcome {
        let client = &mut self.clients[who];
        let silent_ms = client.silent_ms(cluster.now);
        if client.session.take().is_some() && silent_ms < SESSION_MS {
            return Err(format!("its session was lost after {silent_ms} ms"));
        }
        client.promise = Promise::default();
        Ok(())
    }
}
