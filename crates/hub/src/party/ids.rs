//! Ids of parties: a shard reserves a block of them at a time, so that no two nodes ever use the same one, even after
//! a clock was set back. Must hold: an id is used once.

use super::Parties;
use crate::core::Core;
use crate::transaction::{Decision, DecisionStep, Facts, Need, TransactionEnd, TransactionProgress};
use std::sync::Arc;
use tavern_store::{Commit, Document, DocumentKey, Row};
use tavern_wire::record::{NEXT, PARTIES};

/// Ids in one block. Ids that a node does not use are lost.
const BLOCK: u64 = 1_000;

#[derive(Default)]
pub(super) struct PartyIds {
    next: u64,
    end: u64,
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

    fn decide(&mut self, core: &Core, facts: &Facts) -> DecisionStep<u64> {
        let key = DocumentKey::new(PARTIES, NEXT);
        let Some(found) = facts.document(&key) else { return DecisionStep::Need(vec![Need::Document(key)]) };
        let kept = found.and_then(|found| std::str::from_utf8(&found.row.body).ok()?.trim().parse().ok());
        let first = kept.unwrap_or(0).max(core.now.ms() * 1_000);
        let body: Arc<[u8]> = (first + BLOCK).to_string().into_bytes().into();
        let puts = vec![Row::Document(Document { key, body })];
        let commit = Commit { writer: Some(core.writer()), puts, ..Commit::default() };
        DecisionStep::Commit { commit, outcome: first }
    }
}

impl Parties {
    /// Returns an id that no party has had. Without one the transaction waits until a block is reserved.
    pub(super) fn take_id(&mut self, core: &mut Core, transaction: u64) -> Option<u64> {
        let reserve = &mut self.ids;
        if reserve.next < reserve.end {
            reserve.next += 1;
            return Some(reserve.next - 1);
        }
        reserve.waiting.push(transaction);
        if !std::mem::replace(&mut reserve.asking, true) {
            let progress = self.reservations.begin(core, ReserveIds, Facts::default());
            self.reserved(core, progress);
        }
        None
    }

    pub(super) fn reserved(&mut self, core: &mut Core, progress: TransactionProgress<ReserveIds>) {
        let TransactionProgress::Ended(_, ended) = progress else { return };
        self.ids.asking = false;
        let waiting = std::mem::take(&mut self.ids.waiting);
        match ended {
            TransactionEnd::Committed(first, _) | TransactionEnd::Done(first) => {
                (self.ids.next, self.ids.end) = (first, first + BLOCK);
                waiting.into_iter().for_each(|number| self.give_id(core, number));
            }
            TransactionEnd::Failed { answer, .. } => {
                waiting.into_iter().for_each(|number| self.fail_paused(core, number, answer.clone()));
            }
        }
    }
}
