//! The rows of people: what is known of a user beyond any channel, and who follows whom.
//! Must hold: when a user was last seen never goes back; a pair follows once.

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
    pub mutual: bool,
}

/// What a question about people finds.
pub type Users = Vec<Option<Versioned<User>>>;
pub type Edges = Page<Edge>;
