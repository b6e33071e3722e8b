//! How long the store takes to answer. Must hold: no lock and no allocation per request; a bounded table, in which a
//! request that finds its place taken is not measured.

use crate::metrics::{MetricKind, Series};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tavern_hub::node::histogram::{Histogram, LatencyCounts};
use tavern_store::{Ticket, Work};

/// Requests in flight whose beginning is remembered, as a power of two.
const SLOT_BITS: u32 = 13;
/// A slot holds the time in its lower bits, above them whether it is a commit, then a mark of its ticket.
const TIME_BITS: u32 = 48;
const COMMIT: u64 = 1 << TIME_BITS;

pub struct StoreTimes {
    began: Instant,
    slots: Box<[AtomicU64]>,
    commits: Histogram,
    reads: Histogram,
}

impl Default for StoreTimes {
    fn default() -> StoreTimes {
        StoreTimes {
            began: Instant::now(),
            slots: (0..1 << SLOT_BITS).map(|_| AtomicU64::new(0)).collect(),
            commits: Histogram::default(),
            reads: Histogram::default(),
        }
    }
}

impl StoreTimes {
    pub fn begin(&self, ticket: Ticket, work: &Work) {
        let commit = if matches!(work, Work::Commit(_)) { COMMIT } else { 0 };
        let (slot, mark) = self.slot(ticket);
        slot.store(mark | commit | self.now_us(), Ordering::Relaxed);
    }

    pub fn end(&self, ticket: Ticket) {
        let (slot, mark) = self.slot(ticket);
        let found = slot.load(Ordering::Relaxed);
        if found == 0 || found & mark_bits() != mark {
            return;
        }
        slot.store(0, Ordering::Relaxed);
        let us = self.now_us().saturating_sub(found & (COMMIT - 1));
        let histogram = if found & COMMIT == 0 { &self.reads } else { &self.commits };
        histogram.observe_shared(us);
    }

    /// Commits and reads together.
    pub fn latencies(&self) -> LatencyCounts {
        let mut counts = LatencyCounts::default();
        self.commits.add_to(&mut counts);
        self.reads.add_to(&mut counts);
        counts
    }

    pub fn gather(&self, all: &mut Vec<Series>) {
        for (name, help, histogram) in [
            ("tavern_store_commit_seconds", "Time of a commit to the store, until its answer", &self.commits),
            ("tavern_store_read_seconds", "Time of a read from the store, until its answer", &self.reads),
        ] {
            let mut counts = LatencyCounts::default();
            histogram.add_to(&mut counts);
            let mut series = Series::new(name, MetricKind::Histogram, help);
            series.add_latencies(&[], &counts);
            all.push(series);
        }
    }

    /// Never zero, so that an empty slot is told apart.
    fn now_us(&self) -> u64 {
        (self.began.elapsed().as_micros() as u64 + 1) & (COMMIT - 1)
    }

    /// The slot of a ticket, and the mark by which it is recognised there.
    fn slot(&self, ticket: Ticket) -> (&AtomicU64, u64) {
        let hash = ticket.0.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (&self.slots[(hash >> (64 - SLOT_BITS)) as usize], (hash << SLOT_BITS) & mark_bits())
    }
}

const fn mark_bits() -> u64 {
    !(COMMIT | (COMMIT - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_store::{Commit, Read};

    fn counts(histogram: &Histogram) -> u64 {
        let mut counts = LatencyCounts::default();
        histogram.add_to(&mut counts);
        counts.buckets.iter().sum()
    }

    #[test]
    fn commits_and_reads_are_measured_once() {
        let times = StoreTimes::default();
        for n in 0..100 {
            times.begin(Ticket(n << 3 | 1 << 48), &Work::Commit(Commit::default()));
            times.begin(Ticket(n), &Work::Read(Read::KeyByHash([0; 32])));
            times.end(Ticket(n << 3 | 1 << 48));
            times.end(Ticket(n));
            times.end(Ticket(n));
        }
        assert_eq!((counts(&times.commits), counts(&times.reads)), (100, 100));
    }

    #[test]
    fn a_ticket_whose_place_was_taken_is_not_measured() {
        let times = StoreTimes::default();
        (0..100_000).for_each(|n| times.begin(Ticket(n), &Work::Read(Read::KeyByHash([0; 32]))));
        (0..100_000).for_each(|n| times.end(Ticket(n)));
        let measured = counts(&times.reads);
        assert!(measured <= 1 << SLOT_BITS && measured > 1 << (SLOT_BITS - 1), "{measured}");
    }
}
