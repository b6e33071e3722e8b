//! The users whose updates this shard needs: their names in the node's registry, and the subscriptions on the bus.
//! Must hold: a user is loaded only after the bus has confirmed the subscription to their updates, or refused it.

use crate::connection::LinkId;
use crate::core::Core;
use crate::event::Namespace;
use crate::node::registry::NameEntry;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The link id under which this feature itself, not a connection, waits for the bus.
pub(crate) const PEOPLE_LINK: LinkId = LinkId(u32::MAX);

/// Why this shard needs a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UserRole {
    /// A local user follows them.
    Followed,
    /// They have a session here.
    Local,
}

#[derive(Default)]
pub(super) struct UserInterests {
    /// Users whose updates the bus does not deliver yet.
    pending: BTreeSet<(Arc<str>, UserRole)>,
    /// The bus refused a subscription: retry at the next check.
    refused: bool,
}

impl UserInterests {
    /// Routes updates about a user to this shard from now on.
    pub fn add(&self, core: &Core, user: &str) -> Arc<NameEntry> {
        let entry = core.node.registry.intern(Namespace::People, user.as_bytes());
        entry.added(core.index, true);
        entry
    }

    /// `last`: this shard needs the user for no other reason.
    pub fn remove(&self, core: &mut Core, entry: &Arc<NameEntry>, last: bool) {
        let unused = entry.removed(core.index, last);
        core.node.registry.forget(Namespace::People, entry);
        if unused {
            core.release_later(Namespace::People, entry.name.clone());
        }
    }

    /// Subscribes to updates about these users on the bus. Returns those who can be loaded now; the others are
    /// pending.
    pub fn request(&mut self, core: &mut Core, users: Vec<Arc<str>>, role: UserRole) -> Vec<Arc<str>> {
        if users.is_empty() {
            // If there was a refusal, it was for other users.
            return users;
        }
        let node = core.node.clone();
        let link = (core.index, PEOPLE_LINK);
        let mut hold = node.bus_interests.lock();
        if hold.has_failed(link) {
            // Load them without the bus; until the subscription is retried, the regular check finds missed updates.
            self.refused = true;
            return users;
        }
        let waits =
            hold.request_each(users.iter().map(|user| (Namespace::People, user.as_bytes())), Some(link));
        drop(hold);
        let (pending, carried) = users.into_iter().zip(waits).partition::<Vec<_>, _>(|(_, waits)| *waits);
        for (user, _) in pending {
            core.release_later(Namespace::People, user.as_bytes().into());
            self.pending.insert((user, role));
        }
        carried.into_iter().map(|(user, _)| user).collect()
    }

    pub fn is_pending(&self, user: &Arc<str>, role: UserRole) -> bool {
        self.pending.contains(&(user.clone(), role))
    }

    /// The pending users with a session here, and the pending users who are followed.
    pub fn take_pending(&mut self) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let (mut local, mut followed) = (Vec::new(), Vec::new());
        for (user, role) in std::mem::take(&mut self.pending) {
            match role {
                UserRole::Local => local.push(user),
                UserRole::Followed => followed.push(user),
            }
        }
        (local, followed)
    }

    /// Whether the bus refused something since the last call.
    pub fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }
}
