//! A user changes their visibility: the decision, and what is published once it is committed.
//! Must hold: a change is published with the version under which it is stored.

use super::person::visibility_of;
use crate::core::{Core, Notice, ReplyTo};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, Need};
use std::sync::Arc;
use tavern_domain::presence::{UserFact, UserUpdate, Visibility};
use tavern_store::{Commit, Expect, PresenceKey, Row, RowKey, UserRow, UserSnapshot};

pub(super) struct VisibilityDecision {
    pub user: Arc<str>,
    pub value: Visibility,
    pub claim: ReplyTo,
}

/// The visibility of a user as it is stored, and where they are present with their name.
pub(super) struct StoredVisibility {
    pub version: u64,
    pub visibility: Visibility,
    pub presences: Vec<PresenceKey>,
}

impl Decision for VisibilityDecision {
    /// None: it is stored already.
    type Outcome = Option<StoredVisibility>;
    type Notes = ();

    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        (): &mut (),
    ) -> DecisionStep<Self::Outcome> {
        let Some(person) = facts.person(&self.user) else {
            return DecisionStep::Need(vec![Need::Person(self.user.clone())]);
        };
        let stored = StoredVisibility::of(person);
        if stored.visibility == self.value {
            return DecisionStep::Done(None);
        }
        let row = UserRow { user: self.user.clone(), last_seen: None, visibility: self.value };
        let commit = Commit {
            expects: vec![Expect { key: RowKey::User(self.user.clone()), version: stored.version }],
            puts: vec![Row::User(row)],
            ..context.commit()
        };
        DecisionStep::Commit { commit, outcome: Some(StoredVisibility { visibility: self.value, ..stored }) }
    }
}

impl StoredVisibility {
    pub fn of(person: &UserSnapshot) -> StoredVisibility {
        let (version, visibility) = visibility_of(person).unwrap_or_default();
        let named = person.presences.iter().filter(|row| !row.row.anonymous);
        StoredVisibility { version, visibility, presences: named.map(|row| row.row.key.clone()).collect() }
    }

    /// Notifies the user's sessions and followers, and the channels they are present in.
    pub fn publish(self, core: &mut Core, user: &Arc<str>) {
        let StoredVisibility { version, visibility, presences } = self;
        let update = UserUpdate::Fact(UserFact::Shown { version, visibility });
        core.notify(Notice::StatusUpdate { user: user.clone(), update });
        for key in presences {
            core.notify(Notice::VisibilityChangedIn { key });
        }
    }
}
