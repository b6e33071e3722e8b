//! Removes history that has expired, and, when all histories together are too large, those that expire first. One shard of
//! each node does it; the store arbitrates between nodes.

use crate::core::{Core, Feature, Timer};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Commit, Found, HistoryClear, HistoryList, Read, StoreAnswer, Ticket, Work};

/// How often it looks.
const SWEEP_MS: u64 = 10_000;

#[derive(Default)]
pub(super) struct Sweep {
    started: bool,
    running: Option<Ticket>,
}

impl Sweep {
    /// From now on there may be something to remove.
    pub fn start(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.started, true) {
            core.agenda.set(core.now + SWEEP_MS, Timer::HistorySweep);
        }
    }

    pub fn wake(&mut self, core: &mut Core) {
        core.agenda.set(core.now + SWEEP_MS, Timer::HistorySweep);
        if core.index == 0 && self.running.is_none() {
            self.running = Some(core.submit(Feature::History, look()));
        }
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        if self.running != Some(ticket) {
            return;
        }
        let next = match answer {
            StoreAnswer::Read(Found::Histories(list)) => remove(core, &list),
            // There may be more than one page of them.
            StoreAnswer::Committed(_) => Some(look()),
            _ => None,
        };
        self.running = next.map(|work| core.submit(Feature::History, work));
    }
}

fn look() -> Work {
    Work::Read(Read::Histories { after: None, limit: PAGE_ROWS })
}

fn remove(core: &Core, list: &HistoryList) -> Option<Work> {
    let max = core.node.settings.history_max_bytes;
    let mut bytes = list.bytes;
    let mut clears = Vec::new();
    // With a clock that may be wrong, only the total size counts.
    let deletion_time = core.node.deletion_time(core.now);
    for summary in &list.page.rows {
        let expired = deletion_time.is_some_and(|time| summary.expires_at <= time);
        if !expired && bytes <= max {
            break;
        }
        if !expired {
            core.stats.history_evicted.add(1);
        }
        bytes = bytes.saturating_sub(summary.bytes);
        clears.push(HistoryClear { channel: summary.channel.clone(), only_at: Some(summary.head) });
    }
    let commit = Commit { writer: Some(core.writer()), history_clears: clears, ..Commit::default() };
    (!commit.history_clears.is_empty()).then_some(Work::Commit(commit))
}
