//! Everything that moves the cursor of a delivery: reading events, sealing batches, replay (back) and shedding
//! (ahead).
//! Must hold: the cursor moves over what is in a batch, and over nothing else except by a replay; at most one batch
//! more than may be in flight is sealed ahead, so that sealing the next one and settling the last share a save.

use super::batch::{Batch, EntryRange, LogMark};
use super::{
    BatchReason, Delivery, DeliveryEffect, DisabledReason, MAX_RETRIED_DEAD_LETTERS, QueuedEvent,
    RetriedDeadLetter,
};
use crate::time::Time;
use alloc::vec::Vec;

impl Delivery {
    pub(super) fn take(&mut self, now: Time, items: Vec<QueuedEvent>) {
        for item in items {
            if self.open_batch.room(&self.rules, self.progress.dropped.is_some()).is_none() {
                break;
            }
            if item.seq == self.held().seq + 1 {
                // A time in the future, from a clock that was ahead, must not delay the batch.
                self.open_batch.push(QueuedEvent { accepted: item.accepted.min(now), ..item });
            }
        }
    }

    /// The last event that is held here; reading continues after it.
    pub(super) fn held(&self) -> LogMark {
        let last = self.open_batch.last().map(|item| LogMark { seq: item.seq, position: item.position });
        last.unwrap_or(self.progress.reached())
    }

    /// When the first entry of the open batch was accepted.
    pub(super) fn open_since(&self) -> Option<Time> {
        self.progress.gap_since().or_else(|| self.open_batch.first().map(|item| item.accepted))
    }

    pub(super) fn may_seal(&self) -> bool {
        !self.is_idle() && self.progress.batches.len() <= self.rules.lanes()
    }

    pub(super) fn seal(&mut self, now: Time) {
        while self.may_seal()
            && let Some((items, reason)) = self.open_batch.ready(now, &self.rules, self.progress.gap_since())
        {
            let accepted = self.open_since();
            let gap = self.progress.gap();
            let after = self.progress.reached();
            let mut sealed = after;
            for item in (0..items).filter_map(|_| self.open_batch.pop()) {
                sealed = LogMark { seq: item.seq, position: item.position };
            }
            let events = EntryRange { after, first: after.seq + 1, last: sealed.seq, gap: false };
            let runs = gap.into_iter().chain((items > 0).then_some(events)).collect();
            let batch = self.new_batch(runs, reason, accepted.unwrap_or(now));
            self.progress.batches.push(batch);
            self.progress.sealed = sealed;
            self.progress.dropped = None;
        }
    }

    /// A batch with a new number, which must be saved before it is sent.
    pub(super) fn new_batch(&mut self, runs: Vec<EntryRange>, reason: BatchReason, accepted: Time) -> Batch {
        assert!(!runs.is_empty(), "a batch is not empty");
        self.progress.numbered += 1;
        self.saves.make_urgent();
        let number = self.progress.numbered;
        Batch { number, ranges: runs, reason, accepted, attempts: 0, refusals: 0, suspect: false }
    }

    pub(super) fn enable(&mut self) {
        if self.progress.disabled.take().is_some() | self.progress.failure.take().is_some() {
            self.saves.make_urgent();
        }
    }

    /// The first reason stays.
    pub(super) fn disable(&mut self, why: DisabledReason, effects: &mut Vec<DeliveryEffect>) {
        if self.progress.disabled.is_none() {
            self.progress.disabled = Some(why);
            self.open_batch.clear();
            self.saves.make_urgent();
            effects.push(DeliveryEffect::Disabled(why));
        }
    }

    pub(super) fn rewind(&mut self, to: LogMark) {
        if self.progress.rewind(to) {
            self.open_batch.clear();
            self.saves.make_urgent();
        }
    }

    pub(super) fn shed(&mut self, now: Time, through: LogMark, effects: &mut Vec<DeliveryEffect>) {
        if let Some((first, last)) = self.progress.shed(now, through) {
            while self.open_batch.first().is_some_and(|item| item.seq <= through.seq) {
                self.open_batch.pop();
            }
            self.saves.make_urgent();
            effects.push(DeliveryEffect::Lost { first, last });
        }
    }

    /// Dead letters are sent after the sealed batches, out of order. They were refused before, so one more refusal
    /// parks them again and later events do not wait long. A dead letter that is retried twice is sent once.
    pub(super) fn retry(&mut self, now: Time, dead: Vec<RetriedDeadLetter>) {
        let (mut runs, mut bytes) = (Vec::new(), 0);
        for RetriedDeadLetter { run, bytes: size } in dead.into_iter().take(MAX_RETRIED_DEAD_LETTERS) {
            if self.saves.is_retried(run.first) || self.progress.holds(run.first) {
                continue;
            }
            let full =
                runs.len() as u64 >= self.rules.entries() || bytes + u64::from(size) > self.rules.room();
            if full && !runs.is_empty() {
                self.append(now, core::mem::take(&mut runs));
                bytes = 0;
            }
            bytes += u64::from(size);
            self.saves.retry(run.first);
            runs.push(run);
        }
        if !runs.is_empty() {
            self.append(now, runs);
        }
    }

    fn append(&mut self, now: Time, runs: Vec<EntryRange>) {
        let batch = self.new_batch(runs, BatchReason::Retry, now);
        self.progress.batches.push(Batch { suspect: true, ..batch });
    }
}
