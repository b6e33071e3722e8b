//! Follows the log, the topics and the subscriptions in the store, commit by commit. Must hold: an event is in the log
//! once while its topic exists, published by the key that has the topic; nothing is dropped but by a limit; a
//! subscription gets exactly the events of its `ExpectedQueue`, or a gap for those that a limit has dropped.

use super::limits::LimitJudge;
use super::membership::Memberships;
use super::publisher::SimPublisher;
use super::queue::ExpectedQueue;
use super::{NAMES, Outcome, TOPICS, topic_index};
use crate::cluster::Cluster;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Document, DocumentKey, Found, LogEntry, Read, Versioned};
use tavern_wire::record::{self, DELIVERY, MARKS, SUBSCRIPTION, SubscriptionSettings, TOPIC, TopicRecord};

pub struct BrowsedEvent {
    /// The event itself contains it, independent of the log.
    pub number: u64,
    pub topic: usize,
    /// Counts how often its topic was created.
    life: u64,
    /// Counts the events of its topic since then.
    count: u64,
    pub at: Time,
    pub stored_at: Time,
    pub bytes: u64,
}

/// A topic as it is in the store.
#[derive(Default)]
struct TopicHistory {
    exists: bool,
    version: u64,
    /// When it was created, each time.
    created: Vec<Time>,
    /// Its publisher since these times.
    publishers: Vec<(Time, Option<Arc<str>>)>,
    /// Events since it was created.
    count: u64,
}

#[derive(Default)]
pub struct LogJudge {
    pub limits: LimitJudge,
    first: u64,
    head: u64,
    bytes: u64,
    /// All events that were ever added, by position.
    pub events: BTreeMap<u64, BrowsedEvent>,
    known: BTreeSet<(u64, usize, u64)>,
    topics: [TopicHistory; TOPICS.len()],
    queues: BTreeMap<&'static str, ExpectedQueue>,
    pub topics_created: u64,
}

impl LogJudge {
    /// The store has changed. Returns the subscriptions that were replayed, and the last event before that.
    pub fn observe(
        &mut self,
        cluster: &Cluster,
        publisher: &SimPublisher,
        memberships: &Memberships,
    ) -> Result<Vec<(&'static str, u64)>, String> {
        // A topic is created with its first event; subscriptions change in other commits.
        self.read_topics(cluster)?;
        self.read_log(cluster, publisher, memberships)?;
        let mut rewound = Vec::new();
        for name in NAMES {
            let to = self
                .read_subscription(cluster, name, memberships)
                .map_err(|error| format!("{name}: {error}"))?;
            rewound.extend(to.map(|to| (name, to)));
        }
        Ok(rewound)
    }

    fn read_topics(&mut self, cluster: &Cluster) -> Outcome {
        for (name, topic) in TOPICS.iter().zip(&mut self.topics) {
            let found = document(cluster, TOPIC, name);
            let version = found.as_ref().map_or(0, |found| found.version);
            if version == topic.version {
                continue;
            }
            let exists = found.is_some();
            let publisher = match &found {
                Some(found) => {
                    let topic: TopicRecord =
                        record::read(&found.row.body).map_err(|error| error.to_string())?;
                    topic.publisher
                }
                None => None,
            };
            if exists && !topic.exists {
                topic.created.push(cluster.now);
                topic.count = 0;
                self.topics_created += 1;
            }
            topic.publishers.push((cluster.now, publisher));
            (topic.exists, topic.version) = (exists, version);
        }
        Ok(())
    }

    fn read_log(
        &mut self,
        cluster: &Cluster,
        publisher: &SimPublisher,
        memberships: &Memberships,
    ) -> Outcome {
        loop {
            let read = Read::Log { topics: Vec::new(), after: self.head, limit: 1000 };
            let Found::Log(found) = cluster.peek(read) else { return Err("no log".into()) };
            for entry in &found.page.rows {
                self.append(cluster.now, entry, publisher, memberships)?;
            }
            if found.page.more {
                continue;
            }
            let trimmed = self.events.range(self.first..found.log.first.max(self.first));
            self.limits.note_size(cluster.now, self.bytes);
            self.limits.judge_trim(cluster.now, self.bytes, trimmed.map(|(_, event)| event))?;
            (self.first, self.bytes) = (found.log.first, found.log.bytes);
            return Ok(());
        }
    }

    fn append(
        &mut self,
        now: Time,
        entry: &LogEntry,
        publisher: &SimPublisher,
        memberships: &Memberships,
    ) -> Outcome {
        let bytes = entry.body.len() as u64;
        (self.head, self.bytes) = (entry.position, self.bytes + bytes);
        let Some(topic) = topic_index(&entry.topic) else {
            // About deliveries; nobody gets it, but the limits count it.
            let (number, topic, life, count) = (0, TOPICS.len(), 0, 0);
            let event = BrowsedEvent { number, topic, life, count, at: now, stored_at: entry.at, bytes };
            self.events.insert(entry.position, event);
            return Ok(());
        };
        let number = event_number(&entry.body).ok_or_else(|| format!("not an event: {entry:?}"))?;
        let history = &mut self.topics[topic];
        history.count += 1;
        let (life, count) = (history.created.len() as u64, history.count);
        let owner = history.publishers.last().and_then(|(_, publisher)| publisher.clone());
        if !history.exists || owner != publisher.key_of(number) {
            return Err(format!("event {number} is in topic {topic} of {owner:?}"));
        }
        if !self.known.insert((number, topic, life)) {
            return Err(format!("event {number} is in the log twice"));
        }
        for name in NAMES {
            let Some(queue) = self.queues.get_mut(name) else { continue };
            memberships.judge(name, topic, queue.has_topic(topic))?;
            if queue.has_topic(topic) {
                queue.push(entry.position);
            }
        }
        let event = BrowsedEvent { number, topic, life, count, at: now, stored_at: entry.at, bytes };
        self.events.insert(entry.position, event);
        Ok(())
    }

