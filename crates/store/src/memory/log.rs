//! The log of topics, in memory.

use super::page::page;
use crate::limits;
use crate::log::{LogEnds, LogEntry, LogPage, TopicPage, Trim};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct EventLog {
    /// By position.
    entries: BTreeMap<u64, LogEntry>,
    head: u64,
    bytes: u64,
    topics: BTreeMap<Arc<str>, TopicLog>,
    /// By topic and id: position and count.
    ids: BTreeMap<(Arc<str>, Arc<str>), (u64, u64)>,
}

#[derive(Default)]
struct TopicLog {
    count: u64,
    /// Of the events that are stored.
    positions: BTreeMap<u64, ()>,
}

impl EventLog {
    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn count(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |topic| topic.count)
    }

    pub fn known(&self, topic: &Arc<str>, id: &Arc<str>) -> Option<(u64, u64)> {
        self.ids.get(&(topic.clone(), id.clone())).copied()
    }

    pub fn append(&mut self, entry: &LogEntry) {
        let topic = self.topics.entry(entry.topic.clone()).or_default();
        topic.count = entry.count;
        topic.positions.insert(entry.position, ());
        if let Some(id) = &entry.id {
            self.ids.insert((entry.topic.clone(), id.clone()), (entry.position, entry.count));
        }
        (self.head, self.bytes) = (entry.position, self.bytes + entry.body.len() as u64);
        self.entries.insert(entry.position, entry.clone());
    }

    pub fn trim(&mut self, trim: &Trim) {
        while let Some(first) = self.entries.first_entry()
            && *first.key() < trim.before
        {
            let gone = first.remove();
            self.bytes -= gone.body.len() as u64;
            if let Some(topic) = self.topics.get_mut(&gone.topic) {
                topic.positions.remove(&gone.position);
            }
        }
        self.ids.retain(|_, (position, _)| *position >= trim.ids_before);
    }

    pub fn log(&self) -> LogEnds {
        let first = self.entries.first_key_value().map_or(self.head + 1, |(position, _)| *position);
        LogEnds { first, head: self.head, bytes: self.bytes }
    }

    pub fn page(&self, topics: &[Arc<str>], after: u64, limit: u32) -> LogPage {
        let from = (Bound::Excluded(after), Bound::Unbounded);
        let mut positions: Vec<u64> = match topics {
            [] => self.entries.range(from).map(|(position, _)| *position).take(page_and_one(limit)).collect(),
            _ => topics
                .iter()
                .filter_map(|topic| self.topics.get(topic))
                .flat_map(|topic| {
                    topic.positions.range(from).map(|(position, ())| *position).take(page_and_one(limit))
                })
                .collect(),
        };
        positions.sort_unstable();
        positions.dedup();
        let entries = positions.iter().filter_map(|position| self.entries.get(position)).cloned();
        LogPage { log: self.log(), page: page(limit, |entry| entry.body.len(), entries) }
    }

    pub fn topics(&self, names: &[Arc<str>], after: Option<&Arc<str>>, limit: u32) -> TopicPage {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let topics = self.topics.range::<Arc<str>, _>((from, Bound::Unbounded));
        let wanted = topics.filter(|(name, _)| names.is_empty() || names.contains(name));
        let counts = wanted.map(|(name, topic)| (name.clone(), topic.count));
        TopicPage { log: self.log(), page: page(limit, |_| 64, counts) }
    }
}

/// The size of a page plus one, which shows whether there is more.
fn page_and_one(limit: u32) -> usize {
    limit.clamp(1, limits::PAGE_ROWS) as usize + 1
}
