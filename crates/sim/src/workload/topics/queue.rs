//! The events that a subscription must get: those that were added to its topics while it had them, numbered from 1
//! without holes. Knows from the store which topics it has and what was dropped.

use super::log::BrowsedEvent;
use super::topic_index;
use crate::workload::Outcome;
use std::collections::{BTreeMap, BTreeSet};
use tavern_domain::delivery::DeliveryProgress;
use tavern_wire::record::SubscriptionSettings;

#[derive(Default)]
pub struct ExpectedQueue {
    pub settings_version: u64,
    pub progress_version: u64,
    topics: BTreeSet<usize>,
    max_backlog_bytes: u64,
    /// Their positions in the log.
    events: Vec<u64>,
    sealed: u64,
    /// The last event that is in a batch, delivered or dropped.
    reached: u64,
    /// Events above the limit of the subscription, by number.
    dropped: BTreeSet<u64>,
}

impl ExpectedQueue {
    pub fn has_topic(&self, topic: usize) -> bool {
        self.topics.contains(&topic)
    }

    /// How many events it has had.
    pub fn len(&self) -> u64 {
        self.events.len() as u64
    }

    pub fn push(&mut self, position: u64) {
        self.events.push(position);
    }

    /// The position of an event in the log.
    pub fn position(&self, seq: u64) -> Option<u64> {
        self.events.get(usize::try_from(seq).ok()?.checked_sub(1)?).copied()
    }

    /// Whether the log or the limit of the subscription has dropped this event.
    pub fn may_lack(&self, seq: u64, log_first: u64) -> bool {
        self.dropped.contains(&seq) || self.position(seq).is_some_and(|position| position < log_first)
    }

    pub fn backlog_dropped(&self) -> u64 {
        self.dropped.len() as u64
    }

    /// Its settings were written. Topics change at a position that was read before: the events since then were added
    /// during the change. Returns those that it gets or loses by that.
    pub fn change<'a>(
        &mut self,
        settings: &SubscriptionSettings,
        changed_after: u64,
        log: &'a BTreeMap<u64, BrowsedEvent>,
    ) -> Vec<&'a BrowsedEvent> {
        self.max_backlog_bytes = settings.max_backlog_bytes;
        let before = std::mem::replace(
            &mut self.topics,
            settings.topics.iter().filter_map(|topic| topic_index(topic)).collect(),
        );
        if before == self.topics {
            return Vec::new();
        }
        self.events.retain(|position| *position <= changed_after);
        let since: Vec<_> = log.range(changed_after + 1..).collect();
        self.events
            .extend(since.iter().filter(|(_, event)| self.topics.contains(&event.topic)).map(|(at, _)| **at));
        let moved = |topic| before.contains(topic) != self.topics.contains(topic);
        since.into_iter().map(|(_, event)| event).filter(|event| moved(&event.topic)).collect()
    }

    /// Its progress was written. Returns the last event before a replay, if it is one.
    pub fn advance(
        &mut self,
        progress: &DeliveryProgress,
        log: &BTreeMap<u64, BrowsedEvent>,
        log_first: u64,
    ) -> Result<Option<u64>, String> {
        let sealed = progress.sealed.seq;
        let rewound = (sealed < self.sealed).then_some(sealed);
        let before = rewound.unwrap_or(self.reached.max(sealed));
        (self.sealed, self.reached) = (sealed, progress.reached().seq);
        self.judge_backlog(before, log, log_first)?;
        Ok(rewound)
    }

    /// Everything between these was dropped now.
    fn judge_backlog(&mut self, before: u64, log: &BTreeMap<u64, BrowsedEvent>, log_first: u64) -> Outcome {
        let kept = |seq: &u64| self.position(*seq).is_some_and(|position| position >= log_first);
        let dropped: Vec<u64> = (before + 1..=self.reached.min(self.len())).filter(kept).collect();
        if self.reached <= self.sealed || dropped.is_empty() {
            return Ok(());
        }
        let bytes = |seq: u64| self.position(seq).and_then(|at| log.get(&at)).map_or(0, |event| event.bytes);
        let waiting: u64 = (before + 1..=self.len()).map(bytes).sum();
        if self.max_backlog_bytes == 0 || waiting <= self.max_backlog_bytes {
            let limit = self.max_backlog_bytes;
            return Err(format!("{dropped:?} were dropped; {waiting} bytes wait, {limit} may"));
        }
        self.dropped.extend(dropped);
        Ok(())
    }
}
