//! Rows of local users as they were last read or written here: decisions start from them instead of reading. They may be
//! stale: a commit expects their versions, and a conflict drops them. Must hold: bounded by the local users and their
//! parties.

use crate::core::Core;
use crate::rows::MembershipRow;
use crate::user::is_own_channel;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::party::Membership;
use tavern_domain::presence::{Attendance, ChannelClient};
use tavern_store::{Document, DocumentKey, Found, PresenceKey, PresenceRow, RowKey, Versioned};

#[derive(Default)]
pub(crate) struct RowCache {
    /// The memberships and parties of local users. None: there is no such document.
    pub documents: HashMap<DocumentKey, Option<Versioned<Arc<[u8]>>>, RandomState>,
    /// The memberships of local users as they were last committed here, decoded, with their versions.
    pub memberships: HashMap<Arc<str>, Versioned<Membership>, RandomState>,
    /// Local users in the channel of their party.
    pub members: HashMap<PresenceKey, Versioned<PresenceRow>, RandomState>,
}

impl RowCache {
    /// Nothing is known about the membership of a user any more.
    pub fn forget_membership(&mut self, user: &Arc<str>) {
        self.documents.remove(&MembershipRow::key(user));
        self.memberships.remove(user);
    }

    /// A document, as a read would return it.
    pub fn find_document(&self, key: &DocumentKey) -> Option<Found> {
        let found = self.documents.get(key)?.as_ref();
        let document = |body: &Arc<[u8]>| Document { key: key.clone(), body: body.clone() };
        let found = found.map(|found| Versioned { version: found.version, row: document(&found.row) });
        Some(Found::Document(found))
    }
}

/// The presence of a local user, as a read would return it. None: it is not known here.
pub(crate) fn find_presence(core: &Core, key: &PresenceKey) -> Option<Versioned<PresenceRow>> {
    core.cache.members.get(key).cloned().or_else(|| own_presence(core, key))
}

/// The presence of a local user in their own channel, if it is known: one client, whose session joined last.
fn own_presence(core: &Core, key: &PresenceKey) -> Option<Versioned<PresenceRow>> {
    let local = core.users.get(&key.user).filter(|_| is_own_channel(&key.channel))?;
    let visibility = local.visibility?;
    let sessions = local.sessions.iter().filter_map(|id| core.session(*id));
    let (session, &(version, since)) =
        sessions.filter_map(|session| Some((session, session.alone.get(&key.channel)?))).next()?;
    let state = session.present.state(&key.channel).filter(|_| !session.lost && !session.frozen)?.clone();
    let node = core.node.node_epoch();
    let client = ChannelClient { client: session.client, node, state, since, lost: None };
    let attendance = Attendance::restore(vec![client], since, None);
    let name = session.identity.name.clone();
    Some(Versioned {
        version,
        row: PresenceRow { key: key.clone(), anonymous: false, name, visibility, attendance },
    })
}

/// A commit has conflicted with another version of a row: the cached one is stale.
pub(crate) fn forget_stale(core: &mut Core, key: &RowKey) {
    match key {
        RowKey::Document(key) => drop(core.cache.documents.remove(key)),
        RowKey::Presence(key) => {
            core.cache.members.remove(key);
            for id in core.users.sessions(&key.user).to_vec() {
                if let Some(session) = core.session_mut(id) {
                    session.alone.remove(&key.channel);
                }
            }
        }
        _ => {}
    }
}
