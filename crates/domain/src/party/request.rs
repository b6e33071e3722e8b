//! A command with its context, and the limits of what it may hold.

use super::User;
use crate::limits;
use alloc::sync::Arc;

/// A command with its context.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// `None`: the server or an app.
    pub user: Option<User>,
    /// The caller's display name.
    pub name: Option<Arc<str>>,
    /// The party that the caller believes to be in. Accept, decline, block and unblock ignore it.
    pub party: Option<u64>,
    /// The version that a leader has seen; 0 before there is a party.
    pub if_version: Option<u64>,
    /// The request id: a request with the same id is executed once.
    pub rid: Option<Arc<str>>,
    pub command: Command,
}

/// What a user, the server or the matchmaker asks for.
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
    /// From the server: a deadline of the party has passed.
    Wake {
        party: u64,
    },
    /// From the server: a user's presence has changed, or they logged out.
    Check {
        user: User,
    },
    /// From the matchmaker: the answer to a ticket.
    Answer {
        party: u64,
        go_id: u64,
        matched: bool,
        details: Option<Arc<str>>,
    },
}

impl Call {
    /// Whether it is within the limits of a request. That JSON is valid is checked where it is parsed.
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
