//! A party as it is kept: its members, its open invites, its ticket. Knows nobody's connection and no clock.
//! Must hold: the first member leads; a ticket with a deadline is still gathering, one without is queued.

use super::User;
use super::letter::Actor;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Clone, Debug, PartialEq)]
pub struct Party {
    pub id: u64,
    /// 1 for the first invite, and one more for each change.
    pub version: u64,
    /// The first leads.
    pub members: Vec<Member>,
    pub pending: Vec<Pending>,
    pub go: Option<Go>,
    /// A JSON object, as it was sent.
    pub data: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub user: User,
    pub name: Option<Arc<str>>,
    pub since: Time,
    /// None: online.
    pub away: Option<Away>,
}

/// A member who was lost, and until when his seat is kept.
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
    /// Sent to somebody who blocks the inviter: it arrives nowhere, and nobody in the party can tell.
    pub dark: bool,
}

/// A ticket: the whole group on its way into a match.
#[derive(Clone, Debug, PartialEq)]
pub struct Go {
    /// The version of the change that made it, so no two tickets of a party are alike.
    pub id: u64,
    pub members: Vec<User>,
    /// JSON, as it was sent.
    pub params: Option<Arc<str>>,
    pub ready: Vec<User>,
    /// Until when all must be ready. None: queued.
    pub until: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// One member, and somebody is invited.
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

    /// The first moment at which time alone changes something.
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

    /// To whom the end of an invite is told: the inviter, or the leader if the inviter has gone.
    pub(super) fn host_of(&self, pending: &Pending) -> User {
        self.member(&pending.by).unwrap_or(self.leader()).user.clone()
    }

    /// Somebody with the name by which the party knows him.
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
        found.expect("he is a member")
    }

    /// Moves a member to the front; the others keep their order.
    pub(super) fn put_first(&mut self, user: &str) {
        let at = self.members.iter().position(|member| *member.user == *user).expect("he is a member");
        self.members[..=at].rotate_right(1);
    }
}
