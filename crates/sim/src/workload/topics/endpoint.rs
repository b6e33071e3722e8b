//! The endpoint of a subscription: it accepts batches, is slow, fails, throttles, and refuses some events for good.
//! It judges what it gets. Must hold: events are numbered without holes, each under one number; a batch that is sent
//! again is identical; with one post at a time they arrive in order.

use super::{Outcome, TOPICS, is_poison};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_hub::topics::delivery::{AttemptEntry, AttemptRequest};

pub struct SimEndpoint {
    pub name: Arc<str>,
    /// By their index in `TOPICS`.
    pub topics: Vec<usize>,
    /// Concurrent posts; more than one: in no order.
    pub concurrency: u32,
    /// What arrived, by number: the batches with their bodies, and the events.
    batches: BTreeMap<u64, Vec<u8>>,
    pub events: BTreeMap<u64, u64>,
    reached: u64,
    /// The numbers of events that it has refused.
    refused: BTreeSet<u64>,
    pub repeated: u64,
}

impl SimEndpoint {
    pub fn new(name: &str, topics: &[usize], concurrency: u32) -> SimEndpoint {
        SimEndpoint {
            name: name.into(),
            topics: topics.to_vec(),
            concurrency,
            batches: BTreeMap::new(),
            events: BTreeMap::new(),
            reached: 0,
            refused: BTreeSet::new(),
            repeated: 0,
        }
    }

    /// It refuses a batch with an event that it cannot accept.
    pub fn refuses(&mut self, post: &AttemptRequest) -> bool {
        let poison: Vec<u64> =
            numbers(post).into_iter().filter(|(_, number)| is_poison(*number)).map(|(seq, _)| seq).collect();
        self.refused.extend(&poison);
        !poison.is_empty()
    }

    /// It accepts a batch, or all but its last event.
    pub fn take(&mut self, post: &AttemptRequest, whole: bool) -> Outcome {
        let body = post.body();
        let before = self.batches.insert(post.batch, body.clone());
        self.repeated += u64::from(before.is_some());
        if before.is_some_and(|before| before != body) {
            return Err(format!("batch {} came again, and is another", post.batch));
        }
        for event in &post.events {
            let AttemptEntry::Event { entry, .. } = event else {
                return Err(format!("events were dropped: {event:?}"));
            };
            if !self.topics.iter().any(|topic| *TOPICS[*topic] == *entry.topic) {
                return Err(format!("an event of topic {} came", entry.topic));
            }
        }
        let numbers = numbers(post);
        let taken = if whole { numbers.len() } else { numbers.len() - 1 };
        numbers[..taken].iter().try_for_each(|(seq, number)| self.take_event(*seq, *number))
    }

    fn take_event(&mut self, seq: u64, number: u64) -> Outcome {
        if self.events.get(&seq) == Some(&number) {
            // Once more.
            return Ok(());
        }
        if self.concurrency == 1 {
            let skipped = (self.reached + 1..seq).find(|skipped| !self.refused.contains(skipped));
            if seq <= self.reached || skipped.is_some() {
                return Err(format!("event {number} came as {seq} after {}", self.reached));
            }
            self.reached = seq;
        }
        if let Some(other) = self.events.insert(seq, number) {
            return Err(format!("events {other} and {number} came as {seq}"));
        }
        match self.events.iter().find(|(other, known)| **known == number && **other != seq) {
            Some((other, _)) => Err(format!("event {number} came as {other} and as {seq}")),
            None => Ok(()),
        }
    }
}

/// The numbers in the subscription and the events. An event contains its own number, independent of the log.
fn numbers(post: &AttemptRequest) -> Vec<(u64, u64)> {
    let number = |event: &AttemptEntry| match event {
        AttemptEntry::Event { seq, entry } => {
            let body: serde_json::Value = serde_json::from_slice(&entry.body).ok()?;
            Some((*seq, body["data"].as_u64()?))
        }
        AttemptEntry::Gap { .. } => None,
    };
    post.events.iter().filter_map(number).collect()
}
