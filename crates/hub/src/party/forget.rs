//! Deletes the short-lived records of a user (whom they invited, who declined, the replies to their requests) when
//! they expire. Must hold: no record that still applies is deleted.

use crate::rows::{FORGET, MembershipRow};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, Need};
use tavern_store::{Deadline, RowKey};
use tavern_wire::record::read_membership;

pub(super) struct ForgetMembership(pub Deadline);

impl Decision for ForgetMembership {
    type Outcome = ();
    type Notes = ();

    fn decide(&self, context: &DecisionContext<'_>, facts: &Facts, (): &mut ()) -> DecisionStep<()> {
        let deadline = &self.0;
        let key = MembershipRow::key(&deadline.name);
        let Some(found) = facts.document(&key) else { return DecisionStep::Need(vec![Need::Document(key)]) };
        let membership = found.and_then(|found| read_membership(&found.row.body).ok());
        let mut commit = context.commit();
        match membership.and_then(|membership| membership.forgotten_at()) {
            Some(at) if at > context.now => commit.deadlines.push(Deadline::new(at, FORGET, &deadline.name)),
            Some(_) => commit.deletes.extend([RowKey::Document(key), deadline.key()]),
            None => commit.deletes.push(deadline.key()),
        }
        DecisionStep::Commit { commit, outcome: () }
    }
}
