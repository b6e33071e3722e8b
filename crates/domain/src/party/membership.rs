//! What is stored about one user for parties. Most users have nothing here, and no row is stored for them.
//! Must hold: every list is bounded; expired entries are dropped with the next change.

use super::{PartyReply, UserId};
use crate::limits;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What is stored about one user for parties.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Membership {
    pub party: Option<u64>,
    /// Parties whose invites they see, oldest first.
    pub invites: Vec<u64>,
    /// Users whose invites they do not want to see.
    pub blocks: Vec<UserId>,
    /// Users who declined their invites, and until when they must not be invited again.
    pub declined: Vec<(UserId, Time)>,
    /// When they sent invites, within the last minute.
    pub sent: Vec<Time>,
    /// The replies to their last requests with an id.
    pub done: Vec<CompletedRequest>,
    /// They logged out, and their party does not know yet.
    pub logged_out: Option<Time>,
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedRequest {
    pub rid: Arc<str>,
    pub at: Time,
    /// Without a party: a repeated request is shown the current one.
    pub reply: PartyReply,
}

impl Membership {
    /// Nothing has to be stored.
    pub fn is_empty(&self) -> bool {
        *self == Membership::default()
    }

    /// Drops what has expired.
    pub fn prune(&mut self, now: Time) {
        self.sent.retain(|at| now.since(*at) < limits::PARTY_MINUTE_MS);
        self.declined.retain(|(_, until)| now < *until);
        self.done.retain(|done| now.since(done.at) < limits::PARTY_DONE_MS);
    }

    /// When everything in it has expired, so that a store may delete it. `None`: it does not expire.
    pub fn forgotten_at(&self) -> Option<Time> {
        if self.party.is_some()
            || !self.invites.is_empty()
            || !self.blocks.is_empty()
            || self.logged_out.is_some()
        {
            return None;
        }
        let sent = self.sent.iter().map(|at| *at + limits::PARTY_MINUTE_MS);
        let declined = self.declined.iter().map(|(_, until)| *until);
        let done = self.done.iter().map(|done| done.at + limits::PARTY_DONE_MS);
        sent.chain(declined).chain(done).max()
    }

    pub(super) fn answered(&self, now: Time, rid: &str) -> Option<&PartyReply> {
        let fresh =
            |done: &&CompletedRequest| *done.rid == *rid && now.since(done.at) < limits::PARTY_DONE_MS;
        self.done.iter().find(fresh).map(|done| &done.reply)
    }

    pub(super) fn remember(&mut self, now: Time, rid: Arc<str>, reply: PartyReply) {
        self.prune(now);
        // The same id again, after it had expired.
        self.done.retain(|done| done.rid != rid);
        while self.done.len() >= limits::PARTY_DONE {
            self.done.remove(0);
        }
        self.done.push(CompletedRequest { rid, at: now, reply });
    }

    pub(super) fn was_declined(&mut self, now: Time, by: UserId, until: Time) {
        self.prune(now);
        self.declined.retain(|(user, _)| *user != by);
        while self.declined.len() >= limits::PARTY_DECLINED {
            let soonest = self.declined.iter().enumerate().min_by_key(|(_, (_, until))| *until);
            let at = soonest.map(|(at, _)| at).expect("the list is not empty");
            self.declined.remove(at);
        }
        self.declined.push((by, until));
    }
}
