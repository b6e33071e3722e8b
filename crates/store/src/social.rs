//! The rows of people: what is known of a user beyond any channel, and who follows whom.
//! Must hold: when a user was last seen never goes back; a pair follows once.

use crate::presence::Presence;
use crate::row::{Page, Versioned};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Visibility;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub user: Arc<str>,
    /// The store keeps the latest that it was ever given.
    pub last_seen: Option<Time>,
    pub visibility: Visibility,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follow {
    pub follower: Arc<str>,
    pub followee: Arc<str>,
    pub since: Time,
}

/// One row of a list of follows, with whether the other follows back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub follow: Follow,
    pub version: u64,
    pub mutual: bool,
}

/// Somebody was there at a time. Changes nothing else about him.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub user: Arc<str>,
    pub at: Time,
}

/// Everything about one user at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Person {
    pub user: Arc<str>,
    pub known: Option<Versioned<User>>,
    /// Where he is, by channel; bounded by `limits::PAGE_ROWS`.
    pub presences: Vec<Versioned<Presence>>,
    /// He and whoever asked follow each other.
    pub mutual: bool,
}

pub type Edges = Page<Edge>;
