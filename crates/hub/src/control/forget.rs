//! Deletes what is stored about a user who is offline and in no party: when they were last seen, their visibility, their
//! inbox, and what parties know of them. Their ban stays: it is lifted by itself.

use crate::core::ReplyTo;
use crate::rows::{FORGET, INBOX, MEMBERSHIP, MembershipRow};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, Need};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Commit, Deadline, FreedMessages, RowKey};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::read_membership;

pub(super) struct ForgetUser {
    pub user: Arc<str>,
    pub claim: ReplyTo,
}

impl Decision for ForgetUser {
    type Outcome = Result<(), Refusal>;
    type Notes = ();

    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        (): &mut (),
    ) -> DecisionStep<Self::Outcome> {
        let key = MembershipRow::key(&self.user);
        let (Some(found), Some(person)) = (facts.document(&key), facts.person(&self.user)) else {
            let person = Need::Person(self.user.clone());
            return DecisionStep::Need(vec![Need::Document(key), person]);
        };
        let membership = found.and_then(|found| read_membership(&found.row.body).ok()).unwrap_or_default();
        if membership.party.is_some() || !membership.invites.is_empty() || !person.presences.is_empty() {
            let message = "the user is online, in a party or invited to one; try again";
            return DecisionStep::Done(Err(Refusal::new(Code::Busy, message).retry_after(1_000)));
        }
        let deadlines = [INBOX, MEMBERSHIP, FORGET];
        let deadlines = deadlines.map(|kind| Deadline::new(Time::NEVER, kind, &self.user).key());
        let mut deletes = vec![RowKey::User(self.user.clone()), RowKey::Document(key)];
        deletes.extend(deadlines);
        let freed = FreedMessages { user: self.user.clone(), through: u64::MAX, unread: false };
        let commit = Commit { deletes, freed_messages: vec![freed], erases: true, ..context.commit() };
        DecisionStep::Commit { commit, outcome: Ok(()) }
    }
}
