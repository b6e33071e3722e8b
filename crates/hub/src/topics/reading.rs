//! A reader of a subscription's queue: the events of its topics in the log, with their numbers. Must hold: an event
//! gets the same number wherever the reader starts; a change of topics counts from its mark on.

use std::sync::Arc;
use tavern_domain::delivery::LogMark;
use tavern_domain::topic::SubscriptionMarks;
use tavern_store::{LogEntry, LogPage, Read};

#[derive(Clone, Debug)]
pub struct LogReading {
    marks: Arc<SubscriptionMarks>,
    at: LogMark,
}

/// The result of one read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadEvents {
    /// With their numbers.
    pub events: Vec<(u64, LogEntry)>,
    /// More events can be read now.
    pub more: bool,
}

impl LogReading {
    /// Starts after a position, with this many events of the subscription before it.
    pub fn new(marks: Arc<SubscriptionMarks>, after: LogMark) -> LogReading {
        LogReading { marks, at: after }
    }

    /// The current position.
    pub fn at(&self) -> LogMark {
        self.at
    }

    /// The next read. None: no event can follow, whatever is published.
    pub fn read(&mut self, limit: u32) -> Option<Read> {
        loop {
            let segment = self.marks.segment(self.at.position);
            match segment.until {
                _ if !segment.topics.is_empty() => {
                    return Some(Read::Log { topics: segment.topics, after: self.at.position, limit });
                }
                Some(until) => self.at.position = until,
                None => return None,
            }
        }
    }

    /// The answer to the last `read`.
    pub fn take(&mut self, stretch: LogPage) -> ReadEvents {
        let until = self.marks.segment(self.at.position).until;
        let mut events = Vec::with_capacity(stretch.page.rows.len());
        let mut passed = !stretch.page.more;
        for entry in stretch.page.rows {
            if until.is_some_and(|until| entry.position > until) {
                passed = true;
                break;
            }
            self.at = LogMark { seq: self.at.seq + 1, position: entry.position };
            events.push((self.at.seq, entry));
        }
        match until {
            // No more events can follow until the topics change.
            Some(until) if passed => self.at.position = self.at.position.max(until),
            _ => {}
        }
        ReadEvents { events, more: until.is_some() || !passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Time;
    use tavern_store::{LogEnds, Page};

    /// The store's answer: events of two topics in turn, from position 1 on.
    fn answer(read: &Read) -> LogPage {
        let Read::Log { topics, after, limit } = read else { panic!("{read:?}") };
        let of = |position: u64| if position % 2 == 1 { "a" } else { "b" };
        let entry = |position: u64| LogEntry {
            position,
            topic: of(position).into(),
            count: position.div_ceil(2),
            at: Time(0),
            id: None,
            body: Arc::from(*b"{}"),
        };
        let all: Vec<LogEntry> =
            (after + 1..=20).map(entry).filter(|entry| topics.contains(&entry.topic)).collect();
        let more = all.len() > *limit as usize;
        let rows = all.into_iter().take(*limit as usize).collect();
        LogPage { log: LogEnds { first: 1, head: 20, bytes: 0 }, page: Page { rows, more } }
    }

    fn walk(marks: &Arc<SubscriptionMarks>, from: LogMark, limit: u32) -> Vec<(u64, u64)> {
        let mut reading = LogReading::new(marks.clone(), from);
        let mut all = Vec::new();
        while let Some(read) = reading.read(limit) {
            let took = reading.take(answer(&read));
            all.extend(took.events.iter().map(|(seq, entry)| (*seq, entry.position)));
            if !took.more {
                break;
            }
        }
        all
    }

    #[test]
    fn numbers_are_the_same_wherever_and_however_it_is_read() {
        let mut marks = SubscriptionMarks::begin(4, [("a".into(), 2)].into());
        // Between two of its events: the last event read is before it.
        marks.change(10, &[("a".into(), 5)].into(), &[]);
        marks.change(12, &[("a".into(), 6), ("b".into(), 6)].into(), &["a".into(), "b".into()]);
        let marks = Arc::new(marks);
        let all = walk(&marks, LogMark { seq: 0, position: 4 }, 1_000);
        let seqs: Vec<u64> = all.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(seqs, (1..=all.len() as u64).collect::<Vec<_>>());
        let positions: Vec<u64> = all.iter().map(|(_, position)| *position).collect();
        assert_eq!(positions, [5, 7, 9, 13, 14, 15, 16, 17, 18, 19, 20]);
        for limit in 1..9 {
            assert_eq!(walk(&marks, LogMark { seq: 0, position: 4 }, limit), all, "in pages of {limit}");
        }
        for (at, (seq, position)) in all.iter().enumerate() {
            let rest = walk(&marks, LogMark { seq: *seq, position: *position }, 2);
            assert_eq!(rest, all[at + 1..], "after {position}");
        }
    }

    #[test]
    fn without_topics_nothing_will_come() {
        let marks = Arc::new(SubscriptionMarks::begin(4, [].into()));
        assert!(LogReading::new(marks, LogMark { seq: 0, position: 4 }).read(10).is_none());
    }
}
