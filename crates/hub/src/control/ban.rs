//! Bans as decisions: one document for each banned user, and one that counts them and changes with each of them, so that
//! nodes notice that they must read the list again.

use super::applied;
use crate::core::ReplyTo;
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, Need};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Deadline, Document, DocumentKey, Expect, Row, RowKey, StoreAnswer, StoreError};
use tavern_wire::bus::control::{Ban, ControlAction};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{BANS, BANS_ALL, read_ban, read_ban_count, write_ban, write_ban_count};

/// The kind of the documents, and of the deadline at which a ban ends.
pub(crate) const BAN: &str = tavern_wire::record::BAN;

/// Bans in the whole store: every node keeps all of them in memory.
const BANS_MAX: u64 = 100_000;

pub(super) struct BanDecision {
    pub user: Arc<str>,
    /// None: no caller waits.
    pub claim: Option<ReplyTo>,
    ban: Option<Ban>,
    /// It ends because its time is over.
    due: Option<Deadline>,
}

impl BanDecision {
    pub fn set(user: Arc<str>, ban: Option<Ban>, claim: ReplyTo) -> BanDecision {
        BanDecision { user, claim: Some(claim), ban, due: None }
    }

    pub fn expired(deadline: &Deadline) -> BanDecision {
        BanDecision { user: deadline.name.clone(), claim: None, ban: None, due: Some(deadline.clone()) }
    }

    fn decide_loaded(
        &self,
        context: &DecisionContext<'_>,
        known: Option<Ban>,
        count: u64,
    ) -> DecisionStep<Result<Option<ControlAction>, Refusal>> {
        let (banned, bans) = (known.is_some(), DocumentKey::new(BANS, BANS_ALL));
        let key = DocumentKey::new(BAN, &self.user);
        let deadline = Deadline::new(Time::NEVER, BAN, &self.user).key();
        let mut commit = context.commit();
        if let Some(due) = &self.due {
            commit.expects.push(Expect { key: due.key(), version: due.due.ms() });
            if let Some(known) = known.filter(|known| known.until > context.now) {
                // It was prolonged meanwhile.
                commit.deadlines.push(Deadline::new(known.until, BAN, &self.user));
                return DecisionStep::Commit { commit, outcome: Ok(None) };
            }
        }
        let count = match &self.ban {
            Some(_) if !banned && count >= BANS_MAX => {
                let message = format!("there are {BANS_MAX} bans, and no more are allowed; lift some first");
                return DecisionStep::Done(Err(Refusal::new(Code::TooLarge, message)));
            }
            Some(ban) => {
                commit.puts.push(Row::Document(Document { key, body: write_ban(ban).into() }));
                match ban.until {
                    Time::NEVER => commit.deletes.push(deadline),
                    until => commit.deadlines.push(Deadline::new(until, BAN, &self.user)),
                }
                if banned { count } else { count + 1 }
            }
            None if !banned && self.due.is_none() => {
                return DecisionStep::Done(Err(Refusal::new(Code::NotFound, "this user is not banned")));
            }
            None => {
                commit.deletes.extend([RowKey::Document(key), deadline]);
                if banned { count.saturating_sub(1) } else { count }
            }
        };
        commit.puts.push(Row::Document(Document { key: bans, body: write_ban_count(count).into() }));
        DecisionStep::Commit { commit, outcome: Ok(Some(applied(self.ban.clone()))) }
    }
}

impl Decision for BanDecision {
    /// The notice to every shard; None: nothing has changed.
    type Outcome = Result<Option<ControlAction>, Refusal>;
    type Notes = ();

    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        (): &mut (),
    ) -> DecisionStep<Self::Outcome> {
        let (ban, bans) = (DocumentKey::new(BAN, &self.user), DocumentKey::new(BANS, BANS_ALL));
        let (Some(known), Some(counted)) = (facts.document(&ban), facts.document(&bans)) else {
            return DecisionStep::Need(vec![Need::Document(ban), Need::Document(bans)]);
        };
        let known = known.map(|document| read_ban(&document.row.body)).transpose();
        let count = counted.map_or(Ok(0), |document| read_ban_count(&document.row.body));
        match (known, count) {
            (Ok(known), Ok(count)) => self.decide_loaded(context, known, count),
            (Err(error), _) | (_, Err(error)) => {
                let what = error.to_string();
                DecisionStep::Fail(StoreAnswer::Failed(StoreError::Corrupt { what, source: None }))
            }
        }
    }
}
