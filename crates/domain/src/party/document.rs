//! A party as it is stored: its members, its open invites, its ticket.
//! Must hold: the first member leads; a ticket with a deadline is still gathering, one without is queued.

use super::User;
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
    pub members: Vec<Member>,
    /// The open invites.
    pub pending: Vec<Pending>,
    /// The ticket.
    pub go: Option<Go>,
    /// A JSON object, as the leader sent it.
    pub data: Option<Arc<str>>,
}

/// A member of a party.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub user: User,
    pub name: Option<Arc<str>>,
    pub since: Time,
    /// `None`: online.
    pub away: Option<Away>,
}

/// When a member disconnected, and until when their seat is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    pub since: Time,
    pub until: Time,
}

/// An open invite. It takes a seat, so that accepting it never finds the party full.
#[derive(Clone, Debug, PartialEq)]
pub struct Pending {
    pub user: User,
    pub name: Option<Arc<str>>,
    pub by: User,
    pub expires: Time,
    /// The invitee blocks the inviter: they never see it, and the party cannot tell.
    pub dark: bool,
}

/// A ticket: the whole group wants a match.
#[derive(Clone, Debug, PartialEq)]
pub struct Go {
    /// The version of the change that created it, so it is unique within the party.
    pub id: u64,
    pub members: Vec<User>,
    /// JSON, as the leader sent it.
    pub params: Option<Arc<str>>,
    pub ready: Vec<User>,
    /// Until when all members must be ready. `None`: queued.
    pub until: Option<Time>,
}

/// The state of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// One member and an open invite.
    Forming,
    Idle,
    Gathering,
    Queued,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Forming => "forming",
            State::Idle => "idle",
            State::Gathering => "gathering",
            State::Queued => "queued",
        }
    }
}

impl Party {
    pub fn state(&self) -> State {
        match &self.go {
            Some(go) if go.until.is_some() => State::Gathering,
            Some(_) => State::Queued,
            None if self.members.len() < 2 => State::Forming,
            None => State::Idle,
        }
    }

    pub fn leader(&self) -> &Member {
        self.members.first().expect("a party has a member")
    }

    /// The next deadline.
    pub fn next_wake(&self) -> Option<Time> {
        let invites = self.pending.iter().map(|pending| pending.expires);
        let away = self.members.iter().filter_map(|member| member.away).map(|away| away.until);
        invites.chain(away).chain(self.go.as_ref().and_then(|go| go.until)).min()
    }

    pub fn member(&self, user: &str) -> Option<&Member> {
        self.members.iter().find(|member| *member.user == *user)
    }

    pub fn invite_of(&self, user: &str) -> Option<&Pending> {
        self.pending.iter().find(|pending| *pending.user == *user)
    }

    pub(super) fn users(&self) -> Vec<User> {
        self.members.iter().map(|member| member.user.clone()).collect()
    }

    /// Who is told how an invite ended: the inviter, or the leader if the inviter has left.
    pub(super) fn host_of(&self, pending: &Pending) -> User {
        self.member(&pending.by).unwrap_or(self.leader()).user.clone()
    }

    /// A user with the display name that the party knows.
    pub(super) fn actor(&self, user: &User) -> Actor {
        let name = match (self.member(user), self.invite_of(user)) {
            (Some(member), _) => member.name.clone(),
            (None, Some(pending)) => pending.name.clone(),
            (None, None) => None,
        };
        Actor { user: user.clone(), name }
    }

    pub(super) fn member_mut(&mut self, user: &str) -> &mut Member {
        let found = self.members.iter_mut().find(|member| *member.user == *user);
        found.expect("they are a member")
    }

    /// Removes the invite of a user.
    pub(super) fn take_invite(&mut self, user: &str) -> Pending {
        let at = self.pending.iter().position(|pending| *pending.user == *user);
        self.pending.remove(at.expect("they are invited"))
    }

    /// Moves a member to the front; the others keep their order.
    pub(super) fn put_first(&mut self, user: &str) {
        let at = self.members.iter().position(|member| *member.user == *user).expect("they are a member");
        self.members[..=at].rotate_right(1);
    }
}
