//! What is kept of a user for a while only (whom they invited, who declined, the replies to their requests) is deleted when
//! its time is over. Must hold: nothing that still means something is deleted.

use crate::core::Core;
use crate::rows::{FORGET, Membership};
use crate::transaction::{Decision, Facts, Need, Step};
use tavern_engine::{Commit, Deadline, RowKey};
use tavern_wire::record::read_guest;

pub(super) struct ForgetMembership(pub Deadline);

impl Decision for ForgetMembership {
    type Outcome = ();

    fn decide(&mut self, core: &Core, facts: &Facts) -> Step<()> {
        let deadline = &self.0;
        let key = Membership::key(&deadline.name);
        let Some(found) = facts.document(&key) else { return Step::Need(vec![Need::Document(key)]) };
        let guest = found.and_then(|found| read_guest(&found.row.body).ok());
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
        match guest.and_then(|guest| guest.forgotten_at()) {
            Some(at) if at > core.now => commit.deadlines.push(Deadline::new(at, FORGET, &deadline.name)),
            Some(_) => commit.deletes.extend([RowKey::Document(key), deadline.key()]),
            None => commit.deletes.push(deadline.key()),
        }
        Step::Commit { commit, outcome: () }
    }
}
