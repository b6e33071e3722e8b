//! Topics: their names, and the marks from which the numbers of a subscription's events follow.
//! Must hold: the events of a subscription are numbered from 1 without holes, whatever its topics do; an event has the same
//! number every time it is read.

use crate::delivery::LogMark;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub const NAME_BYTES: usize = 64;
/// A reader notes its position after this many events of a subscription.
pub const NOTE_EVERY: u64 = 10_000;
/// The prefix of the server's own topics.
pub const RESERVED: &str = "tavern.";
pub const PRESENCE: &str = "tavern.presence";
pub const PARTIES: &str = "tavern.parties";
pub const DELIVERIES: &str = "tavern.deliveries";
/// Administrative actions. Only a key with the scope `admin` reads it.
pub const AUDIT: &str = "tavern.audit";

/// The prefix of topics with the webhooks of Pusher apps. Only a key with the scope `admin` reads them.
pub const PUSHER: &str = "tavern.pusher.";

/// All topics of the server.
pub const SYSTEM: [&str; 4] = [PRESENCE, PARTIES, DELIVERIES, AUDIT];

pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    (1..=NAME_BYTES).contains(&text.len()) && text.bytes().all(allowed) && text != "." && text != ".."
}

/// Whether other keys than those with the scope `admin` are kept out.
pub fn is_for_admins(name: &str) -> bool {
    name == AUDIT || name.starts_with(PUSHER)
}

pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED) || name == "tavern"
}

/// From this position of the log on, a subscription has these topics. `seq`: how many events it had received before;
/// `counts`: how many each topic had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicsChange {
    pub position: u64,
    pub seq: u64,
    pub counts: BTreeMap<Arc<str>, u64>,
}

/// The stored marks of one subscription, by position: where its topics changed (never empty), and positions that a reader
/// noted, so that a later one need not start from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionMarks {
    changes: Vec<TopicsChange>,
    notes: Vec<LogMark>,
}

/// A part of the log in which the topics stay the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSegment {
    pub topics: Vec<Arc<str>>,
    /// Its last position. `None`: it continues.
    pub until: Option<u64>,
}

impl SubscriptionMarks {
    /// The marks of a new subscription.
    pub fn begin(position: u64, counts: BTreeMap<Arc<str>, u64>) -> SubscriptionMarks {
        SubscriptionMarks { changes: [TopicsChange { position, seq: 0, counts }].into(), notes: Vec::new() }
    }

    /// From storage. `None`: they are not valid.
    pub fn restore(changes: Vec<TopicsChange>, notes: Vec<LogMark>) -> Option<SubscriptionMarks> {
        let changed =
            |pair: &[TopicsChange]| pair[0].position <= pair[1].position && pair[0].seq <= pair[1].seq;
        let noted = |pair: &[LogMark]| pair[0].position <= pair[1].position && pair[0].seq <= pair[1].seq;
        let ordered = changes.windows(2).all(changed) && notes.windows(2).all(noted);
        (!changes.is_empty() && ordered).then_some(SubscriptionMarks { changes, notes })
    }

    pub fn changes(&self) -> &[TopicsChange] {
        &self.changes
    }

    pub fn notes(&self) -> &[LogMark] {
        &self.notes
    }

