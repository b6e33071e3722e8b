//! Stored sessions, in memory. Ordered by the text of the client id, which is not the order of its bits.

use super::page::page;
use crate::page::{Page, Versioned};
use crate::session::StoredSession;
use std::collections::BTreeMap;
use std::ops::Bound;
use tavern_domain::ClientId;

#[derive(Default)]
pub(super) struct Sessions(BTreeMap<String, Versioned<StoredSession>>);

impl Sessions {
    pub fn version(&self, client: ClientId) -> u64 {
        self.0.get(&client.to_string()).map_or(0, |session| session.version)
    }

    pub fn get(&self, client: ClientId) -> Option<Versioned<StoredSession>> {
        self.0.get(&client.to_string()).cloned()
    }

    pub fn put(&mut self, session: &StoredSession, version: u64) {
        self.0.insert(session.client.to_string(), Versioned { version, row: session.clone() });
    }

    pub fn delete(&mut self, client: ClientId) {
        self.0.remove(&client.to_string());
    }

    pub fn page(
        &self,
        node: Option<&str>,
        after: Option<ClientId>,
        limit: u32,
    ) -> Page<Versioned<StoredSession>> {
        let from = after.map_or(Bound::Unbounded, |client| Bound::Excluded(client.to_string()));
        let sessions = self.0.range((from, Bound::Unbounded)).map(|(_, session)| session);
        let wanted = sessions.filter(|session| node.is_none_or(|node| &*session.row.owner.node == node));
        page(limit, |session| session.row.body.len(), wanted.cloned())
    }
}
