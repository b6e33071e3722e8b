//! Counts the bytes that wait for each subscription with its own budget, incrementally as the log grows.
//! Decides where the cursor of a subscription must move; `budgets` moves it. Must hold: nothing is dropped within the
//! budget; a count has a bounded number of parts; events are counted again when the topics change.

use std::collections::VecDeque;
use tavern_domain::delivery::LogMark;

/// A budget is counted in this many parts: the cursor moves to the end of one.
const PARTS: u64 = 32;

/// The waiting bytes, in parts, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    /// The version of the marks with which it was counted.
    marks: u64,
    /// The start of the first part.
    from: LogMark,
    parts: VecDeque<BacklogPart>,
}

#[derive(Clone, Copy, Debug)]
struct BacklogPart {
    /// Its last event.
    last: LogMark,
    bytes: u64,
}

impl Backlog {
    /// Counting begins after the events that are in batches or dropped.
    pub fn new(marks: u64, reached: LogMark) -> Backlog {
        Backlog { marks, from: reached, parts: VecDeque::new() }
    }

    /// Whether the count can continue from here: with other marks the same events may have other numbers, and after a
    /// replay more events wait than were counted.
    pub fn continues(&self, marks: u64, reached: LogMark) -> bool {
        self.marks == marks && self.from.seq <= reached.seq && reached.seq <= self.counted().seq
    }

    /// The position up to which events are counted.
    pub fn counted(&self) -> LogMark {
        self.parts.back().map_or(self.from, |part| part.last)
    }

    /// Adds the next event.
    pub fn count(&mut self, at: LogMark, bytes: u64, budget: u64) {
        match self.parts.back_mut() {
            Some(part) if part.bytes + bytes <= budget / PARTS => {
                *part = BacklogPart { last: at, bytes: part.bytes + bytes };
            }
            _ => self.parts.push_back(BacklogPart { last: at, bytes }),
        }
    }

    /// Everything up to here was delivered or dropped.
    pub fn reach(&mut self, reached: LogMark) {
        while self.parts.front().is_some_and(|part| part.last.seq <= reached.seq) {
            self.from = self.parts.pop_front().map_or(self.from, |part| part.last);
        }
    }

    /// Where the cursor must move, if more waits than the budget allows. A partly delivered part does not count.
    pub fn over(&self, reached: LogMark, budget: u64) -> Option<LogMark> {
        let begun = self.from.seq < reached.seq;
        let skipped = self.parts.front().filter(|_| begun).map_or(0, |part| part.bytes);
        let mut waits: u64 = self.parts.iter().map(|part| part.bytes).sum::<u64>() - skipped;
        if waits <= budget {
            return None;
        }
        let mut through = None;
        for (at, part) in self.parts.iter().enumerate() {
            if waits <= budget / 5 * 4 {
                break;
            }
            through = Some(part.last);
            if at > 0 || !begun {
                waits -= part.bytes;
            }
        }
        through
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seq: u64) -> LogMark {
        LogMark { seq, position: seq * 10 }
    }

    #[test]
    fn within_the_budget_nothing_goes_and_beyond_it_four_fifths_stay() {
        let mut backlog = Backlog::new(7, mark(5));
        (6..=105).for_each(|seq| backlog.count(mark(seq), 10, 1_000));
        assert_eq!(backlog.over(mark(5), 1_000), None);
        backlog.count(mark(106), 10, 1_000);
        let through = backlog.over(mark(5), 1_000).unwrap();
        let left = 106 - through.seq;
        assert!((78..=80).contains(&left), "{left} of 101 stay");
        assert_eq!(through, mark(through.seq), "the end of an event");
    }

    #[test]
    fn what_was_taken_meanwhile_does_not_count() {
        let mut backlog = Backlog::new(7, mark(0));
        (1..=110).for_each(|seq| backlog.count(mark(seq), 10, 1_000));
        assert!(backlog.over(mark(0), 1_000).is_some());
        backlog.reach(mark(11));
        assert_eq!(backlog.over(mark(11), 1_000), None);
        assert!(backlog.continues(7, mark(11)) && backlog.continues(7, mark(110)));
        assert!(!backlog.continues(8, mark(11)), "other marks");
        assert!(!backlog.continues(7, mark(2)), "a replay");
        assert!(!backlog.continues(7, mark(111)), "further than was counted");
    }

    #[test]
    fn a_long_count_has_few_parts() {
        let mut backlog = Backlog::new(7, mark(0));
        (1..=100_000).for_each(|seq| backlog.count(mark(seq), 1, 100_000));
        assert!(backlog.parts.len() <= 33, "{}", backlog.parts.len());
        let mut large = Backlog::new(7, mark(0));
        large.count(mark(1), 5_000, 1_000);
        assert_eq!(large.over(mark(0), 1_000), Some(mark(1)), "one event alone may be too much");
    }
}
