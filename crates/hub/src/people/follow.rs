//! A user follows another, or stops: the decision, and what is published once it is committed. Must hold: an existing
//! follow keeps its start time; after an unknown outcome the follower's sessions still get the status of the
//! followee.

use crate::core::{Core, Notice, ReplyTo, refusal};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, TransactionEnd};
use std::sync::Arc;
use tavern_domain::presence::UserUpdate;
use tavern_store::{Expect, Follow, Row, RowKey};

pub(super) struct FollowDecision {
    pub follower: Arc<str>,
    pub followee: Arc<str>,
    /// False: unfollow.
    pub on: bool,
    pub claim: ReplyTo,
}

pub(super) enum FollowOutcome {
    Changed,
    /// They follow the user already, at this version.
    Follows {
        version: u64,
    },
}

impl Decision for FollowDecision {
    type Outcome = FollowOutcome;
    type Notes = ();

    /// Assumes that a new follow does not exist, which is usually true and saves a read.
    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        (): &mut (),
    ) -> DecisionStep<FollowOutcome> {
        let (follower, followee) = (self.follower.clone(), self.followee.clone());
        let key = RowKey::Follow { follower: follower.clone(), followee: followee.clone() };
        let mut commit = context.commit();
        if !self.on {
            commit.deletes.push(key);
            return DecisionStep::Commit { commit, outcome: FollowOutcome::Changed };
        }
        if let Some(version) = facts.conflicting_version(&key).filter(|version| *version > 0) {
            return DecisionStep::Done(FollowOutcome::Follows { version });
        }
        commit.puts.push(Row::Follow(Follow { follower, followee, since: context.now }));
        commit.expects.push(Expect { key, version: 0 });
        DecisionStep::Commit { commit, outcome: FollowOutcome::Changed }
    }
}

impl FollowDecision {
    /// Replies, and publishes the new state. Returns the follower if the outcome is unknown: their follow list must be
    /// read.
    pub fn ended(self, core: &mut Core, ended: TransactionEnd<FollowOutcome>) -> Option<Arc<str>> {
        let version = match ended {
            TransactionEnd::Failed { answer, unknown } => {
                core.finish(self.claim, Err(refusal(&answer)));
                return unknown.map(|_| self.follower);
            }
            TransactionEnd::Committed(_, receipt) => {
                let (follower, followee) = (self.follower.clone(), self.followee.clone());
                Some(receipt.version(&RowKey::Follow { follower, followee }).unwrap_or(0))
            }
            // A follow whose commit had an unknown outcome was not published.
            TransactionEnd::Done(FollowOutcome::Follows { version }) => {
                (!core.users.follows(&self.follower, &self.followee)).then_some(version)
            }
            TransactionEnd::Done(FollowOutcome::Changed) => None,
        };
        core.finish(self.claim, Ok(Vec::new()));
        if let Some(version) = version {
            let update = UserUpdate::Follows { followee: self.followee, version, on: self.on };
            core.notify(Notice::StatusUpdate { user: self.follower, update });
        }
        None
    }
}