    fn read_subscription(
        &mut self,
        cluster: &Cluster,
        name: &'static str,
        memberships: &Memberships,
    ) -> Result<Option<u64>, String> {
        let Some(settings) = document(cluster, SUBSCRIPTION, name) else {
            self.queues.remove(name);
            return Ok(None);
        };
        let queue = self.queues.entry(name).or_default();
        if queue.settings_version != settings.version {
            queue.settings_version = settings.version;
            let settings: SubscriptionSettings =
                record::read(&settings.row.body).map_err(|error| error.to_string())?;
            let marks = document(cluster, MARKS, name).ok_or("it has no marks")?;
            let marks = record::read_marks(&marks.row.body).map_err(|error| error.to_string())?;
            let changed_after = marks.changes().last().map_or(0, |change| change.position);
            for event in queue.change(&settings, changed_after, &self.events) {
                if !memberships.may_change(name, event.topic, event.at) {
                    return Err(format!("a change of topics moved the earlier event {}", event.number));
                }
            }
        }
        let progress = document(cluster, DELIVERY, name).ok_or("it has no progress")?;
        if queue.progress_version == progress.version {
            return Ok(None);
        }
        queue.progress_version = progress.version;
        let progress = record::read_progress(&progress.row.body).map_err(|error| error.to_string())?;
        queue.advance(&progress, &self.events, self.first)
    }

    /// A subscription gets this event under this number.
    pub fn judge_event(&self, name: &str, seq: u64, number: u64, topic: &str) -> Outcome {
        let expected = self.queues.get(name).and_then(|queue| queue.position(seq));
        let expected = expected.and_then(|position| self.events.get(&position));
        match expected {
            Some(event) if event.number == number && TOPICS[event.topic] == topic => Ok(()),
            Some(event) => Err(format!("event {number} of {topic} came as {seq}, which is {}", event.number)),
            None => Err(format!("event {number} of {topic} came as {seq}, which it does not have")),
        }
    }

    /// A subscription is told that these events are lost.
    pub fn judge_gap(&self, name: &str, first: u64, last: u64) -> Outcome {
        let queue = self.queues.get(name).ok_or("there is no such subscription")?;
        match (first..=last).find(|seq| !queue.may_lack(*seq, self.first)) {
            Some(seq) => Err(format!("{first} to {last} came as a gap, and {seq} was not dropped")),
            None => Ok(()),
        }
    }

    /// Whether the log has dropped this event.
    pub fn is_trimmed(&self, name: &str, seq: u64) -> bool {
        let position = self.queues.get(name).and_then(|queue| queue.position(seq));
        position.is_some_and(|position| position < self.first)
    }

    /// How many events a subscription has had.
    pub fn queue_len(&self, name: &str) -> u64 {
        self.queues.get(name).map_or(0, ExpectedQueue::len)
    }

    pub fn backlog_dropped(&self) -> u64 {
        self.queues.values().map(ExpectedQueue::backlog_dropped).sum()
    }

    /// The key that has a topic now.
    pub fn publisher(&self, topic: usize) -> Option<&str> {
        self.topics[topic].publishers.last()?.1.as_deref()
    }

    /// Whether a topic had such a publisher at any time since then. A topic that does not exist has none.
    pub fn had_publisher(&self, topic: usize, since: Time, is: impl Fn(Option<&str>) -> bool) -> bool {
        let publishers = &self.topics[topic].publishers;
        let begun = publishers.iter().rposition(|(at, _)| *at < since);
        let during = &publishers[begun.unwrap_or(0)..];
        (begun.is_none() && is(None)) || during.iter().any(|(_, publisher)| is(publisher.as_deref()))
    }

    /// A publish that was sent at this time was answered: the event is new, or a duplicate, and has this number in its
    /// topic.
    pub fn judge_reply(&self, number: u64, topic: usize, sent_at: Time, new: bool, count: u64) -> Outcome {
        let life = self.topics[topic].created.iter().filter(|at| **at < sent_at).count() as u64;
        let fits = |event: &&BrowsedEvent| {
            (event.number, event.topic, event.count) == (number, topic, count)
                && if new { event.at >= sent_at } else { event.life >= life }
        };
        match self.events.values().rev().find(fits) {
            Some(_) => Ok(()),
            None => Err(format!("event {number} was answered as {count} of topic {topic}, new: {new}")),
        }
    }
}

fn document(cluster: &Cluster, kind: &str, name: &str) -> Option<Versioned<Document>> {
    match cluster.peek(Read::Document(DocumentKey::new(kind, name))) {
        Found::Document(found) => found,
        _ => None,
    }
}

/// The number that an event contains: its data, or the first of its data.
pub fn event_number(body: &[u8]) -> Option<u64> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    data_number(&body["data"])
}

pub fn data_number(data: &serde_json::Value) -> Option<u64> {
    data.as_u64().or_else(|| data[0].as_u64())
}
