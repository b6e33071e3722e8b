//! One change of one user's presence in one channel: the action, the user, and the command that waits for it.

use crate::core::ReplyTo;
use crate::core::listener::ListenerId;
use crate::rows::MembershipRow;
use std::sync::Arc;
use tavern_domain::ClientId;
use tavern_domain::presence::{AttendanceInput, OfflineReason, Visibility};
use tavern_store::PresenceKey;

/// What happens to a user in a channel.
#[derive(Clone, Debug)]
pub(crate) enum PresenceAction {
    Input(AttendanceInput),
    /// A deadline is due.
    Wake,
    /// The user's visibility changed: the presence takes over what is stored for the user. `others`, once it is decided:
    /// where else they are shown as before.
    SyncVisibility {
        others: Vec<PresenceKey>,
    },
    /// An app or a party holds the user there: the held presence follows its carrier. These clients have left the
    /// carrier. `own` is the client of a hold without a carrier.
    SyncHeld {
        departed: Vec<(ClientId, OfflineReason)>,
        own: ClientId,
    },
    /// An app removes the user.
    Release,
}

#[derive(Clone, Debug)]
pub(crate) struct PresenceChange {
    pub key: PresenceKey,
    pub name: Option<Arc<str>>,
    pub anonymous: bool,
    /// Who sees a user who is not present yet. A presence that is stored keeps its own.
    pub visibility: Option<Visibility>,
    pub action: PresenceAction,
    /// The session that causes it, if it is local.
    pub listener: Option<ListenerId>,
    pub claim: Option<ReplyTo>,
    /// The client was present in this channel before: read the row first.
    pub reads_first: bool,
    /// The outcome of its commit is unknown: only find out whether it was applied.
    pub unknown: bool,
    /// The user's membership as cached when the change began, for the first attempt. May be stale.
    pub cached_membership: Option<Arc<MembershipRow>>,
}

impl PresenceChange {
    /// A change without a local session: the stored name and visibility are kept.
    pub fn of(key: PresenceKey, action: PresenceAction) -> PresenceChange {
        PresenceChange {
            key,
            name: None,
            anonymous: false,
            visibility: None,
            action,
            listener: None,
            claim: None,
            reads_first: false,
            unknown: false,
            cached_membership: None,
        }
    }

    /// Not a command: a session reconnects, is announced again, or is lost.
    pub fn is_automatic(&self) -> bool {
        let own = matches!(
            self.action,
            PresenceAction::Input(
                AttendanceInput::Join { .. } | AttendanceInput::Lose { .. } | AttendanceInput::LoseAt { .. }
            )
        );
        self.claim.is_none() && self.listener.is_some() && own
    }

    /// The visibility of a user is brought to one of their presences.
    pub fn sync_visibility(key: PresenceKey) -> PresenceChange {
        PresenceChange::of(key, PresenceAction::SyncVisibility { others: Vec::new() })
    }

    /// The user leaves on purpose, or is removed.
    pub fn is_departure(&self) -> bool {
        matches!(self.action, PresenceAction::Input(AttendanceInput::Leave { .. }) | PresenceAction::Release)
    }

    pub fn is_join(&self) -> bool {
        matches!(self.action, PresenceAction::Input(AttendanceInput::Join { .. }))
    }

    /// It is about the user's own channel, which shows whether they are online.
    pub fn is_own_channel(&self) -> bool {
        !self.anonymous && crate::user::is_own_channel(&self.key.channel)
    }
}
