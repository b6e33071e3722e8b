//! API keys.

use std::sync::Arc;
use tavern_domain::{Scopes, Time};

/// An API key. The key itself is never stored, only its hash.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiKey {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub hash: [u8; 32],
    pub scopes: Scopes,
    pub created_at: Time,
    /// A revoked key stays, so that a list can show when it was revoked.
    pub revoked_at: Option<Time>,
}
