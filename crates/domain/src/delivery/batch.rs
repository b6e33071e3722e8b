//! A sealed batch and the ranges of entries it consists of. It knows where its events are in the log, not their
//! content.
//! Must hold: number and ranges never change; entries that are cut out of a batch keep their seqs, in order, each
//! once.

use super::BatchReason;
use crate::time::Time;
use alloc::vec::Vec;

/// A position in the log, with the number of the subscription's events up to there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogMark {
    pub seq: u64,
    pub position: u64,
}

/// Consecutive entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRange {
    /// Where to begin reading: the first event after this position has the next seq. It may be before `first`.
    pub after: LogMark,
    pub first: u64,
    pub last: u64,
    /// The events were dropped: one gap entry with the seq `first` represents all of them.
    pub gap: bool,
}

impl EntryRange {
    /// How many entries of a body it is.
    pub fn entries(&self) -> u64 {
        if self.gap { 1 } else { self.last - self.first + 1 }
    }

    /// The entry of this seq alone.
    fn only(&self, seq: u64) -> Option<EntryRange> {
        if self.gap {
            return (seq == self.first).then_some(*self);
        }
        (self.first..=self.last).contains(&seq).then_some(EntryRange { first: seq, last: seq, ..*self })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Counts the batches of its subscription; the batch id contains it.
    pub number: u64,
    /// In the order of the body.
    pub ranges: Vec<EntryRange>,
    /// Why it was sealed.
    pub reason: BatchReason,
    /// When its first event was accepted, or that of the batch it was cut from.
    pub accepted: Time,
    /// How often it was sent, as of the last save.
    pub attempts: u32,
    /// How often it was refused as a whole.
    pub refusals: u32,
    /// Part of a refused batch: the next refusal splits it, or parks its only entry.
    pub suspect: bool,
}

impl Batch {
    pub fn entries(&self) -> u64 {
        self.ranges.iter().map(EntryRange::entries).sum()
    }

    pub fn first_seq(&self) -> u64 {
        self.ranges.first().map_or(0, |run| run.first)
    }

    pub fn last_seq(&self) -> u64 {
        self.ranges.last().map_or(0, |run| run.last)
    }

    /// The entries in two halves; the first one is the larger.
    pub(super) fn halves(&self) -> (Vec<EntryRange>, Vec<EntryRange>) {
        let mut room = self.entries().div_ceil(2);
        let (mut front, mut back) = (Vec::new(), Vec::new());
        for run in &self.ranges {
            let taken = run.entries().min(room);
            room -= taken;
            if taken == run.entries() {
                front.push(*run);
            } else if taken == 0 {
                back.push(*run);
            } else {
                let middle = run.first + taken;
                front.push(EntryRange { last: middle - 1, ..*run });
                back.push(EntryRange { first: middle, ..*run });
            }
        }
        (front, back)
    }

    /// The entries with these seqs, in the order of the body. Unknown seqs are ignored.
    pub(super) fn pick(&self, mut seqs: Vec<u64>) -> Vec<EntryRange> {
        seqs.sort_unstable();
        seqs.dedup();
        let mut picked: Vec<EntryRange> = Vec::new();
        for run in &self.ranges {
            let from = seqs.partition_point(|&seq| seq < run.first);
            for entry in seqs[from..].iter().map_while(|&seq| run.only(seq)) {
                match picked.last_mut() {
                    Some(last) if !last.gap && !entry.gap && joins(last, &entry) => last.last = entry.last,
                    _ => picked.push(entry),
                }
            }
        }
        picked
    }
}

fn joins(last: &EntryRange, next: &EntryRange) -> bool {
    last.after == next.after && last.last + 1 == next.first
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec;

    fn batch(words: &str) -> Batch {
        let run = |word: &str| {
            let (gap, word) = (word.starts_with('!'), word.trim_start_matches('!'));
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            let (first, last) = (first.parse().unwrap(), last.parse().unwrap());
            EntryRange { after: LogMark { seq: first - 1, position: 10 * (first - 1) }, first, last, gap }
        };
        let (number, reason, accepted) = (1, BatchReason::Full, Time::ZERO);
        let runs = words.split(' ').map(run).collect();
        Batch { number, ranges: runs, reason, accepted, attempts: 0, refusals: 0, suspect: false }
    }

    fn show(runs: &[EntryRange]) -> String {
        let one = |run: &EntryRange| {
            format!("{}{}-{}@{}", ["", "!"][usize::from(run.gap)], run.first, run.last, run.after.seq)
        };
        runs.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_batch_reaches_from_its_first_to_its_last_entry() {
        for (whole, first, last, entries) in [("7", 7, 7, 1), ("3-5", 3, 5, 3), ("!3-90 91-92 95", 3, 95, 4)]
        {
            let batch = batch(whole);
            assert_eq!(
                (batch.first_seq(), batch.last_seq(), batch.entries()),
                (first, last, entries),
                "{whole}"
            );
        }
        let nothing = Batch { ranges: Vec::new(), ..batch("1") };
        assert_eq!((nothing.first_seq(), nothing.last_seq()), (0, 0));
    }

    #[test]
    fn halves_keep_every_entry_and_the_place_to_read_from() {
        for (whole, front, back) in [
            ("1-4", "1-2@0", "3-4@0"),
            ("1-5", "1-3@0", "4-5@0"),
            ("7-8", "7-7@6", "8-8@6"),
            ("!3-90 91-92", "!3-90@2 91-91@90", "92-92@90"),
            ("!3-90 91", "!3-90@2", "91-91@90"),
            ("1 5 9", "1-1@0 5-5@4", "9-9@8"),
        ] {
            let (first, second) = batch(whole).halves();
            assert_eq!((show(&first), show(&second)), (front.into(), back.into()), "{whole}");
        }
    }

    #[test]
    fn picked_entries_are_in_order_unique_and_of_the_batch() {
        for (whole, seqs, picked) in [
            ("1-9", vec![3], "3-3@0"),
            ("1-9", vec![5, 4, 4, 8, 77, 0], "4-5@0 8-8@0"),
            ("!3-90 91-95", vec![91, 3, 7, 95], "!3-90@2 91-91@90 95-95@90"),
            ("1 2", vec![1, 2], "1-1@0 2-2@1"),
            ("5-9", vec![10], ""),
        ] {
            assert_eq!(show(&batch(whole).pick(seqs)), picked, "{whole}");
        }
    }
}
