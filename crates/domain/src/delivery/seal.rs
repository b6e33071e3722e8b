//! What moves the cursor of a delivery: events come in, batches are sealed, a replay goes back, a shed goes ahead.
//! Must hold: the cursor moves over what is in a batch, and over nothing else but by a replay; at most one batch more
//! than may be under way is sealed ahead, so that sealing the next one and settling the last share a save.

use super::batch::{Batch, Mark, Run};
use super::{Delivery, Effect, Item, LETTERS, Letter, Reason, SETTLE_MS, Why};
use crate::time::Time;
use alloc::vec::Vec;

impl Delivery {
    pub(super) fn take(&mut self, now: Time, items: Vec<Item>) {
        for item in items {
            if self.early.room(&self.rules, self.progress.shed.is_some()).is_none() {
                break;
            }
            if item.seq == self.held().seq + 1 {
                // A clock that was ahead must not hold a batch.
                self.early.push(Item { accepted: item.accepted.min(now), ..item });
            }
        }
    }

    /// Where what is not here begins.
    pub(super) fn held(&self) -> Mark {
        let last = self.early.last().map(|item| Mark { seq: item.seq, position: item.position });
        last.unwrap_or(self.progress.reached())
    }

    pub(super) fn gap_since(&self) -> Option<Time> {
        self.progress.shed.map(|shed| shed.at)
    }

    pub(super) fn may_seal(&self) -> bool {
        !self.is_idle() && self.progress.batches.len() <= self.rules.lanes()
    }

    pub(super) fn seal(&mut self, now: Time) {
        while self.may_seal()
            && let Some((items, reason)) = self.early.ready(now, &self.rules, self.gap_since())
        {
            let accepted = self.gap_since().or_else(|| self.early.first().map(|item| item.accepted));
            let gap = self.progress.gap();
            let after = self.progress.reached();
            let mut sealed = after;
            for item in (0..items).filter_map(|_| self.early.pop()) {
                sealed = Mark { seq: item.seq, position: item.position };
            }
            let events = Run { after, first: after.seq + 1, last: sealed.seq, gap: false };
            let runs = gap.into_iter().chain((items > 0).then_some(events)).collect();
            let batch = self.cut(runs, reason, accepted.unwrap_or(now));
            self.progress.batches.push(batch);
            self.progress.sealed = sealed;
            self.progress.shed = None;
        }
    }

    /// A batch with a new number.
    pub(super) fn cut(&mut self, runs: Vec<Run>, reason: Reason, accepted: Time) -> Batch {
        assert!(!runs.is_empty(), "a batch holds something");
        self.progress.numbered += 1;
        self.urgent = true;
        let number = self.progress.numbered;
        Batch { number, runs, reason, accepted, attempts: 0, refusals: 0, suspect: false }
    }

    /// Saves share: one is under way at a time, and what is merely settled waits a little for the next batch, if there is any.
    pub(super) fn must_save(&self, now: Time) -> bool {
        let alone = self.progress.batches.is_empty() && self.early.is_empty();
        let settled = self.settled.is_some_and(|at| alone || self.stopping || now >= at + SETTLE_MS);
        self.saving.is_none() && (self.urgent || settled)
    }

    pub(super) fn enable(&mut self) {
        if self.progress.disabled.take().is_some() | self.progress.trouble.take().is_some() {
            self.urgent = true;
        }
    }

    /// Whoever was first has said why.
    pub(super) fn disable(&mut self, why: Why, effects: &mut Vec<Effect>) {
        if self.progress.disabled.is_none() {
            self.progress.disabled = Some(why);
            self.early.clear();
            self.urgent = true;
            effects.push(Effect::Disabled(why));
        }
    }

    pub(super) fn rewind(&mut self, to: Mark) {
        if self.progress.rewind(to) {
            self.early.clear();
            self.urgent = true;
        }
    }

    pub(super) fn shed(&mut self, now: Time, through: Mark, effects: &mut Vec<Effect>) {
        if let Some((first, last)) = self.progress.shed(now, through) {
            while self.early.first().is_some_and(|item| item.seq <= through.seq) {
                self.early.pop();
            }
            self.urgent = true;
            effects.push(Effect::Lost { first, last });
        }
    }

    /// Dead letters come after what is sealed: their turn in the order has passed. They were refused before, so once more is
    /// enough: nobody waits long behind them. Who asks twice gets them once.
    pub(super) fn retry(&mut self, now: Time, letters: Vec<Letter>) {
        let (mut runs, mut bytes) = (Vec::new(), 0);
        for Letter { run, bytes: size } in letters.into_iter().take(LETTERS) {
            if self.retried.contains(&run.first) || self.progress.holds(run.first) {
                continue;
            }
            let full =
                runs.len() as u64 >= self.rules.entries() || bytes + u64::from(size) > self.rules.room();
            if full && !runs.is_empty() {
                self.append(now, core::mem::take(&mut runs));
                bytes = 0;
            }
            bytes += u64::from(size);
            self.retried.push(run.first);
            runs.push(run);
        }
        if !runs.is_empty() {
            self.append(now, runs);
        }
    }

    fn append(&mut self, now: Time, runs: Vec<Run>) {
        let batch = self.cut(runs, Reason::Retry, now);
        self.progress.batches.push(Batch { suspect: true, ..batch });
    }
}
