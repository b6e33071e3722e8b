//! The rows of parties and their members in the cache of the shard. Must hold: a party is cached only while a local user
//! sees it as theirs.

use super::decision::{PartyOutcome, party_key};
use super::view::PartyViews;
use crate::core::Core;
use crate::rows::{MembershipRow, member_key};
use std::sync::Arc;
use tavern_domain::party::Party;
use tavern_store::{Receipt, RowKey, Versioned};
use tavern_wire::record;

/// Caches the committed rows of local users: their next command need not read them.
pub(super) fn cache_rows(
    core: &mut Core,
    views: &PartyViews,
    decided: &PartyOutcome,
    parties: &[(u64, Option<Arc<Party>>)],
    receipt: &Receipt,
) {
    let changes = &decided.changes;
    for (user, _) in changes.memberships.iter().filter(|(_, membership)| membership.is_empty()) {
        if core.users.contains(user) {
            core.cache.forget_membership(user);
            core.cache.documents.insert(MembershipRow::key(user), None);
        }
    }
    for document in &decided.documents {
        let name = document.key.name();
        let key = RowKey::Document(document.key.clone());
        let Some(version) = receipt.version(&key) else { continue };
        let is_membership = document.key.kind() == record::MEMBERSHIP;
        let membership = changes.memberships.iter().find(|(user, _)| is_membership && **user == *name);
        let local = match membership {
            Some((user, membership)) if core.users.contains(user) => {
                let row = Versioned { version, row: membership.clone() };
                core.cache.memberships.insert(user.clone(), row);
                true
            }
            Some(_) => false,
            None => is_shown(views, parties, name),
        };
        if local {
            let row = Versioned { version, row: document.body.clone() };
            core.cache.documents.insert(document.key.clone(), Some(row));
        }
    }
    for (id, held) in &decided.held {
        let key = held.row.key.clone();
        let version = held.version(receipt).filter(|_| views.party_of(&key.user) == Some(*id));
        match version {
            Some(version) => {
                core.cache.members.insert(key, Versioned { version, row: held.row.clone() });
            }
            None => drop(core.cache.members.remove(&key)),
        }
    }
}

/// Whether a changed party is the one that a local user sees.
fn is_shown(views: &PartyViews, parties: &[(u64, Option<Arc<Party>>)], name: &str) -> bool {
    let party = parties.iter().find(|(id, _)| name.parse() == Ok(*id));
    let members = party.and_then(|(_, party)| party.as_ref()).map_or(&[][..], |party| &party.members);
    members.iter().any(|member| views.party_of(&member.user) == party.map(|(id, _)| *id))
}

/// A user is not in this party any more, or not local.
pub(super) fn forget_rows(core: &mut Core, user: &Arc<str>, party: u64) {
    core.cache.documents.remove(&party_key(party));
    core.cache.members.remove(&member_key(party, user));
}
