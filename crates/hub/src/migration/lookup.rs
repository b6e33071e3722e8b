//! A lookup of a session by a client that wants to resume it, and its result.

use std::sync::Arc;
use tavern_domain::{Identity, SessionKey};
use tavern_wire::bus::migration::SessionClaim;

/// The client that looks for a session.
#[derive(Clone, Debug)]
pub struct SessionLookup<'a> {
    pub key: SessionKey,
    /// The node that the session secret names.
    pub node: &'a str,
    /// The identity of the token or key. Without one, only sessions that were opened without a credential are found.
    pub identity: Option<&'a Identity>,
    /// Do not take the session away from a push connection: the client sends a single command.
    pub detached_only: bool,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// The session is on this node.
    Here,
    /// Other nodes are asked. The link is named in `Effects::ready` when the lookup should be repeated.
    Wait,
    NotFound,
    /// The session ended with `bye` in the last minute.
    Ended,
    /// The session has a push connection on this node, and the lookup was for a detached one.
    AttachedTo(Arc<str>),
}

impl SessionLookup<'_> {
    pub(super) fn claim(&self) -> SessionClaim {
        match self.identity {
            None => SessionClaim::Secret,
            Some(Identity { key: Some(key), .. }) => SessionClaim::Key(key.to_string()),
            Some(Identity { user: Some(user), .. }) => SessionClaim::User(user.to_string()),
            Some(_) => SessionClaim::Anonymous,
        }
    }
}
