//! Numbers for parties: a shard takes a stretch of them at a time, so that no two nodes ever use the same one, also after a
//! clock went back. Must hold: a number is given once.

use super::{Parties, Task};
use crate::core::Core;
use std::sync::Arc;
use tavern_engine::{
    Answer, Commit, Document, DocumentKey, Expect, Found, Read, Row, RowKey, StoreError, Versioned, Work,
};
use tavern_wire::record::{NEXT, PARTIES};

/// Numbers in one stretch. What a node does not use of it is never used.
const STRETCH: u64 = 1_000;

#[derive(Default)]
pub(super) struct Reserve {
    next: u64,
    end: u64,
    asking: bool,
    /// Cases that wait for a number.
    waiting: Vec<u64>,
}

/// What was asked of the store about numbers.
pub(crate) enum Ids {
    Read,
    Take { first: u64 },
}

impl Parties {
    /// A number that no party has had; without one the case waits.
    pub(super) fn take_id(&mut self, core: &mut Core, case: u64) -> Option<u64> {
        let reserve = &mut self.ids;
        if reserve.next < reserve.end {
            reserve.next += 1;
            return Some(reserve.next - 1);
        }
        reserve.waiting.push(case);
        if !std::mem::replace(&mut reserve.asking, true) {
            self.read_ids(core);
        }
        None
    }

    fn read_ids(&mut self, core: &mut Core) {
        let read = Read::Document(DocumentKey::new(PARTIES, NEXT));
        self.ask_store(core, Task::Ids(Ids::Read), Work::Read(read));
    }

    pub(super) fn ids_answered(&mut self, core: &mut Core, ids: Ids, answer: Answer) {
        match (ids, answer) {
            (Ids::Read, Answer::Read(Found::Document(found))) => self.take_stretch(core, found.as_ref()),
            (Ids::Take { first }, Answer::Committed(_)) => {
                let reserve = &mut self.ids;
                (reserve.next, reserve.end, reserve.asking) = (first, first + STRETCH, false);
                for case in std::mem::take(&mut reserve.waiting) {
                    self.give_id(core, case);
                }
            }
            (Ids::Take { .. }, Answer::Failed(StoreError::Conflict { .. })) => self.read_ids(core),
            (_, answer) => {
                self.ids.asking = false;
                for case in std::mem::take(&mut self.ids.waiting) {
                    self.fail_paused(core, case, answer.clone());
                }
            }
        }
    }

    fn take_stretch(&mut self, core: &mut Core, found: Option<&Versioned<Document>>) {
        let now = core.now;
        let key = DocumentKey::new(PARTIES, NEXT);
        let kept = found.and_then(|found| std::str::from_utf8(&found.row.body).ok()?.trim().parse().ok());
        let first = kept.unwrap_or(0).max(now.ms() * 1_000);
        let version = found.map_or(0, |found| found.version);
        let body: Arc<[u8]> = (first + STRETCH).to_string().into_bytes().into();
        let commit = Commit {
            writer: Some(core.writer()),
            expects: vec![Expect { key: RowKey::Document(key.clone()), version }],
            puts: vec![Row::Document(Document { key, body })],
            ..Commit::default()
        };
        self.ask_store(core, Task::Ids(Ids::Take { first }), Work::Commit(commit));
    }
}
