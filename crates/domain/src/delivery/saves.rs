//! When the progress is saved. One save is in progress at a time, and a settled batch waits a little, so that its save is
//! shared with the next batch. Must hold: a batch is durable only after the save that holds it was confirmed.

use super::batch::EntryRange;
use crate::time::Time;
use alloc::vec::Vec;

/// How long a settled batch may wait for a save that it shares with the next batch: one save per batch under load, and
/// few repeats after a crash.
pub const SETTLE_MS: u64 = 100;

#[derive(Clone, Debug)]
pub(super) struct Saves {
    /// Batches numbered up to here are durable, if they still exist.
    durable: u64,
    /// The save in progress: the number of the last batch it holds.
    in_progress: Option<u64>,
    /// Something must be saved at once.
    urgent: bool,
    /// Since when a settled batch waits to be saved.
    settled_at: Option<Time>,
    /// Entries that became dead letters since the last save.
    parked: Vec<EntryRange>,
    /// Dead letters that were taken back since the last save, by seq.
    retried: Vec<u64>,
}

impl Saves {
    pub fn new(durable: u64) -> Saves {
        Saves {
            durable,
            in_progress: None,
            urgent: false,
            settled_at: None,
            parked: Vec::new(),
            retried: Vec::new(),
        }
    }

    pub fn make_urgent(&mut self) {
        self.urgent = true;
    }

    pub fn settle(&mut self, now: Time) {
        self.settled_at.get_or_insert(now);
    }

    pub fn park(&mut self, runs: Vec<EntryRange>) {
        self.parked.extend(runs);
    }

    pub fn retry(&mut self, seq: u64) {
        self.retried.push(seq);
    }

    pub fn is_retried(&self, seq: u64) -> bool {
        self.retried.contains(&seq)
    }

    /// Whether to save now. `at_once`: no later batch will share the save.
    pub fn is_due(&self, now: Time, at_once: bool) -> bool {
        let settled = self.settled_at.is_some_and(|at| at_once || now >= at + SETTLE_MS);
        self.in_progress.is_none() && (self.urgent || settled)
    }

    /// Begins a save of everything up to a batch. Returns the dead letters that were parked and retried.
    pub fn begin(&mut self, numbered: u64) -> (Vec<EntryRange>, Vec<u64>) {
        self.in_progress = Some(numbered);
        (self.urgent, self.settled_at) = (false, None);
        (core::mem::take(&mut self.parked), core::mem::take(&mut self.retried))
    }

    pub fn confirm(&mut self) {
        self.durable = self.in_progress.take().unwrap_or(self.durable);
    }

    pub fn is_durable(&self, batch: u64) -> bool {
        batch <= self.durable
    }

    /// When a settled batch has waited long enough.
    pub fn next_wake(&self) -> Option<Time> {
        self.settled_at.filter(|_| self.in_progress.is_none()).map(|at| at + SETTLE_MS)
    }

    /// Everything is saved.
    pub fn is_at_rest(&self) -> bool {
        self.in_progress.is_none() && !self.urgent && self.settled_at.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saves_are_at_rest_when_nothing_is_left_to_save() {
        let mut saves = Saves::new(0);
        assert!(saves.is_at_rest());
        saves.make_urgent();
        assert!(!saves.is_at_rest(), "something is to be saved at once");
        saves.begin(1);
        assert!(!saves.is_at_rest(), "it is being saved");
        saves.confirm();
        assert!(saves.is_at_rest());
        saves.settle(Time(5));
        assert!(!saves.is_at_rest(), "a settled batch waits for its save");
    }
}
