//! What a command is answered. Must hold: the order of `Refusal` is the order in which they are checked; a stored reply
//! holds no party.

use super::Party;
use alloc::boxed::Box;

/// The reply to one command.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
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
        why: Refusal,
        retry_after_ms: Option<u64>,
        /// The caller's party as it is stored, so that a client can resynchronise.
        party: Option<Box<Party>>,
    },
}

/// Why a command was refused, in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
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

impl Refusal {
    pub const ALL: [Refusal; 16] = [
        Refusal::BadRequest,
        Refusal::RateLimited,
        Refusal::NoSuchParty,
        Refusal::NotMember,
        Refusal::NotLeader,
        Refusal::VersionConflict,
        Refusal::NoSuchGo,
        Refusal::Busy,
        Refusal::SelfTarget,
        Refusal::NoSuchUser,
        Refusal::TargetNotMember,
        Refusal::UserNotLogged,
        Refusal::AlreadyMember,
        Refusal::UserInParty,
        Refusal::NoInvite,
        Refusal::PartyFull,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Refusal::BadRequest => "bad_request",
            Refusal::RateLimited => "rate_limited",
            Refusal::NoSuchParty => "no_such_party",
            Refusal::NotMember => "not_member",
            Refusal::NotLeader => "not_leader",
            Refusal::VersionConflict => "version_conflict",
            Refusal::NoSuchGo => "no_such_go",
            Refusal::Busy => "busy",
            Refusal::SelfTarget => "self_target",
            Refusal::NoSuchUser => "no_such_user",
            Refusal::TargetNotMember => "target_not_member",
            Refusal::UserNotLogged => "user_not_logged",
            Refusal::AlreadyMember => "already_member",
            Refusal::UserInParty => "user_in_party",
            Refusal::NoInvite => "no_invite",
            Refusal::PartyFull => "party_full",
        }
    }

    pub fn parse(text: &str) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| refusal.as_str() == text)
    }
}

impl Reply {
    pub(super) fn of(party: &Party) -> Reply {
        Reply::Party(Some(Box::new(party.clone())))
    }

    /// The small form that is stored for a request id.
    pub(super) fn without_party(&self) -> Reply {
        match self {
            Reply::Party(_) => Reply::Party(None),
            Reply::Refused { why, .. } => Reply::Refused { why: *why, retry_after_ms: None, party: None },
            other => other.clone(),
        }
    }

    /// The stored form with the party as it is now.
    pub(super) fn with_party(self, party: Option<Box<Party>>) -> Reply {
        match self {
            Reply::Party(_) => Reply::Party(party),
            Reply::Refused { why, retry_after_ms, .. } => Reply::Refused { why, retry_after_ms, party },
            other => other,
        }
    }
}
