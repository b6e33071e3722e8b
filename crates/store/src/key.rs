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
    /// It is refused from then on; None: never.
    pub expires_at: Option<Time>,
    /// About when it was used last; written at most once in a while.
    pub last_used_at: Option<Time>,
    /// A revoked key stays, so that a list can show when it was revoked.
    pub revoked_at: Option<Time>,
}
