//! The batch being filled: events that were read from the log and are in no batch yet. A cache: the log has them all.
//! Must hold: it holds no more than one batch needs; a body never exceeds `max_bytes` unless one entry alone does; the age
//! counts from the first event's acceptance, whatever comes later.

use super::{BatchReason, DeliveryRules, QueuedEvent};
use crate::time::Time;
use alloc::collections::VecDeque;

/// The largest encoded gap record, with its separator.
pub const GAP_BYTES: u32 = 192;

#[derive(Clone, Debug, Default)]
pub(super) struct OpenBatch {
    /// Consecutive by seq.
    items: VecDeque<QueuedEvent>,
    bytes: u64,
}

impl OpenBatch {
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn first(&self) -> Option<&QueuedEvent> {
        self.items.front()
    }

    pub fn last(&self) -> Option<&QueuedEvent> {
        self.items.back()
    }

    pub fn push(&mut self, item: QueuedEvent) {
        assert!(
            self.last().is_none_or(|last| last.seq + 1 == item.seq),
            "the events of a subscription are consecutive"
        );
        self.bytes += u64::from(item.bytes);
        self.items.push_back(item);
    }

    pub fn pop(&mut self) -> Option<QueuedEvent> {
        let item = self.items.pop_front()?;
        self.bytes -= u64::from(item.bytes);
        Some(item)
    }

    pub fn clear(&mut self) {
        *self = OpenBatch::default();
    }

    /// How many more entries and bytes the batch may take. `None`: it is full. `gap`: its first entry is a gap.
    pub fn room(&self, rules: &DeliveryRules, gap: bool) -> Option<(u32, u64)> {
        let events = rules.entries().checked_sub(self.entries(gap)).filter(|&events| events > 0)?;
        let bytes = rules.room().checked_sub(self.bytes(gap)).filter(|&bytes| bytes > 0);
        // A single entry always fits, however large it is.
        let bytes = bytes.or((self.entries(gap) == 0).then_some(1))?;
        Some((u32::try_from(events).unwrap_or(u32::MAX), bytes))
    }

    /// If the batch is ready: how many items it takes after the gap, and why. `gap`: since when there is one.
    pub fn ready(&self, now: Time, rules: &DeliveryRules, gap: Option<Time>) -> Option<(usize, BatchReason)> {
        if self.entries(gap.is_some()) > 0 && self.room(rules, gap.is_some()).is_none() {
            return Some(self.fill(rules, gap.is_some()));
        }
        (now >= self.deadline(rules, gap)?).then_some((self.items.len(), BatchReason::Age))
    }

    /// When the batch is ready by its age. `None`: it is empty.
    pub fn deadline(&self, rules: &DeliveryRules, gap: Option<Time>) -> Option<Time> {
        let oldest = gap.or_else(|| self.first().map(|item| item.accepted))?;
        Some(oldest + rules.timeout_ms)
    }

    fn fill(&self, rules: &DeliveryRules, gap: bool) -> (usize, BatchReason) {
        let (mut entries, mut bytes) = if gap { (1, u64::from(GAP_BYTES)) } else { (0, 0) };
        for (taken, item) in self.items.iter().enumerate() {
            bytes += u64::from(item.bytes);
            if entries >= rules.entries() {
                return (taken, BatchReason::Full);
            }
            if entries > 0 && bytes > rules.room() {
                return (taken, BatchReason::Bytes);
            }
            entries += 1;
        }
        (self.items.len(), if entries >= rules.entries() { BatchReason::Full } else { BatchReason::Bytes })
    }

    fn entries(&self, gap: bool) -> u64 {
        self.items.len() as u64 + u64::from(gap)
    }

    fn bytes(&self, gap: bool) -> u64 {
        self.bytes + if gap { u64::from(GAP_BYTES) } else { 0 }
    }
}
