//! What was counted about events, for the metrics. Must hold: one row for each subscription and topic that is known, no more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_domain::delivery::{Reason, Verdict};
use tavern_hub::events::Notice;

/// Names beyond this many share one row, so that nobody can fill the memory with names.
const NAMES_MAX: usize = 10_000;
const OTHERS: &str = "others";

#[derive(Default)]
pub struct Tally {
    counts: Mutex<Counts>,
}

#[derive(Default)]
pub struct Counts {
    pub topics: BTreeMap<Arc<str>, Published>,
    pub subscriptions: BTreeMap<Arc<str>, Delivered>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Published {
    pub events: u64,
    pub duplicates: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Delivered {
    /// Batches that left, by why.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Attempts, by what became of them.
    pub verdicts: BTreeMap<&'static str, u64>,
    pub events: u64,
    pub dropped: u64,
    pub parked: u64,
    /// From the first event's acceptance to the batch's delivery.
    pub waited_ms: u64,
    pub delivered: u64,
}

impl Tally {
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn published(&self, topic: &Arc<str>, events: u64, duplicates: u64) {
        let mut counts = self.counts();
        let row = row(&mut counts.topics, topic);
        row.events += events;
        row.duplicates += duplicates;
    }

    pub fn note(&self, notice: &Notice) {
        let mut counts = self.counts();
        match notice {
            Notice::Attempted { subscription, reason, verdict, events, waited_ms } => {
                let row = row(&mut counts.subscriptions, subscription);
                *row.verdicts.entry(verdict.as_str()).or_default() += 1;
                if *verdict == Verdict::Delivered {
                    *row.reasons.entry(Reason::as_str(*reason)).or_default() += 1;
                    row.events += events;
                    row.waited_ms += waited_ms;
                    row.delivered += 1;
                }
            }
            Notice::Lost { subscription, first, last } => {
                row(&mut counts.subscriptions, subscription).dropped += last - first + 1;
            }
            Notice::Parked { subscription, events } => {
                row(&mut counts.subscriptions, subscription).parked += events;
            }
            _ => {}
        }
    }
}

fn row<'a, T: Default>(rows: &'a mut BTreeMap<Arc<str>, T>, name: &Arc<str>) -> &'a mut T {
    let name = match rows.len() < NAMES_MAX || rows.contains_key(name) {
        true => name.clone(),
        false => OTHERS.into(),
    };
    rows.entry(name).or_default()
}
