//! Publishers: each topic has one key, unless it was deleted and another key was first. Unacknowledged events are sent
//! again, with the same id, to any node. Must hold: an acknowledged event is in the log; the other key is refused.

use super::log::LogJudge;
use super::{NODES, RETRY_MS, TOPICS};
use crate::cluster::Cluster;
use crate::rng::Rng;
use crate::workload::{Outcome, number};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_hub::topics::{TopicCaller, TopicCommand, TopicReply};
use tavern_wire::json::event::{PublishedEvent, stored};

/// The data of a large event: a few of them exceed the limit of a backlog.
const LARGE_BYTES: usize = 16_000;
/// How long a publisher waits whose topic belongs to another key.
const CLAIMED_MS: u64 = 3_000;

#[derive(Default)]
pub struct SimPublisher {
    numbers: u64,
    /// Events that were not answered yet.
    open: BTreeMap<u64, SentEvent>,
    /// Events that are in the log.
    pub accepted: BTreeMap<u64, SentEvent>,
    /// Events that were sent with the key of another topic.
    stolen: BTreeMap<u64, SentEvent>,
    pub repeated: u64,
    pub claimed: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct SentEvent {
    pub topic: usize,
    node: usize,
    large: bool,
    /// When it is sent again; none: it is in flight.
    retry_at: Option<Time>,
    /// When it was first sent, and when it was acknowledged.
    pub sent_at: Time,
    pub accepted_at: Time,
}

impl SimPublisher {
    pub fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Option<String> {
        self.numbers += 1;
        let (topic, node) = (rng.below(TOPICS.len()), rng.below(NODES));
        let has = |topic: usize| self.accepted.values().any(|event| event.topic == topic);
        let again = self.accepted.iter().nth_back(rng.below(3)).filter(|_| rng.chance(10));
        let line = match again {
            Some((known, event)) if !self.is_stolen(*known) => {
                format!("publish {} {node} {known}", event.topic)
            }
            _ if rng.chance(4) && has(topic) => format!("steal {topic} {node} {}", self.numbers),
            _ if rng.chance(8) => format!("publish_large {topic} {node} {}", self.numbers),
            _ => format!("publish {topic} {node} {}", self.numbers),
        };
        cluster.nodes[node].is_open().then_some(line)
    }

    pub fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let (["publish" | "publish_large" | "steal", topic, node, event], now) = (words, cluster.now) else {
            return Err("not an action of a publisher".into());
        };
        let event_number: u64 = number(event)?;
        let (topic, node) = (number::<usize>(topic)?, number(node)?);
        let large = words[0] == "publish_large";
        // An answer may be that of an earlier attempt.
        let earlier = self.open.get(&event_number).or(self.accepted.get(&event_number));
        let sent_at = earlier.map_or(now, |earlier| earlier.sent_at);
        let event = SentEvent { topic, node, large, retry_at: None, sent_at, accepted_at: now };
        let stolen = words[0] == "steal";
        match stolen {
            true => self.stolen.insert(event_number, event),
            false => self.open.insert(event_number, event),
        };
        self.send(cluster, event_number, event, stolen);
        Ok(())
    }

    fn send(&mut self, cluster: &mut Cluster, number: u64, event: SentEvent, stolen: bool) {
        let caller = TopicCaller { id: key(event.topic, stolen), admin: false };
        let data = match event.large {
            true => format!("[{number},\"{}\"]", "x".repeat(LARGE_BYTES)),
            false => number.to_string(),
        };
        let body = stored("x", None, 0, &data);
        let new = PublishedEvent { id: Some(number.to_string()), body };
        let command =
            TopicCommand::Publish { topic: TOPICS[event.topic].into(), once: None, events: vec![new] };
        if !cluster.command_topic(event.node, number, caller, command) {
            self.put_off(cluster, number, RETRY_MS);
        }
    }

    /// To the next node, after a delay.
    fn put_off(&mut self, cluster: &Cluster, number: u64, wait_ms: u64) {
        if let Some(event) = self.open.get_mut(&number) {
            event.node = (event.node + 1) % NODES;
            event.retry_at = Some(cluster.now + wait_ms);
        }
    }

