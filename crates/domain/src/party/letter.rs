//! What people are told about a party, and what other services are told.
//! Must hold: every member is told of every change of his party by exactly one letter, whose version is that of the
//! change, so that folding the letters over an old snapshot gives the new one, and a gap can be seen.

use super::User;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    pub to: User,
    pub party_id: u64,
    pub version: u64,
    pub at: Time,
    /// Whom it is about: who did it, or whom it happened to.
    pub actor: User,
    /// His display name.
    pub name: Option<Arc<str>>,
    pub what: Word,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// To the invitee.
    Invite {
        expires: Time,
    },
    /// To the invitee who did not answer himself.
    InviteCancel {
        reason: Reason,
    },
    /// To the members: the actor has invited somebody. The first one of a party makes it.
    Invited {
        user: User,
        name: Option<Arc<str>>,
        expires: Time,
    },
    /// To the members who get neither accept nor decline: the invite of the actor has ended, and he is no member.
    Uninvited {
        reason: Reason,
    },
    /// To the inviter, or to the leader if the inviter has gone: the actor has joined.
    Accept,
    /// To the same: the invite of the actor has ended otherwise. With `Reason::Logout` the error is "user not logged".
    Decline {
        reason: Reason,
        message: Option<Arc<str>>,
    },
    /// To the other members.
    Join,
    /// To the one who must go.
    Kick {
        message: Option<Arc<str>>,
    },
    /// To the rest: the actor is a member no more.
    Leave {
        reason: Reason,
        by: Option<User>,
        message: Option<Arc<str>>,
    },
    /// The actor leads; `by` whom, unless the one before him has gone.
    Leader {
        by: Option<User>,
    },
    /// The party is no more.
    Disband {
        reason: Reason,
        message: Option<Arc<str>>,
    },
    Data {
        data: Arc<str>,
    },
    /// `queued`: nobody is waited for.
    PartyGo {
        go_id: u64,
        members: Vec<User>,
        params: Option<Arc<str>>,
        queued: bool,
    },
    /// The actor is ready; `queued`: he was the last.
    Ready {
        go_id: u64,
        queued: bool,
    },
    PartyMatched {
        go_id: u64,
        details: Option<Arc<str>>,
    },
    /// Somebody is missing (progress 201), or the matchmaker has said so.
    GoFailed {
        go_id: u64,
        missing: Vec<User>,
        details: Option<Arc<str>>,
    },
    /// The actor is the cause.
    GoCancel {
        go_id: u64,
        reason: Reason,
    },
    /// The actor was lost, and his seat is kept.
    Offline,
    /// The actor is back.
    Online,
}

/// Why something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// An invite: its guest said no.
    Declined,
    /// An invite, or a ticket: somebody who may said so.
    Cancelled,
    Expired,
    JoinedOtherParty,
    PartyQueued,
    /// By his own will.
    Left,
    Kicked,
    /// Lost, and not back in time.
    Timeout,
    /// Said goodbye, or is not there any more.
    Logout,
    /// Lost, and may come back.
    Offline,
    /// The leader has ended the party.
    Disbanded,
    /// Nobody else is in the party and nobody is invited.
    Empty,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Declined => "declined",
            Reason::Cancelled => "cancelled",
            Reason::Expired => "expired",
            Reason::JoinedOtherParty => "joined_other_party",
            Reason::PartyQueued => "party_queued",
            Reason::Left => "left",
            Reason::Kicked => "kicked",
            Reason::Timeout => "timeout",
            Reason::Logout => "logout",
            Reason::Offline => "offline",
            Reason::Disbanded => "disbanded",
            Reason::Empty => "empty",
        }
    }
}

/// What other services are told. A ticket is told when it is queued, and its end only then.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    Created { id: u64, leader: User },
    Joined { id: u64, user: User },
    Left { id: u64, user: User, reason: Reason },
    Disbanded { id: u64, reason: Reason },
    Go { id: u64, go_id: u64, members: Vec<User>, params: Option<Arc<str>> },
    GoCancelled { id: u64, go_id: u64 },
}

/// Somebody a letter is about.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub user: User,
    pub name: Option<Arc<str>>,
}
