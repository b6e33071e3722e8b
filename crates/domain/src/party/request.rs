//! A command with its context, and the limits of what it may hold.

use super::UserId;
use crate::identity::is_user_id;
use crate::limits;
use alloc::sync::Arc;

/// A command with its context.
#[derive(Clone, Debug, PartialEq)]
pub struct PartyRequest {
    /// `None`: the server or an app.
    pub user: Option<UserId>,
    /// The caller's display name.
    pub name: Option<Arc<str>>,
    /// The party that the caller thinks they are in. Accept, decline, block and unblock ignore it.
    pub party: Option<u64>,
    /// The version that a leader has seen; 0 before there is a party.
    pub if_version: Option<u64>,
    /// The request id: a request with the same id is executed once.
    pub rid: Option<Arc<str>>,
    pub command: PartyCommand,
}

/// What a user, the server or the matchmaker asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum PartyCommand {
    Get,
    Invite {
        user: UserId,
    },
    CancelInvite {
        user: UserId,
    },
    Accept {
        party_id: u64,
    },
    Decline {
        party_id: u64,
        message: Option<Arc<str>>,
    },
    Kick {
        user: UserId,
        message: Option<Arc<str>>,
    },
    Leave {
        message: Option<Arc<str>>,
    },
    Promote {
        user: UserId,
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
        user: UserId,
    },
    Unblock {
        user: UserId,
    },
    /// From the server: a deadline of the party has passed.
    Wake {
        party: u64,
    },
    /// From the server: a user's presence has changed, or they logged out.
    Check {
        user: UserId,
    },
    /// From the matchmaker: the answer to a ticket.
    Answer {
        party: u64,
        go_id: u64,
        matched: bool,
        details: Option<Arc<str>>,
    },
}

impl PartyCommand {
    /// The user it is about, besides its sender.
    pub fn target(&self) -> Option<&UserId> {
        match self {
            PartyCommand::Invite { user }
            | PartyCommand::CancelInvite { user }
            | PartyCommand::Kick { user, .. }
            | PartyCommand::Promote { user }
            | PartyCommand::Block { user }
            | PartyCommand::Unblock { user }
            | PartyCommand::Check { user } => Some(user),
            _ => None,
        }
    }
}

impl PartyRequest {
    /// Whether it is within the limits of a request.
    pub fn is_sound(&self) -> bool {
        self.invalid_member().is_none()
    }

    /// The first member of the request that exceeds its limit. JSON is validated where it is parsed.
    pub fn invalid_member(&self) -> Option<&'static str> {
        let user = |user: &UserId| (!is_user_id(user)).then_some("user");
        let message = |message: &Option<Arc<str>>| {
            let fits = |text: &Arc<str>| {
                text.len() <= limits::PARTY_MESSAGE_BYTES && !text.chars().any(char::is_control)
            };
            (!message.as_ref().is_none_or(fits)).then_some("message")
        };
        let json = |name: &'static str, json: Option<&Arc<str>>| {
            json.is_some_and(|json| json.len() > limits::PARTY_DATA_BYTES).then_some(name)
        };
        let fits = |rid: &Arc<str>| !rid.is_empty() && rid.len() <= limits::PARTY_RID_BYTES;
        if !self.rid.as_ref().is_none_or(fits) {
            return Some("rid");
        }
        match &self.command {
            PartyCommand::Get | PartyCommand::CancelGo | PartyCommand::Accept { .. } => None,
            PartyCommand::Ready { .. } | PartyCommand::Wake { .. } => None,
            PartyCommand::Invite { user: target } | PartyCommand::CancelInvite { user: target } => {
                user(target)
            }
            PartyCommand::Promote { user: target } | PartyCommand::Check { user: target } => user(target),
            PartyCommand::Block { user: target } | PartyCommand::Unblock { user: target } => user(target),
            PartyCommand::Kick { user: target, message: text } => user(target).or_else(|| message(text)),
            PartyCommand::Decline { message: text, .. } => message(text),
            PartyCommand::Leave { message: text } | PartyCommand::Disband { message: text } => message(text),
            PartyCommand::SetData { data } => json("data", Some(data)),
            PartyCommand::Go { params } => json("params", params.as_ref()),
            PartyCommand::Answer { details, .. } => json("details", details.as_ref()),
        }
    }
}
