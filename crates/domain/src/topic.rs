//! Topics: their names, and the marks from which a subscription's numbers follow. Knows no log and no store.
//! Must hold: a subscription's numbers count from 1 without holes over what it receives, whatever its topics do; the same
//! event has the same number at every reading.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub const NAME_BYTES: usize = 64;
/// Topics that belong to the server begin with it.
pub const RESERVED: &str = "tavern.";
pub const PRESENCE: &str = "tavern.presence";
pub const PARTIES: &str = "tavern.parties";
pub const DELIVERIES: &str = "tavern.deliveries";

pub fn is_name(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte);
    (1..=NAME_BYTES).contains(&text.len()) && text.bytes().all(letter)
}

pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED) || name == "tavern"
}

/// From this position of the log on a subscription has these topics; so many events it had been given before, so many each
/// topic had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub position: u64,
    pub seq: u64,
    pub counts: BTreeMap<Arc<str>, u64>,
}

/// All marks of one subscription that are kept, by position. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks(Vec<Mark>);

/// A stretch of the log in which the topics stay the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub topics: Vec<Arc<str>>,
    /// Its last position; none: it goes on.
    pub until: Option<u64>,
}

impl Marks {
    /// A new subscription begins here.
    pub fn begin(position: u64, counts: BTreeMap<Arc<str>, u64>) -> Marks {
        Marks([Mark { position, seq: 0, counts }].into())
    }

    /// As they were kept. None: these are no marks.
    pub fn restore(marks: Vec<Mark>) -> Option<Marks> {
        let ordered = |pair: &[Mark]| pair[0].position <= pair[1].position && pair[0].seq <= pair[1].seq;
        (!marks.is_empty() && marks.windows(2).all(ordered)).then_some(Marks(marks))
    }

    pub fn all(&self) -> &[Mark] {
        &self.0
    }

    pub fn last(&self) -> &Mark {
        &self.0[self.0.len() - 1]
    }

    /// The number of the last event up to the head of the log, where the topics have had so many.
    pub fn seq_at_head(&self, counts: &BTreeMap<Arc<str>, u64>) -> u64 {
        let last = self.last();
        let had =
            |topic: &Arc<str>, before: u64| counts.get(topic).map_or(0, |now| now.saturating_sub(before));
        last.seq + last.counts.iter().map(|(topic, before)| had(topic, *before)).sum::<u64>()
    }

    /// The topics change at this position, which is the head of the log; `counts` are those of the old topics and the new.
    pub fn change(&mut self, position: u64, counts: &BTreeMap<Arc<str>, u64>, topics: &[Arc<str>]) {
        let seq = self.seq_at_head(counts);
        let counts = topics.iter().map(|topic| (topic.clone(), counts.get(topic).copied().unwrap_or(0)));
        self.push(Mark { position, seq, counts: counts.collect() });
    }

    /// A reader has come this far: later readings may begin here. `counts` are those of the topics at this position.
    pub fn note(&mut self, mark: Mark) {
        if mark.position > self.last().position {
            self.push(mark);
        }
    }

    fn push(&mut self, mark: Mark) {
        // Whoever changes twice at one position has had the topics in between for nothing.
        self.0.retain(|known| known.position != mark.position);
        self.0.push(mark);
    }

    /// What is read after a position.
    pub fn segment(&self, after: u64) -> Segment {
        let next = self.0.iter().position(|mark| mark.position > after);
        let at = next.unwrap_or(self.0.len()).saturating_sub(1);
        let topics = self.0[at].counts.keys().cloned().collect();
        Segment { topics, until: self.0.get(at + 1).map(|mark| mark.position) }
    }

    /// The last mark before an event; the oldest when all come later.
    pub fn before(&self, seq: u64) -> &Mark {
        self.0.iter().rev().find(|mark| mark.seq < seq).unwrap_or(&self.0[0])
    }

    /// The last mark at or before a position; the oldest when all come later.
    pub fn at(&self, position: u64) -> &Mark {
        self.0.iter().rev().find(|mark| mark.position <= position).unwrap_or(&self.0[0])
    }

    /// The log begins at this position: older marks are of no use, but for the last of them.
    pub fn forget(&mut self, first: u64) {
        let old = self.0.iter().filter(|mark| mark.position < first).count();
        self.0.drain(..old.saturating_sub(1));
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
    fn names_are_small_letters_digits_and_three_signs() {
        for good in ["a", "orders", "a.b-c_d.0", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "A", "a b", "ä", "a/b", "a%", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_reserved("tavern.presence") && is_reserved("tavern.x") && is_reserved("tavern"));
        assert!(!is_reserved("taverns") && !is_reserved("my.tavern."));
    }

    #[test]
    fn numbers_follow_by_subtraction() {
        let mut marks = Marks::begin(10, counts(&[("a", 4), ("b", 0)]));
        assert_eq!(marks.seq_at_head(&counts(&[("a", 4), ("b", 0)])), 0);
        assert_eq!(marks.seq_at_head(&counts(&[("a", 6), ("b", 1), ("c", 9)])), 3);
        marks.change(20, &counts(&[("a", 6), ("b", 1), ("c", 9)]), &topics(&["b", "c"]));
        assert_eq!(marks.last().seq, 3);
        assert_eq!(
            marks.seq_at_head(&counts(&[("a", 60), ("b", 2), ("c", 10)])),
            5,
            "a does not count any more"
        );
    }

    #[test]
    fn each_stretch_is_read_with_its_own_topics() {
        let mut marks = Marks::begin(10, counts(&[("a", 0)]));
        marks.change(20, &counts(&[("a", 2)]), &topics(&["b"]));
        marks.change(30, &counts(&[("b", 1)]), &[]);
        let segment = |after| marks.segment(after);
        assert_eq!(segment(10), Segment { topics: topics(&["a"]), until: Some(20) });
        assert_eq!(segment(19), Segment { topics: topics(&["a"]), until: Some(20) });
        assert_eq!(segment(20), Segment { topics: topics(&["b"]), until: Some(30) });
        assert_eq!(segment(99), Segment { topics: vec![], until: None });
        assert_eq!(segment(3), Segment { topics: topics(&["a"]), until: Some(20) }, "before its beginning");
    }

    #[test]
    fn a_replay_begins_at_the_last_mark_before_it() {
        let mut marks = Marks::begin(10, counts(&[("a", 0)]));
        marks.note(Mark { position: 500, seq: 100, counts: counts(&[("a", 100)]) });
        marks.note(Mark { position: 400, seq: 80, counts: counts(&[("a", 80)]) });
        assert_eq!(marks.all().len(), 2, "what is known already is not noted");
        assert_eq!((marks.before(1).seq, marks.before(100).seq, marks.before(101).seq), (0, 0, 100));
        assert_eq!((marks.at(499).seq, marks.at(500).seq, marks.at(1).seq), (0, 100, 0));
        marks.forget(501);
        assert_eq!(marks.all().len(), 1);
        marks.forget(9_999);
        assert_eq!(marks.all().len(), 1, "the last one stays");
    }

    #[test]
    fn two_changes_at_one_position_leave_one_mark() {
        let mut marks = Marks::begin(10, counts(&[("a", 5)]));
        marks.change(10, &counts(&[("a", 5), ("b", 7)]), &topics(&["b"]));
        assert_eq!(marks.all(), [Mark { position: 10, seq: 0, counts: counts(&[("b", 7)]) }]);
    }
}
