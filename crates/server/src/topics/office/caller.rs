//! Whoever asks the office: the key that was shown, by its id. Must hold: what is made with a key is that key's; an admin
//! may do with it whatever its owner may.

use std::sync::Arc;
use tavern_domain::{Identity, Scope};

/// Who publishes and owns where no key is shown.
const NOBODY: &str = "dev";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub id: Arc<str>,
    pub admin: bool,
}

impl Caller {
    pub fn of(identity: &Identity) -> Caller {
        let id = identity.key.clone().unwrap_or_else(|| NOBODY.into());
        Caller { id, admin: identity.scopes.has(Scope::Admin) }
    }

    pub fn owns(&self, owner: &str) -> bool {
        *self.id == *owner
    }

    pub fn may(&self, owner: &str) -> bool {
        self.admin || self.owns(owner)
    }
}
