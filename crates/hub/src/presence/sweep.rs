//! Presences that nothing else will end, because the store does not know their node. Must hold: one user is one
//! commit, which checks again: it removes all stale presences of the user, or none.

use super::change::{PresenceAction, PresenceChange};
use super::decision::{PresenceOutcome, commit_of};
use crate::rows::StaleUser;
use crate::transaction::{DecisionContext, DecisionStep, Facts, Need};
use tavern_domain::presence::{AttendanceChange, AttendanceInput, PresenceSummary};
use tavern_store::{Expect, RowKey};

pub(super) struct SweepDecision(pub StaleUser);

/// One channel of a user in a sweep.
pub(super) struct SweptPresence {
    pub change: PresenceChange,
    pub changes: Vec<AttendanceChange>,
    pub stay: Option<PresenceSummary>,
}

impl SweepDecision {
    pub fn decide(&self, context: &DecisionContext<'_>, facts: &Facts) -> DecisionStep<PresenceOutcome> {
        let Some(person) = facts.person(&self.0.user) else {
            return DecisionStep::Need(vec![Need::Person(self.0.user.clone())]);
        };
        let mut swept = Vec::new();
        let mut whole = context.commit();
        for row in &person.presences {
            let before = &row.row.attendance;
            let mut attendance = before.clone();
            let mut changes = Vec::new();
            let input = AttendanceInput::Sweep { nodes: self.0.nodes.clone() };
            attendance.handle(context.now, input.clone(), &mut changes);
            if attendance == *before {
                continue;
            }
            let change = PresenceChange {
                name: row.row.name.clone(),
                anonymous: row.row.anonymous,
                visibility: Some(row.row.visibility),
                ..PresenceChange::of(row.row.key.clone(), PresenceAction::Input(input))
            };
            let stay = PresenceSummary::of(&attendance);
            let part = commit_of(context, &change, before, attendance, &changes);
            let key = RowKey::Presence(change.key.clone());
            whole.expects.push(Expect { key, version: row.version });
            whole.deletes.extend(part.deletes);
            whole.puts.extend(part.puts);
            whole.raises.extend(part.raises);
            whole.deadlines.extend(part.deadlines);
            whole.seen.extend(part.seen);
            whole.appends.extend(part.appends);
            swept.push(SweptPresence { change, changes, stay });
        }
        if swept.is_empty() {
            return DecisionStep::Done(PresenceOutcome::Dropped);
        }
        DecisionStep::Commit { commit: whole, outcome: PresenceOutcome::Swept(swept) }
    }
}
