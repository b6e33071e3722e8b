//! Channel history, in memory.

use super::page::page;
use crate::commit::HistoryHead;
use crate::history::{HistoryLimits, HistoryList, HistoryMessage, HistoryPage, HistorySummary};
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use tavern_domain::Time;

#[derive(Default)]
pub(super) struct Histories {
    channels: BTreeMap<Arc<str>, MemoryHistory>,
    by_expiry: BTreeMap<(Time, Arc<str>), ()>,
    /// Sum of all stored messages.
    bytes: u64,
}

#[derive(Default)]
struct MemoryHistory {
    head: HistoryHead,
    messages: BTreeMap<u64, HistoryMessage>,
    ids: HashMap<Arc<str>, u64>,
    /// Of the messages that are stored.
    bytes: u64,
}

impl Histories {
    pub fn head(&self, channel: &str) -> HistoryHead {
        self.channels.get(channel).map(|history| history.head).unwrap_or_default()
    }

    pub fn known(&self, channel: &str, id: &str) -> Option<u64> {
        self.channels.get(channel)?.ids.get(id).copied()
    }

    pub fn append(
        &mut self,
        channel: &Arc<str>,
        head: &HistoryHead,
        message: &HistoryMessage,
        keep: &HistoryLimits,
    ) {
        let history = self.channels.entry(channel.clone()).or_default();
        self.by_expiry.remove(&(history.head.expires_at, channel.clone()));
        self.by_expiry.insert((head.expires_at, channel.clone()), ());
        self.bytes -= history.bytes;
        history.add(head, message);
        history.trim(keep, message.at);
        self.bytes += history.bytes;
    }

    pub fn clear(&mut self, channel: &Arc<str>) {
        if let Some(history) = self.channels.remove(channel) {
            self.by_expiry.remove(&(history.head.expires_at, channel.clone()));
            self.bytes -= history.bytes;
        }
    }

    pub fn page(&self, channel: &str, after: u64, before: u64, newest: bool, limit: u32) -> HistoryPage {
        let history = self.channels.get(channel);
        let after = after.min(u64::MAX - 1);
        let within = (Bound::Excluded(after), Bound::Excluded(before.max(after + 1)));
        let messages = history
            .into_iter()
            .flat_map(|history| history.messages.range(within).map(|(_, message)| message.clone()));
        let bytes = |message: &HistoryMessage| message.body.len();
        let page = match newest {
            false => page(limit, bytes, messages),
            true => {
                let mut page = page(limit, bytes, messages.rev());
                page.rows.reverse();
                page
            }
        };
        HistoryPage { head: history.map(|history| history.head.position).unwrap_or_default(), page }
    }

    pub fn list(&self, after: Option<&(Time, Arc<str>)>, limit: u32) -> HistoryList {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let listed =
            self.by_expiry.range((from, Bound::Unbounded)).filter_map(|((expires_at, channel), ())| {
                let history = self.channels.get(channel)?;
                let (head, bytes) = (history.head.position, history.bytes);
                Some(HistorySummary { channel: channel.clone(), head, expires_at: *expires_at, bytes })
            });
        HistoryList { bytes: self.bytes, page: page(limit, |_| 64, listed) }
    }
}

impl MemoryHistory {
    fn add(&mut self, head: &HistoryHead, message: &HistoryMessage) {
        self.head = *head;
        self.bytes += message.stored_bytes();
        if let Some(id) = &message.id {
            self.ids.insert(id.clone(), message.offset);
        }
        self.messages.insert(message.offset, message.clone());
    }

    fn trim(&mut self, keep: &HistoryLimits, now: Time) {
        while let Some(oldest) = self.messages.first_entry()
            && *oldest.key() < self.head.position.offset
        {
            let too_many = self.head.position.offset - *oldest.key() >= keep.messages;
            let too_old = oldest.get().at + keep.ttl_ms <= now;
            if !too_many && !too_old && self.bytes <= keep.bytes {
                break;
            }
            let gone = oldest.remove();
            self.bytes -= gone.stored_bytes();
            if let Some(id) = &gone.id {
                self.ids.remove(id);
            }
        }
    }
}
