//! What was kept of somebody for a while only (whom he invited, who declined, what his requests were answered) goes when its
//! time is over. Must hold: nothing that still means something goes.

use super::{Parties, Task};
use crate::core::{Core, Feature};
use crate::rows::FORGET;
use tavern_engine::{Answer, Commit, Deadline, DocumentKey, Expect, Found, Read, RowKey, Work};
use tavern_wire::record::{self, read_guest};

impl Parties {
    /// It may be time to forget somebody.
    pub(super) fn read_forgotten(&mut self, core: &mut Core, deadline: &Deadline) {
        let read = Read::Document(DocumentKey::new(record::GUEST, &deadline.name));
        let task = Task::Forget(deadline.clone());
        self.ask_store(core, task, Work::Read(read));
    }
}

pub(super) fn forget(core: &mut Core, deadline: &Deadline, answer: Answer) {
    let now = core.now;
    // If the store does not answer, somebody looks again with the next heartbeat.
    let Answer::Read(Found::Document(found)) = answer else { return };
    let key = RowKey::Document(DocumentKey::new(record::GUEST, &deadline.name));
    let version = found.as_ref().map_or(0, |found| found.version);
    let guest = found.and_then(|found| read_guest(&found.row.body).ok());
    let mut commit = Commit {
        writer: Some(core.writer()),
        expects: vec![Expect { key: key.clone(), version }],
        ..Commit::default()
    };
    match guest.and_then(|guest| guest.forgotten_at()) {
        Some(at) if at > now => commit.deadlines.push(Deadline::new(at, FORGET, &deadline.name)),
        Some(_) => commit.deletes.extend([key, deadline.key()]),
        None => commit.deletes.push(deadline.key()),
    }
    core.submit(Feature::None, Work::Commit(commit));
}