    /// The current topics.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.last().counts.keys()
    }

    fn last(&self) -> &TopicsChange {
        &self.changes[self.changes.len() - 1]
    }

    /// The number of the last event up to the head of the log, where the topics have these counts.
    pub fn seq_at_head(&self, counts: &BTreeMap<Arc<str>, u64>) -> u64 {
        let last = self.last();
        let had =
            |topic: &Arc<str>, before: u64| counts.get(topic).map_or(0, |now| now.saturating_sub(before));
        last.seq + last.counts.iter().map(|(topic, before)| had(topic, *before)).sum::<u64>()
    }

    /// The topics change at this position, the head of the log. `counts`: those of the old and the new topics.
    pub fn change(&mut self, position: u64, counts: &BTreeMap<Arc<str>, u64>, topics: &[Arc<str>]) {
        let seq = self.seq_at_head(counts);
        let counts = topics.iter().map(|topic| (topic.clone(), counts.get(topic).copied().unwrap_or(0)));
        let change = TopicsChange { position, seq, counts: counts.collect() };
        // Two changes at one position: the topics in between had no events.
        self.changes.retain(|known| known.position != change.position);
        self.changes.push(change);
    }

    /// A reader has reached this mark. True: it is far from the last known one, and was noted.
    pub fn note(&mut self, reached: LogMark) -> bool {
        let known = self.notes.last().map_or(0, |note| note.seq).max(self.last().seq.min(reached.seq));
        let far = reached.seq >= known + NOTE_EVERY;
        if far {
            self.notes.push(reached);
        }
        far
    }

    /// The part of the log after a position.
    pub fn segment(&self, after: u64) -> LogSegment {
        let next = self.changes.iter().position(|change| change.position > after);
        let at = next.unwrap_or(self.changes.len()).saturating_sub(1);
        let topics = self.changes[at].counts.keys().cloned().collect();
        LogSegment { topics, until: self.changes.get(at + 1).map(|change| change.position) }
    }

    /// The last known mark before an event; the oldest if all are later.
    pub fn before(&self, seq: u64) -> LogMark {
        self.latest(|mark| mark.seq < seq)
    }

    /// The last known mark at or before a position; the oldest if all are later.
    pub fn at(&self, position: u64) -> LogMark {
        self.latest(|mark| mark.position <= position)
    }

    fn latest(&self, is_before: impl Fn(&LogMark) -> bool) -> LogMark {
        let place = |change: &TopicsChange| LogMark { seq: change.seq, position: change.position };
        let changes = self.changes.iter().map(place);
        let known = changes.clone().chain(self.notes.iter().copied()).filter(is_before);
        let oldest = place(&self.changes[0]);
        known.max_by_key(|mark| (mark.seq, mark.position)).unwrap_or(oldest)
    }

    /// The log starts at this position: drops older marks, except the last of them.
    pub fn forget(&mut self, first: u64) {
        let old = self.changes.iter().filter(|change| change.position < first).count();
        self.changes.drain(..old.saturating_sub(1));
        self.notes.retain(|note| note.position >= first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn counts(pairs: &[(&str, u64)]) -> BTreeMap<Arc<str>, u64> {
        pairs.iter().map(|(topic, count)| (Arc::from(*topic), *count)).collect()
    }

    fn topics(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn topic_names_are_lower_case_letters_digits_and_three_signs() {
        for good in ["a", "orders", "a.b-c_d.0", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "A", "a b", "ä", "a/b", "a%", ".", "..", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_reserved("tavern.presence") && is_reserved("tavern.x") && is_reserved("tavern"));
        assert!(!is_reserved("taverns") && !is_reserved("my.tavern."));
    }

    #[test]
    fn event_numbers_follow_from_topic_counts() {
        let mut marks = SubscriptionMarks::begin(10, counts(&[("a", 4), ("b", 0)]));
        assert_eq!(marks.seq_at_head(&counts(&[("a", 4), ("b", 0)])), 0);
        assert_eq!(marks.seq_at_head(&counts(&[("a", 6), ("b", 1), ("c", 9)])), 3);
        marks.change(20, &counts(&[("a", 6), ("b", 1), ("c", 9)]), &topics(&["b", "c"]));
        assert_eq!(marks.before(9).seq, 3);
        assert_eq!(
            marks.seq_at_head(&counts(&[("a", 60), ("b", 2), ("c", 10)])),
            5,
            "a does not count any more"
        );
    }

    #[test]
    fn each_segment_has_its_own_topics() {
        let mut marks = SubscriptionMarks::begin(10, counts(&[("a", 0)]));
        marks.change(20, &counts(&[("a", 2)]), &topics(&["b"]));
        marks.change(30, &counts(&[("b", 1)]), &[]);
        let segment = |after| marks.segment(after);
        assert_eq!(segment(10), LogSegment { topics: topics(&["a"]), until: Some(20) });
        assert_eq!(segment(19), LogSegment { topics: topics(&["a"]), until: Some(20) });
        assert_eq!(segment(20), LogSegment { topics: topics(&["b"]), until: Some(30) });
        assert_eq!(segment(99), LogSegment { topics: vec![], until: None });
        assert_eq!(
            segment(3),
            LogSegment { topics: topics(&["a"]), until: Some(20) },
            "before its beginning"
        );
    }

    #[test]
    fn replay_starts_at_the_last_mark_before_it() {
        let mut marks = SubscriptionMarks::begin(10, counts(&[("a", 0)]));
        let mark = |position, seq| LogMark { position, seq };
        assert!(!marks.note(mark(500, 9_999)), "not far enough");
        assert!(marks.note(mark(500, 10_000)));
        assert!(!marks.note(mark(800, 12_000)));
        assert!(marks.note(mark(900, 20_000)));
        assert_eq!((marks.before(1).seq, marks.before(10_000).seq, marks.before(10_001).seq), (0, 0, 10_000));
        assert_eq!((marks.at(499).seq, marks.at(500).seq, marks.at(1).seq), (0, 10_000, 0));
        marks.forget(501);
        assert_eq!((marks.changes().len(), marks.notes()), (1, &[mark(900, 20_000)][..]));
        assert_eq!(marks.seq_at_head(&counts(&[("a", 20_001)])), 20_001, "a note does not change the count");
    }

    #[test]
    fn forgetting_keeps_the_marks_from_which_the_rest_is_numbered() {
        let mut marks = SubscriptionMarks::begin(10, counts(&[("a", 0)]));
        marks.change(20, &counts(&[("a", 2)]), &topics(&["b"]));
        marks.change(30, &counts(&[("b", 1)]), &topics(&["c"]));
        let forgotten = |first| {
            let mut marks = marks.clone();
            marks.forget(first);
            marks.changes().iter().map(|change| change.position).collect::<Vec<_>>()
        };
        assert_eq!(forgotten(10), [10, 20, 30]);
        assert_eq!(forgotten(20), [10, 20, 30], "an event at 20 is still numbered from 10");
        assert_eq!(forgotten(21), [20, 30]);
        assert_eq!(forgotten(99), [30]);
    }

    #[test]
    fn stored_marks_are_restored_only_in_order() {
        let change = |position, seq| TopicsChange { position, seq, counts: counts(&[("a", seq)]) };
        let mark = |position, seq| LogMark { position, seq };
        for (changes, notes, valid) in [
            (vec![change(10, 0)], vec![], true),
            (vec![change(10, 0), change(20, 5)], vec![mark(12, 1), mark(15, 2)], true),
            (vec![change(10, 0), change(20, 0)], vec![mark(12, 1), mark(12, 1)], true),
            (vec![], vec![], false),
            (vec![change(20, 0), change(10, 5)], vec![], false),
            (vec![change(10, 5), change(20, 0)], vec![], false),
            (vec![change(10, 0)], vec![mark(15, 1), mark(12, 2)], false),
            (vec![change(10, 0)], vec![mark(12, 2), mark(15, 1)], false),
        ] {
            let restored = SubscriptionMarks::restore(changes.clone(), notes.clone());
            let read = restored.map(|marks| (marks.changes().to_vec(), marks.notes().to_vec()));
            assert_eq!(read, valid.then_some((changes, notes)));
        }
    }

    #[test]
    fn two_changes_at_one_position_leave_one_mark() {
        let mut marks = SubscriptionMarks::begin(10, counts(&[("a", 5)]));
        marks.change(10, &counts(&[("a", 5), ("b", 7)]), &topics(&["b"]));
        assert_eq!(marks.changes(), [TopicsChange { position: 10, seq: 0, counts: counts(&[("b", 7)]) }]);
    }
}
