//! Messages of channels with history that a mailbox dropped before its reader acknowledged them: which numbers they had, and
//! where they are in the history. A reader that comes back gets them from the store instead of a gap.
//! Must hold: bounded; what is forgotten here becomes an ordinary gap.

use crate::event::Event;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tavern_domain::HistoryPosition;
use tavern_store::body::DroppedRun;

/// Messages of one channel that follow each other are one run. A session that hears many channels in turn has many.
const RUNS_MAX: usize = 64;

#[derive(Clone, Debug, Default)]
pub struct DroppedHistory {
    runs: VecDeque<DroppedRun>,
}

/// What can be read again in the place of a gap.
#[derive(Debug, PartialEq, Eq)]
pub struct HealedGap {
    pub from: u64,
    pub to: u64,
    /// The gap consisted of such messages only.
    pub is_closed: bool,
    /// For each channel the position after which its reader goes on.
    pub channels: Vec<(Arc<str>, HistoryPosition)>,
}

impl DroppedHistory {
    pub fn restore(runs: impl IntoIterator<Item = DroppedRun>) -> DroppedHistory {
        let runs = runs.into_iter().filter(|run| run.seq > 0 && run.count > 0 && run.position.offset > 0);
        DroppedHistory { runs: runs.take(RUNS_MAX).collect() }
    }

    pub fn runs(&self) -> impl Iterator<Item = &DroppedRun> {
        self.runs.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The event with this number is dropped.
    pub fn note(&mut self, seq: u64, event: &Event) {
        let (Some(stamp), Some(channel)) = (event.history(), event.channel()) else { return };
        let follows = |run: &&mut DroppedRun| {
            let next = HistoryPosition { offset: run.position.offset + run.count, ..run.position };
            run.channel.as_bytes() == channel && run.seq + run.count == seq && next == stamp.position
        };
        if let Some(run) = self.runs.back_mut().filter(follows) {
            run.count += 1;
            return;
        }
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        let position = stamp.position;
        self.runs.push_back(DroppedRun { seq, count: 1, channel: channel.into(), position });
    }

    /// The reader has everything up to `seq`.
    pub fn acknowledge(&mut self, seq: u64) {
        while self.runs.front().is_some_and(|run| run.seq + run.count <= seq + 1) {
            self.runs.pop_front();
        }
    }

    /// What can be read again in the place of a gap. What was dropped before it is kept: its reader may go back further.
    pub fn heal(&mut self, from: u64, to: u64) -> HealedGap {
        let mut covered = 0;
        let mut channels: BTreeMap<Arc<str>, HistoryPosition> = BTreeMap::new();
        for run in &self.runs {
            let (begin, end) = (run.seq.max(from), (run.seq + run.count - 1).min(to));
            if begin > end {
                continue;
            }
            covered += end - begin + 1;
            let offset = run.position.offset + (begin - run.seq) - 1;
            let before = HistoryPosition { offset, ..run.position };
            channels
                .entry(run.channel.clone())
                .and_modify(|known| *known = before.min(*known))
                .or_insert(before);
        }
        let is_closed = covered == to - from + 1;
        self.runs.retain_mut(|run| {
            run.count = run.count.min(from.saturating_sub(run.seq));
            run.count > 0
        });
        HealedGap { from, to, is_closed, channels: channels.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventMemory, Message, Namespace};
    use crate::settings::SlowReader;
    use std::rc::Rc;
    use tavern_domain::{HistoryStamp, Time};

    fn at(offset: u64) -> HistoryPosition {
        HistoryPosition { epoch: 7, offset }
    }

    fn dropped(events: &[(u64, &str, u64)]) -> DroppedHistory {
        let pool = Rc::new(EventMemory::default());
        let mut dropped = DroppedHistory::default();
        for (seq, channel, offset) in events {
            let stamp = HistoryStamp { position: at(*offset), at: Time(1) };
            let message = Message::new(Namespace::Channel, channel.as_bytes(), b"x", true, None);
            let message = Arc::new(message.with_history(Some(stamp), true));
            dropped.note(*seq, &Event::message(message, Time(1), SlowReader::Gap, &pool));
        }
        dropped
    }

    #[test]
    fn gap_of_messages_with_history_is_closed() {
        let events = [(4, "chat#1", 10), (5, "chat#1", 11), (6, "chat#2", 3), (7, "chat#1", 12)];
        assert!(!dropped(&events).heal(3, 7).is_closed, "an event that was no such message is missing");
        let mut dropped = dropped(&events);
        assert_eq!(dropped.runs.len(), 3);
        let healed = dropped.heal(5, 7);
        assert!(healed.is_closed);
        assert_eq!(healed.channels, [("chat#1".into(), at(10)), ("chat#2".into(), at(2))]);
        assert_eq!(
            dropped.heal(4, 4).channels,
            [("chat#1".into(), at(9))],
            "what was dropped before is kept"
        );
        assert!(dropped.is_empty());
    }

    #[test]
    fn acknowledged_messages_are_forgotten() {
        let mut dropped = dropped(&[(4, "chat#1", 10), (5, "chat#1", 11), (7, "chat#1", 12)]);
        dropped.acknowledge(4);
        assert_eq!(dropped.runs.len(), 2);
        dropped.acknowledge(6);
        assert_eq!(dropped.runs.len(), 1);
        dropped.acknowledge(7);
        assert!(dropped.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let many: Vec<(u64, &str, u64)> = (1..=200).map(|n| (2 * n, "chat#1", n)).collect();
        assert_eq!(dropped(&many).runs.len(), RUNS_MAX);
    }
}
