//! The messages to members and invitees about a party, and the events for other services.
//! Must hold: every member gets exactly one message for every change of the party, with the version of the change, so that
//! applying the messages to an old snapshot gives the new one, and a missing one is noticed.

use super::UserId;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A message to one user about a party.
#[derive(Clone, Debug, PartialEq)]
pub struct PartyEvent {
    pub to: UserId,
    pub party_id: u64,
    pub version: u64,
    pub at: Time,
    /// The user it is about: who did it, or whom it happened to.
    pub actor: UserId,
    /// Their display name.
    pub name: Option<Arc<str>>,
    pub kind: PartyEventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum PartyEventKind {
    /// To the invitee.
    Invite {
        expires: Time,
    },
    /// To an invitee who did not end the invite themselves.
    InviteCancel {
        reason: PartyReason,
    },
    /// To the members: the actor has invited a user. The first one creates the party.
    Invited {
        user: UserId,
        name: Option<Arc<str>>,
        expires: Time,
    },
    /// To the members who get neither accept nor decline: the invite of the actor has ended.
    Uninvited {
        reason: PartyReason,
    },
    /// To the inviter, or to the leader if the inviter has left: the actor has joined.
    Accept,
    /// To the same user: the invite of the actor has ended in another way. With `PartyReason::Logout` the error is
    /// "user not logged".
    Decline {
        reason: PartyReason,
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
        reason: PartyReason,
        by: Option<UserId>,
        message: Option<Arc<str>>,
    },
    /// The actor leads; `by` is the earlier leader, unless they have left.
    Leader {
        by: Option<UserId>,
    },
    /// The party has ended.
    Disband {
        reason: PartyReason,
        message: Option<Arc<str>>,
    },
    Data {
        data: Arc<str>,
    },
    /// The leader created a ticket. `queued`: all members are ready.
    PartyGo {
        go_id: u64,
        members: Vec<UserId>,
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
        missing: Vec<UserId>,
        details: Option<Arc<str>>,
    },
    /// The ticket was cancelled because of the actor.
    GoCancel {
        go_id: u64,
        reason: PartyReason,
    },
    /// The actor disconnected, and their seat is kept.
    Offline,
    /// The actor has reconnected.
    Online,
}

/// Why something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartyReason {
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
    /// Disconnected, and did not reconnect in time.
    Timeout,
    /// Logged out, or absent.
    Logout,
    /// Disconnected, and may reconnect.
    Offline,
    /// The leader ended the party.
    Disbanded,
    /// One member is left and no invite is open.
    Empty,
}

impl PartyReason {
    pub fn as_str(self) -> &'static str {
        match self {
            PartyReason::Declined => "declined",
            PartyReason::Cancelled => "cancelled",
            PartyReason::Expired => "expired",
            PartyReason::JoinedOtherParty => "joined_other_party",
            PartyReason::PartyQueued => "party_queued",
            PartyReason::Left => "left",
            PartyReason::Kicked => "kicked",
            PartyReason::Timeout => "timeout",
            PartyReason::Logout => "logout",
            PartyReason::Offline => "offline",
            PartyReason::Disbanded => "disbanded",
            PartyReason::Empty => "empty",
        }
    }
}

/// An event for other services. A ticket is announced when it is queued; its end is announced only if it was queued.
#[derive(Clone, Debug, PartialEq)]
pub enum PartyTopicEvent {
    Created { id: u64, leader: UserId },
    Joined { id: u64, user: UserId },
    Left { id: u64, user: UserId, reason: PartyReason },
    Disbanded { id: u64, reason: PartyReason },
    Go { id: u64, go_id: u64, members: Vec<UserId>, params: Option<Arc<str>> },
    GoCancelled { id: u64, go_id: u64 },
}

/// The user a message is about.
#[derive(Clone, Debug)]
pub(super) struct Actor {
    pub user: UserId,
    pub name: Option<Arc<str>>,
}
