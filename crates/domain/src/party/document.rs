//! A party as it is stored: its members, its open invites, its ticket.
//! Must hold: the first member leads; a ticket with a deadline is still gathering, one without is queued.

use super::UserId;
use super::event::Actor;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A party as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Party {
    pub id: u64,
    /// Starts at 1 and grows by one with each change.
    pub version: u64,
    /// The first one leads.
    pub members: Vec<PartyMember>,
    /// The open invites.
    pub pending: Vec<PartyInvite>,
    /// The ticket.
    pub go: Option<MatchTicket>,
    /// A JSON object, as the leader sent it.
    pub data: Option<Arc<str>>,
}

/// A member of a party.
#[derive(Clone, Debug, PartialEq)]
pub struct PartyMember {
    pub user: UserId,
    pub name: Option<Arc<str>>,
    pub since: Time,
    /// `None`: online.
    pub away: Option<MemberDisconnect>,
}

/// When a member disconnected, and until when their seat is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberDisconnect {
    pub since: Time,
    pub until: Time,
}

/// An open invite. It takes a seat, so that accepting it never finds the party full.
#[derive(Clone, Debug, PartialEq)]
pub struct PartyInvite {
    pub user: UserId,
    pub name: Option<Arc<str>>,
    pub by: UserId,
    pub expires: Time,
    /// The invitee blocks the inviter: they never see it, and the party does not learn that.
    pub hidden: bool,
}

/// A ticket: the whole group wants a match.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchTicket {
    /// The version of the change that created it, so it is unique within the party.
    pub id: u64,
    pub members: Vec<UserId>,
    /// JSON, as the leader sent it.
    pub params: Option<Arc<str>>,
    pub ready: Vec<UserId>,
    /// Until when all members must be ready. `None`: queued.
    pub until: Option<Time>,
}

/// The state of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartyState {
    /// One member and an open invite.
    Forming,
    Idle,
    Gathering,
    Queued,
}

impl PartyState {
    pub fn as_str(self) -> &'static str {
        match self {
            PartyState::Forming => "forming",
            PartyState::Idle => "idle",
            PartyState::Gathering => "gathering",
            PartyState::Queued => "queued",
        }
    }
}

impl Party {
    pub fn state(&self) -> PartyState {
        match &self.go {
            Some(go) if go.until.is_some() => PartyState::Gathering,
            Some(_) => PartyState::Queued,
            None if self.members.len() < 2 => PartyState::Forming,
            None => PartyState::Idle,
        }
    }

    pub fn leader(&self) -> &PartyMember {
        self.members.first().expect("a party has a member")
    }

    /// The next deadline.
    pub fn next_wake(&self) -> Option<Time> {
        let invites = self.pending.iter().map(|pending| pending.expires);
        let away = self.members.iter().filter_map(|member| member.away).map(|away| away.until);
        invites.chain(away).chain(self.go.as_ref().and_then(|go| go.until)).min()
    }

    pub fn member(&self, user: &str) -> Option<&PartyMember> {
        self.members.iter().find(|member| *member.user == *user)
    }

    pub fn invite_of(&self, user: &str) -> Option<&PartyInvite> {
        self.pending.iter().find(|pending| *pending.user == *user)
    }

    pub(super) fn users(&self) -> Vec<UserId> {
        self.members.iter().map(|member| member.user.clone()).collect()
    }

    /// Who is notified how an invite ended: the inviter, or the leader if the inviter has left.
    pub(super) fn host_of(&self, pending: &PartyInvite) -> UserId {
        self.member(&pending.by).unwrap_or(self.leader()).user.clone()
    }

    /// A user with the display name that the party knows.
    pub(super) fn actor(&self, user: &UserId) -> Actor {
        let name = match (self.member(user), self.invite_of(user)) {
            (Some(member), _) => member.name.clone(),
            (None, Some(pending)) => pending.name.clone(),
            (None, None) => None,
        };
        Actor { user: user.clone(), name }
    }

    pub(super) fn member_mut(&mut self, user: &str) -> &mut PartyMember {
        let found = self.members.iter_mut().find(|member| *member.user == *user);
        found.expect("they are a member")
    }

    /// Removes the invite of a user.
    pub(super) fn take_invite(&mut self, user: &str) -> PartyInvite {
        let at = self.pending.iter().position(|pending| *pending.user == *user);
        self.pending.remove(at.expect("they are invited"))
    }

    /// Moves a member to the front; the others keep their order.
    pub(super) fn put_first(&mut self, user: &str) {
        let at = self.members.iter().position(|member| *member.user == *user).expect("they are a member");
        self.members[..=at].rotate_right(1);
    }
}
