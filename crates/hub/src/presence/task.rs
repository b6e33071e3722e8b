//! What happens to somebody's presence, and what was asked of the store for it.

use super::astray::Swept;
use super::hold::Holding;
use crate::core::Claim;
use crate::core::listener::ListenerId;
use crate::rows::{Astray, Membership};
use std::sync::Arc;
use tavern_domain::presence::{Change, Departure, Input, Stay, Visibility};
use tavern_domain::{ClientId, Time};
use tavern_engine::{Commit, Hold, Presence as PresenceRow, PresenceKey, Versioned};

/// What happens to somebody in a channel.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Input(Input),
    /// Time has passed.
    Wake,
    /// He shows himself to others than before.
    Face(Visibility),
    /// An app holds him there, and those who carry him have moved: these have gone.
    Ride {
        gone: Vec<(ClientId, Departure)>,
    },
    /// An app takes him out.
    Release,
}

/// What happens to whom, and who waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub key: PresenceKey,
    pub name: Option<Arc<str>>,
    pub anonymous: bool,
    /// To whom he shows himself; None: to whom he did.
    pub visibility: Option<Visibility>,
    pub act: Act,
    /// Whose it is, while that one is here.
    pub listener: Option<ListenerId>,
    pub claim: Option<Claim>,
    /// It joins where it was: there is something to read.
    pub again: bool,
    pub tries: u8,
    /// Whether it has happened is not known: this only finds out.
    pub doubted: bool,
    /// What is kept of him for parties, once it was read for this.
    pub membership: Option<Membership>,
    /// The same as it was known when the step began: its session may have ended since.
    pub hint: Option<Membership>,
}

pub(crate) enum Task {
    Read(Step),
    Commit {
        step: Step,
        at: Time,
        changes: Vec<Change>,
        due: Option<Time>,
        stay: Option<Stay>,
        /// Since when the client is all there is of its user.
        alone: Option<Time>,
    },
    /// What is kept of him for parties is being read.
    Membership(Step, Option<Versioned<PresenceRow>>),
    Holding(Holding),
    /// What a ride depends on is being read: the hold first.
    Ride(Step, Option<Versioned<Hold>>),
    Roster {
        channel: Arc<str>,
    },
    /// Whether a watched channel is where the store says.
    Look {
        channel: Arc<str>,
    },
    /// A user is swept: first he is read, then all of it is one commit.
    Astray {
        astray: Astray,
        tries: u8,
        swept: Option<(Vec<Swept>, Commit)>,
    },
    Who {
        claim: Claim,
        counts_only: bool,
        viewer: Option<Arc<str>>,
    },
}

impl Step {
    /// A step that is nobody's here: he is who he was.
    pub fn of(key: PresenceKey, act: Act) -> Step {
        let (name, anonymous, visibility) = (None, false, None);
        Step {
            key,
            name,
            anonymous,
            visibility,
            act,
            listener: None,
            claim: None,
            again: false,
            tries: 0,
            doubted: false,
            membership: None,
            hint: None,
        }
    }
}

impl Task {
    /// Whose step it is.
    pub fn listener(&self) -> Option<ListenerId> {
        match self {
            Task::Read(step)
            | Task::Ride(step, _)
            | Task::Membership(step, _)
            | Task::Commit { step, .. } => step.listener,
            _ => None,
        }
    }
}
