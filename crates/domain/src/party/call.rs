//! A command, its bounds, and what it is answered.
//! Must hold: the order of `Refusal` is the order in which they are checked; what is remembered holds no party.

use super::{Party, User};
use crate::limits;
use alloc::boxed::Box;
use alloc::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// None: the server or an app.
    pub user: Option<User>,
    pub name: Option<Arc<str>>,
    /// The party which the caller believes to be his own. Accept, decline, block and unblock do not look at it.
    pub party: Option<u64>,
    /// For the commands of a leader; 0 before there is a party.
    pub if_version: Option<u64>,
    pub rid: Option<Arc<str>>,
    pub command: Command,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Get,
    Invite {
        user: User,
    },
    CancelInvite {
        user: User,
    },
    Accept {
        party_id: u64,
    },
    Decline {
        party_id: u64,
        message: Option<Arc<str>>,
    },
    Kick {
        user: User,
        message: Option<Arc<str>>,
    },
    Leave {
        message: Option<Arc<str>>,
    },
    Promote {
        user: User,
    },
    Disband {
        message: Option<Arc<str>>,
    },
    SetData {
        data: Arc<str>,
    },
    Go {
        params: Option<Arc<str>>,
    },
    CancelGo,
    Ready {
        go_id: u64,
    },
    Block {
        user: User,
    },
    Unblock {
        user: User,
    },
    /// Of the server: a deadline of the party is due. A gathering that a restart interrupted ends by its deadline too.
    Wake {
        party: u64,
    },
    /// Of the server: his presence has changed, or he said goodbye.
    Check {
        user: User,
    },
    /// Of the matchmaker.
    Answer {
        party: u64,
        go_id: u64,
        matched: bool,
        details: Option<Arc<str>>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nothing,
    /// Of get and accept.
    Party(Option<Box<Party>>),
    Invited {
        party_id: u64,
    },
    Gone {
        go_id: u64,
    },
    Refused {
        why: Refusal,
        retry_after_ms: Option<u64>,
        /// The caller's party as it is kept, so that a client can repair itself.
        party: Option<Box<Party>>,
    },
}

/// In the order in which they are checked.
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

    /// The small form that is remembered for a request id.
    pub(super) fn without_party(&self) -> Reply {
        match self {
            Reply::Party(_) => Reply::Party(None),
            Reply::Refused { why, .. } => Reply::Refused { why: *why, retry_after_ms: None, party: None },
            other => other.clone(),
        }
    }

    /// The remembered form with the party as it is now.
    pub(super) fn with_party(self, party: Option<Box<Party>>) -> Reply {
        match self {
            Reply::Party(_) => Reply::Party(party),
            Reply::Refused { why, retry_after_ms, .. } => Reply::Refused { why, retry_after_ms, party },
            other => other,
        }
    }
}

impl Call {
    /// Within the bounds of a request. That JSON is JSON has been seen to where it was read.
    pub fn is_sound(&self) -> bool {
        let user = |user: &User| !user.is_empty() && user.len() <= limits::USER_BYTES;
        let message = |message: &Option<Arc<str>>| {
            let fits = |text: &Arc<str>| {
                text.len() <= limits::PARTY_MESSAGE_BYTES && !text.chars().any(char::is_control)
            };
            message.as_ref().is_none_or(fits)
        };
        let json = |json: &Arc<str>| json.len() <= limits::PARTY_DATA_BYTES;
        let rid = |rid: &Arc<str>| !rid.is_empty() && rid.len() <= limits::PARTY_RID_BYTES;
        self.rid.as_ref().is_none_or(rid)
            && match &self.command {
                Command::Get | Command::CancelGo | Command::Accept { .. } => true,
                Command::Ready { .. } | Command::Wake { .. } => true,
                Command::Invite { user: target } | Command::CancelInvite { user: target } => user(target),
                Command::Promote { user: target } | Command::Check { user: target } => user(target),
                Command::Block { user: target } | Command::Unblock { user: target } => user(target),
                Command::Kick { user: target, message: said } => user(target) && message(said),
                Command::Decline { message: said, .. } => message(said),
                Command::Leave { message: said } | Command::Disband { message: said } => message(said),
                Command::SetData { data } => json(data),
                Command::Go { params } => params.as_ref().is_none_or(json),
                Command::Answer { details, .. } => details.as_ref().is_none_or(json),
            }
    }
}