    pub fn answered(
        &mut self,
        cluster: &Cluster,
        number: u64,
        reply: &Result<TopicReply, String>,
        log: &LogJudge,
    ) -> Outcome {
        let stolen = self.is_stolen(number);
        let Some(event) = self.open.get(&number).or(self.stolen.get(&number)).copied() else { return Ok(()) };
        let own = key(event.topic, stolen);
        match reply {
            Ok(TopicReply::Published(published)) => {
                let is_free = |publisher: Option<&str>| publisher.is_none_or(|publisher| publisher == &*own);
                if stolen && !log.had_publisher(event.topic, event.sent_at, is_free) {
                    return Err(format!("event {number} came with the key of another topic: {reply:?}"));
                }
                let (new, count) = (published.accepted > 0, published.first_seq);
                log.judge_reply(number, event.topic, event.sent_at, new, count)?;
                self.repeated += u64::from(published.duplicates > 0);
                self.open.remove(&number);
                self.accepted.entry(number).or_insert(SentEvent { accepted_at: cluster.now, ..event });
            }
            Err(code) if code == "claimed" => {
                let is_other =
                    |publisher: Option<&str>| publisher.is_some_and(|publisher| publisher != &*own);
                if !log.had_publisher(event.topic, event.sent_at, is_other) {
                    return Err(format!("event {number} was refused, and {own} has topic {}", event.topic));
                }
                self.claimed += u64::from(stolen);
                self.put_off(cluster, number, CLAIMED_MS);
            }
            Err(code) if code == "unavailable" => self.put_off(cluster, number, RETRY_MS),
            reply => return Err(format!("event {number} was answered {reply:?}")),
        }
        Ok(())
    }

    /// Requests in flight at a node will not be answered.
    pub fn node_ended(&mut self, cluster: &Cluster, node: usize) {
        let lost = self.open.iter().filter(|(_, event)| event.node == node && event.retry_at.is_none());
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        lost.into_iter().for_each(|number| self.put_off(cluster, number, RETRY_MS));
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.open.values().filter_map(|event| event.retry_at).min()
    }

    pub fn wake(&mut self, cluster: &mut Cluster) {
        let due = |event: &SentEvent| event.retry_at.is_some_and(|due| due <= cluster.now);
        let due: Vec<u64> =
            self.open.iter().filter(|(_, event)| due(event)).map(|(number, _)| *number).collect();
        for number in due {
            if let Some(event) = self.open.get_mut(&number) {
                event.retry_at = None;
                let event = *event;
                self.send(cluster, number, event, false);
            }
        }
    }

    fn is_stolen(&self, number: u64) -> bool {
        self.stolen.contains_key(&number)
    }

    /// The key that an event was sent with.
    pub fn key_of(&self, number: u64) -> Option<Arc<str>> {
        let own = self.open.get(&number).or(self.accepted.get(&number));
        let stolen = self.stolen.get(&number).map(|event| key(event.topic, true));
        stolen.or_else(|| own.map(|event| key(event.topic, false)))
    }

    /// Everything was answered, and an event that was answered before another was sent is before it in the log.
    pub fn check_end(&self, log: &LogJudge) -> Outcome {
        if let Some((number, event)) = self.open.first_key_value() {
            return Err(format!("event {number} was never answered: {event:?}"));
        }
        let mut latest: Option<(u64, Time)> = None;
        for event in log.events.values() {
            let Some(sent) = self.accepted.get(&event.number) else { continue };
            // It may be in the log again, if its topic was deleted.
            let is_first = event.at <= sent.accepted_at;
            if let Some((other, _)) = latest.filter(|(_, at)| is_first && sent.accepted_at < *at) {
                let number = event.number;
                return Err(format!("event {number} was answered before {other} was sent, and is after it"));
            }
            latest = latest.filter(|(_, at)| *at >= sent.sent_at).or(Some((event.number, sent.sent_at)));
        }
        Ok(())
    }
}

/// The key of a topic, or that of another topic.
fn key(topic: usize, stolen: bool) -> Arc<str> {
    let topic = if stolen { (topic + 1) % TOPICS.len() } else { topic };
    format!("key{topic}").into()
}
