//! Inboxes, in memory.

use super::page::page;
use crate::commit::{InboxCounts, RemovedMessages};
use crate::inbox::{InboxMessage, InboxPage};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct MemoryInboxes(BTreeMap<Arc<str>, MemoryInbox>);

#[derive(Default)]
struct MemoryInbox {
    counts: InboxCounts,
    messages: BTreeMap<u64, InboxMessage>,
}

impl MemoryInboxes {
    pub fn counts(&self, user: &str) -> InboxCounts {
        self.0.get(user).map(|inbox| inbox.counts).unwrap_or_default()
    }

    pub fn add(&mut self, user: &Arc<str>, message: &InboxMessage) {
        self.0.entry(user.clone()).or_default().messages.insert(message.n, message.clone());
    }

    pub fn remove(&mut self, user: &str, through: u64) -> RemovedMessages {
        let Some(inbox) = self.0.get_mut(user) else { return RemovedMessages::default() };
        let kept = inbox.messages.split_off(&through.saturating_add(1));
        let removed = std::mem::replace(&mut inbox.messages, kept);
        removed.iter().map(|(n, message)| (*n, message.body.len())).collect()
    }

    pub fn remove_oldest(&mut self, user: &str) -> RemovedMessages {
        let oldest = self.0.get_mut(user).and_then(|inbox| inbox.messages.pop_first());
        oldest.iter().map(|(n, message)| (*n, message.body.len())).collect()
    }

    pub fn set(&mut self, user: &Arc<str>, counts: &InboxCounts) {
        if counts.last == 0 {
            self.0.remove(user);
        } else {
            self.0.entry(user.clone()).or_default().counts = *counts;
        }
    }

    pub fn page(&self, user: &str, after: u64, limit: u32) -> InboxPage {
        let inbox = self.0.get(user);
        let messages = inbox.into_iter().flat_map(|inbox| {
            inbox
                .messages
                .range((Bound::Excluded(after), Bound::Unbounded))
                .map(|(_, message)| message.clone())
        });
        InboxPage {
            dropped: inbox.map_or(0, |inbox| inbox.counts.dropped),
            page: page(limit, |message| message.body.len(), messages),
        }
    }
}
