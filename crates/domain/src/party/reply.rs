//! The replies to commands. Must hold: the order of `PartyRefusal` is the order in which they are checked; a stored reply
//! holds no party.

use super::Party;
use alloc::boxed::Box;

/// The reply to one command.
#[derive(Clone, Debug, PartialEq)]
pub enum PartyReply {
    Nothing,
    /// The reply to get and accept.
    Party(Option<Box<Party>>),
    Invited {
        party_id: u64,
    },
    /// The reply to go.
    Gone {
        go_id: u64,
    },
    Refused {
        why: PartyRefusal,
        retry_after_ms: Option<u64>,
        /// The caller's party as it is stored, so that a client can resynchronise.
        party: Option<Box<Party>>,
    },
}

/// Why a command was refused, in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartyRefusal {
    BadRequest,
    RateLimited,
    NoSuchParty,
    NotMember,
    NotLeader,
    VersionConflict,
    NoSuchGo,
    Busy,
    SelfTarget,
    NoSuchUser,
    TargetNotMember,
    UserNotLogged,
    AlreadyMember,
    UserInParty,
    NoInvite,
    PartyFull,
}

impl PartyRefusal {
    pub const ALL: [PartyRefusal; 16] = [
        PartyRefusal::BadRequest,
        PartyRefusal::RateLimited,
        PartyRefusal::NoSuchParty,
        PartyRefusal::NotMember,
        PartyRefusal::NotLeader,
        PartyRefusal::VersionConflict,
        PartyRefusal::NoSuchGo,
        PartyRefusal::Busy,
        PartyRefusal::SelfTarget,
        PartyRefusal::NoSuchUser,
        PartyRefusal::TargetNotMember,
        PartyRefusal::UserNotLogged,
        PartyRefusal::AlreadyMember,
        PartyRefusal::UserInParty,
        PartyRefusal::NoInvite,
        PartyRefusal::PartyFull,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            PartyRefusal::BadRequest => "bad_request",
            PartyRefusal::RateLimited => "rate_limited",
            PartyRefusal::NoSuchParty => "no_such_party",
            PartyRefusal::NotMember => "not_member",
            PartyRefusal::NotLeader => "not_leader",
            PartyRefusal::VersionConflict => "version_conflict",
            PartyRefusal::NoSuchGo => "no_such_go",
            PartyRefusal::Busy => "busy",
            PartyRefusal::SelfTarget => "self_target",
            PartyRefusal::NoSuchUser => "no_such_user",
            PartyRefusal::TargetNotMember => "target_not_member",
            PartyRefusal::UserNotLogged => "user_not_logged",
            PartyRefusal::AlreadyMember => "already_member",
            PartyRefusal::UserInParty => "user_in_party",
            PartyRefusal::NoInvite => "no_invite",
            PartyRefusal::PartyFull => "party_full",
        }
    }

    pub fn parse(text: &str) -> Option<PartyRefusal> {
        PartyRefusal::ALL.into_iter().find(|refusal| refusal.as_str() == text)
    }
}

impl PartyReply {
    pub(super) fn of(party: &Party) -> PartyReply {
        PartyReply::Party(Some(Box::new(party.clone())))
    }

    /// The small form that is stored for a request id.
    pub(super) fn without_party(&self) -> PartyReply {
        match self {
            PartyReply::Party(_) => PartyReply::Party(None),
            PartyReply::Refused { why, .. } => {
                PartyReply::Refused { why: *why, retry_after_ms: None, party: None }
            }
            other => other.clone(),
        }
    }

    /// The stored form with the party as it is now.
    pub(super) fn with_party(self, party: Option<Box<Party>>) -> PartyReply {
        match self {
            PartyReply::Party(_) => PartyReply::Party(party),
            PartyReply::Refused { why, retry_after_ms, .. } => {
                PartyReply::Refused { why, retry_after_ms, party }
            }
            other => other,
        }
    }
}
