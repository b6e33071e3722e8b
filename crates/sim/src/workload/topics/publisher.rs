//! Publishers: each topic has one key. Unacknowledged events are sent again, with the same id, to any node.

use super::{NODES, RETRY_MS, TOPICS};
use crate::cluster::Cluster;
use crate::rng::Rng;
use crate::workload::{Outcome, number};
use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_hub::topics::{TopicCaller, TopicCommand, TopicReply};
use tavern_wire::json::event::{PublishedEvent, stored};

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
            Some((known, event)) => format!("publish {} {node} {known}", event.topic),
            None if rng.chance(4) && has(topic) => format!("steal {topic} {node} {}", self.numbers),
            None => format!("publish {topic} {node} {}", self.numbers),
        };
        cluster.nodes[node].is_open().then_some(line)
    }

    pub fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome {
        let (["publish" | "steal", topic, node, event], now) = (words, cluster.now) else {
            return Err("not an action of a publisher".into());
        };
        let event_number: u64 = number(event)?;
        let (topic, node) = (number::<usize>(topic)?, number(node)?);
        let event = SentEvent { topic, node, retry_at: None, sent_at: now, accepted_at: now };
        let stolen = words[0] == "steal";
        match stolen {
            true => self.stolen.insert(event_number, event),
            false => self.open.insert(event_number, event),
        };
        self.send(cluster, event_number, event, stolen);
        Ok(())
    }

    fn send(&mut self, cluster: &mut Cluster, number: u64, event: SentEvent, stolen: bool) {
        let key = if stolen { (event.topic + 1) % TOPICS.len() } else { event.topic };
        let caller = TopicCaller { id: format!("key{key}").into(), admin: false };
        let body = stored("x", None, 0, &number.to_string());
        let new = PublishedEvent { id: Some(number.to_string()), body };
        let command =
            TopicCommand::Publish { topic: TOPICS[event.topic].into(), once: None, events: vec![new] };
        if !cluster.command_topic(event.node, number, caller, command) {
            self.put_off(cluster, number);
        }
    }

    /// To the next node, after a delay.
    fn put_off(&mut self, cluster: &Cluster, number: u64) {
        if let Some(event) = self.open.get_mut(&number) {
            event.node = (event.node + 1) % NODES;
            event.retry_at = Some(cluster.now + RETRY_MS);
        }
    }

    pub fn answered(
        &mut self,
        cluster: &Cluster,
        number: u64,
        reply: &Result<TopicReply, String>,
    ) -> Outcome {
        if self.stolen.contains_key(&number) {
            return match reply {
                Err(code) if code == "claimed" => {
                    self.claimed += 1;
                    Ok(())
                }
                Err(code) if code == "unavailable" => Ok(()),
                other => Err(format!("event {number} came with the key of another topic: {other:?}")),
            };
        }
        match reply {
            Ok(reply) => {
                let TopicReply::Published(published) = reply else {
                    return Err(format!("event {number} was answered {reply:?}"));
                };
                self.repeated += u64::from(published.duplicates > 0);
                if let Some(event) = self.open.remove(&number) {
                    let event = SentEvent { accepted_at: cluster.now, ..event };
                    self.accepted.entry(number).or_insert(event);
                }
                Ok(())
            }
            Err(code) if code == "unavailable" => {
                self.put_off(cluster, number);
                Ok(())
            }
            Err(code) => Err(format!("event {number} was refused: {code}")),
        }
    }

    /// Requests in flight at a node will not be answered.
    pub fn node_ended(&mut self, cluster: &Cluster, node: usize) {
        let lost = self.open.iter().filter(|(_, event)| event.node == node && event.retry_at.is_none());
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        lost.into_iter().for_each(|number| self.put_off(cluster, number));
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

    pub fn is_stolen(&self, number: u64) -> bool {
        self.stolen.contains_key(&number)
    }

    pub fn check_end(&self) -> Outcome {
        match self.open.first_key_value() {
            Some((number, event)) => Err(format!("event {number} was never answered: {event:?}")),
            None => Ok(()),
        }
    }
}
