//! Ids of parties: a shard reserves a block of them at a time, so that no two nodes ever use the same one, even after
//! a clock was set back. The next block is reserved before the last one is used up. Must hold: an id is used once.

use super::Parties;
use crate::core::Core;
use crate::transaction::{
    Decision, DecisionContext, DecisionStep, Facts, Need, TransactionEnd, TransactionProgress,
};
use std::ops::Range;
use std::sync::Arc;
use tavern_store::{Commit, Document, DocumentKey, Row};
use tavern_wire::record::{NEXT, PARTIES};

/// Ids in one block. Ids that a node does not use are lost.
const BLOCK: u64 = 1_000;
/// With fewer ids than this, the next block is reserved.
const LOW: u64 = BLOCK / 2;

#[derive(Default)]
pub(super) struct PartyIds {
    /// The ids that are left; an id that a transaction did not use is a range of its own.
    free: Vec<Range<u64>>,
    /// How many there are.
    count: u64,
    /// A block is being reserved now.
    asking: bool,
    /// Transactions that wait for an id.
    waiting: Vec<u64>,
}

/// Reserves the next block of ids.
pub(super) struct ReserveIds;

impl Decision for ReserveIds {
    /// The first id of the block.
    type Outcome = u64;
    type Notes = ();

    fn decide(&self, context: &DecisionContext<'_>, facts: &Facts, (): &mut ()) -> DecisionStep<u64> {
        let key = DocumentKey::new(PARTIES, NEXT);
        let Some(found) = facts.document(&key) else { return DecisionStep::Need(vec![Need::Document(key)]) };
        let kept = found.and_then(|found| std::str::from_utf8(&found.row.body).ok()?.trim().parse().ok());
        let first = kept.unwrap_or(0).max(context.now.ms() * 1_000);
        let body: Arc<[u8]> = (first + BLOCK).to_string().into_bytes().into();
        let puts = vec![Row::Document(Document { key, body })];
        let commit = Commit { puts, ..context.commit() };
        DecisionStep::Commit { commit, outcome: first }
    }
}

impl PartyIds {
    /// Returns an id that no party has had, if there is one without asking the store.
    fn take(&mut self) -> Option<u64> {
        let range = self.free.last_mut()?;
        let id = range.next()?;
        if range.is_empty() {
            self.free.pop();
        }
        self.count -= 1;
        Some(id)
    }

    /// No party got this id.
    pub fn give_back(&mut self, id: u64) {
        self.add(id..id + 1);
    }

    fn add(&mut self, ids: Range<u64>) {
        self.count += ids.end - ids.start;
        self.free.push(ids);
    }
}

impl Parties {
    /// Returns an id that no party has had. If there is none here, the transaction `waiting` gets one of the next block.
    pub(super) fn take_id(&mut self, core: &mut Core, waiting: Option<u64>) -> Option<u64> {
        let id = self.ids.take();
        if id.is_none() {
            self.ids.waiting.extend(waiting);
        }
        let is_short = if id.is_some() { self.ids.count < LOW } else { waiting.is_some() };
        if is_short && !std::mem::replace(&mut self.ids.asking, true) {
            let progress = self.reservations.begin(core, ReserveIds, Facts::default());
            self.reserved(core, progress);
        }
        id
    }

    pub(super) fn reserved(&mut self, core: &mut Core, progress: TransactionProgress<ReserveIds>) {
        let TransactionProgress::Ended(_, ended) = progress else { return };
        self.ids.asking = false;
        let waiting = std::mem::take(&mut self.ids.waiting);
        match ended {
            TransactionEnd::Committed(first, _) | TransactionEnd::Done(first) => {
                self.ids.add(first..first + BLOCK);
                waiting.into_iter().for_each(|number| self.give_id(core, number));
            }
            TransactionEnd::Failed { answer, .. } => {
                waiting.into_iter().for_each(|number| self.fail_paused(core, number, answer.clone()));
            }
        }
    }
}
