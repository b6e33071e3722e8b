//! What members and invitees are told about a party, and what other services are told.
//! Must hold: every member gets exactly one message for every change of the party, with the version of the change, so that
//! applying the messages to an old snapshot gives the new one, and a missing one is noticed.

use super::User;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A message to one user about a party.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    pub to: User,
    pub party_id: u64,
    pub version: u64,
    pub at: Time,
    /// The user it is about: who did it, or whom it happened to.
    pub actor: User,
    /// Their display name.
    pub name: Option<Arc<str>>,
    pub what: Word,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// To the invitee.
    Invite {
        expires: Time,
    },
    /// To an invitee who did not end the invite themselves.
    InviteCancel {
        reason: Reason,
    },
    /// To the members: the actor has invited a user. The first one creates the party.
    Invited {
        user: User,
        name: Option<Arc<str>>,
        expires: Time,
    },
    /// To the members who get neither accept nor decline: the invite of the actor has ended.
    Uninvited {
        reason: Reason,
    },
    /// To the inviter, or to the leader if the inviter has left: the actor has joined.
    Accept,
    /// To the same user: the invite of the actor has ended otherwise. With `Reason::Logout` the error is "user not logged".
    Decline {
        reason: Reason,
        message: Option<Arc<str>>,
    },
    /// To the other members: the actor has joined.
    Join,
    /// To the member who was kicked.
    Kick {
        message: Option<Arc<str>>,
    },
    /// To the others: the actor is no longer a member.
    Leave {
        reason: Reason,
        by: Option<User>,
        message: Option<Arc<str>>,
    },
    /// The actor leads; `by` is the earlier leader, unless they have left.
    Leader {
        by: Option<User>,
    },
    /// The party has ended.
    Disband {
        reason: Reason,
        message: Option<Arc<str>>,
    },
    Data {
        data: Arc<str>,
    },
    /// The leader created a ticket. `queued`: all members are ready.
    PartyGo {
        go_id: u64,
        members: Vec<User>,
        params: Option<Arc<str>>,
        queued: bool,
    },
    /// The actor is ready. `queued`: they were the last.
    Ready {
        go_id: u64,
        queued: bool,
    },
    /// The matchmaker found a match.
    PartyMatched {
        go_id: u64,
        details: Option<Arc<str>>,
    },
    /// Members are missing (progress 201), or the matchmaker failed.
    GoFailed {
        go_id: u64,
        missing: Vec<User>,
        details: Option<Arc<str>>,
    },
    /// The ticket was cancelled because of the actor.
    GoCancel {
        go_id: u64,
        reason: Reason,
    },
    /// The actor disconnected, and their seat is kept.
    Offline,
    /// The actor is back.
    Online,
}

/// Why something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The invitee declined.
    Declined,
    /// The leader cancelled the invite or the ticket.
    Cancelled,
    Expired,
    JoinedOtherParty,
    PartyQueued,
    /// They left themselves.
    Left,
    Kicked,
    /// Disconnected, and not back in time.
    Timeout,
    /// Logged out, or absent.
    Logout,
    /// Disconnected, and may come back.
    Offline,
    /// The leader ended the party.
    Disbanded,
    /// One member is left and no invite is open.
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

/// An event for other services. A ticket is announced when it is queued, and its end only then.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    Created { id: u64, leader: User },
    Joined { id: u64, user: User },
    Left { id: u64, user: User, reason: Reason },
    Disbanded { id: u64, reason: Reason },
    Go { id: u64, go_id: u64, members: Vec<User>, params: Option<Arc<str>> },
    GoCancelled { id: u64, go_id: u64 },
}

/// The user a message is about.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub user: User,
    pub name: Option<Arc<str>>,
}
