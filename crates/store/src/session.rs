//! Sessions that wait in the store for their clients.

use crate::node::Writer;
use std::sync::Arc;
use tavern_domain::{ClientId, SessionKey, Time};

/// A session that waits in the store for its client to come back to any node.
#[derive(Clone, Debug)]
pub struct StoredSession {
    pub client: ClientId,
    pub secret: SessionKey,
    pub user: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
    /// The owner. Ownership changes by a commit that expects the version that was read.
    pub owner: Writer,
    /// Subscriptions, rights and mailbox, as `SessionBody` writes them.
    pub body: Arc<[u8]>,
    pub detached_at: Option<Time>,
    pub expires_at: Time,
}

impl PartialEq for StoredSession {
    /// By hand because secrets have no `==`: they are compared in constant time.
    fn eq(&self, other: &StoredSession) -> bool {
        self.secret.matches(other.secret)
            && (self.client, &self.user, &self.name, &self.owner)
                == (other.client, &other.user, &other.name, &other.owner)
            && (&self.body, self.detached_at, self.expires_at)
                == (&other.body, other.detached_at, other.expires_at)
    }
}
