//! The rows of users outside of channels: last seen, visibility, follows.
//! Must hold: last seen never goes back; a user follows another at most once.

use crate::page::{Page, Versioned};
use crate::presence::PresenceRow;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Visibility;

/// What is stored of a user outside of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRow {
    pub user: Arc<str>,
    /// The store keeps the latest time it was given.
    pub last_seen: Option<Time>,
    pub visibility: Visibility,
}

/// One user follows another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    pub follower: Arc<str>,
    pub followee: Arc<str>,
    pub since: Time,
}

/// One row of a list of follows, and whether the other user follows back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowRow {
    pub follow: Follow,
    pub version: u64,
    pub mutual: bool,
}

/// A user was seen at a time. Changes nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSeenUpdate {
    pub user: Arc<str>,
    pub at: Time,
}

/// Everything about one user at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct UserSnapshot {
    pub user: Arc<str>,
    pub known: Option<Versioned<UserRow>>,
    /// By channel; bounded by `limits::PAGE_ROWS`.
    pub presences: Vec<Versioned<PresenceRow>>,
    /// The user and the viewer follow each other.
    pub mutual: bool,
}

/// A page of follows, from one end.
pub type FollowPage = Page<FollowRow>;
