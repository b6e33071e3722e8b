//! The invariants after every step, for the delivery and for what a crash would leave of it.

use super::*;
use tavern_domain::delivery::{Batch, BatchReason, DeliveryProgress, EntryRange};

impl World {
    pub(super) fn check(&mut self) {
        let progress = self.delivery.progress();
        assert!(self.delivery.next_wake().is_none_or(|wake| wake > self.now), "what is due is done");
        self.lost_nothing(progress, self.saving.as_ref());
        self.lost_nothing(&self.stored, None);
        let whole = |batch: &&Batch| !matches!(batch.reason, BatchReason::Recut | BatchReason::Retry);
        let sealed = progress.batches.iter().filter(whole).count() as u64;
        assert!(sealed <= self.max_lanes + 1, "{sealed} batches");
        let entries: u64 = progress.batches.iter().map(Batch::entries).sum();
        let max = (self.max_lanes + 1) * self.max_events;
        assert!(self.disorder || entries <= max, "{entries} entries");
        if !self.disorder {
            let runs: Vec<&EntryRange> = progress.batches.iter().flat_map(|batch| &batch.ranges).collect();
            assert!(runs.windows(2).all(|pair| pair[0].last < pair[1].first), "{runs:?}");
            assert!(runs.last().is_none_or(|run| run.last <= progress.sealed.seq));
        }
        assert!(self.repeats || self.acknowledged.values().all(|&times| times == 1), "acknowledged twice");
        for batch in progress.batches.iter().filter(|batch| batch.number > self.numbered) {
            assert!(batch.entries() <= self.max_events, "{batch:?}");
            assert!(!whole(&batch) || batch.entries() <= u64::from(self.rules.max_events), "{batch:?}");
            assert!(
                !whole(&batch) || batch.entries() == 1 || self.body(batch) <= self.rules.max_bytes,
                "{batch:?}"
            );
        }
        self.numbered = self.numbered.max(progress.numbered);
    }

    fn body(&self, batch: &Batch) -> u64 {
        let size = |run: &EntryRange| match run.gap {
            true => u64::from(GAP_BYTES),
            false => (run.first..=run.last).map(|seq| u64::from(self.log[seq as usize - 1].bytes)).sum(),
        };
        u64::from(self.rules.envelope_bytes) + batch.ranges.iter().map(size).sum::<u64>()
    }

    /// Every event was acknowledged, or is parked, in a batch, or still to come.
    fn lost_nothing(&self, progress: &DeliveryProgress, saving: Option<&Save>) {
        let holds = |run: &EntryRange, seq| (run.first..=run.last).contains(&seq);
        let sealed = |progress: &DeliveryProgress, seq| {
            progress.batches.iter().flat_map(|batch| &batch.ranges).any(|run| holds(run, seq))
        };
        for seq in (1..=progress.sealed.seq).filter(|seq| !self.acknowledged.contains_key(seq)) {
            let mut parked = self.parked.values().chain(saving.iter().flat_map(|(_, parked, _)| parked));
            let kept = sealed(progress, seq) || parked.any(|run| holds(run, seq));
            // An entry parked during a save goes with the next one: the store still has its batch.
            let waits = saving.is_some() && sealed(&self.stored, seq);
            assert!(kept || waits, "{seq} is lost");
        }
    }
}
