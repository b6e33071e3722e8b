//! Which users the local users follow, and how much of that is loaded. The edges themselves are in `core.users`, where
//! other features read them.
//! Must hold: an older follow does not undo a newer unfollow; a session that asked for statuses waits until every followee
//! of its user is loaded.

use super::status_feed::KnownStatuses;
use crate::core::listener::ListenerId;
use crate::core::{Core, FollowedUser};
use crate::node::registry::NameEntry;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;

/// How long an unfollow is remembered: longer than any update can be in flight.
const UNFOLLOWED_MS: u64 = 60_000;

#[derive(Default)]
pub(super) struct FollowLists {
    lists: BTreeMap<Arc<str>, Box<FollowList>>,
}

/// The follow list of one local user.
struct FollowList {
    entry: Arc<NameEntry>,
    /// The version of the user's visibility that is known.
    visibility_version: u64,
    unfollowed: Vec<Unfollowed>,
    /// The whole list was read at least once.
    complete: bool,
    /// How often loading the list has started.
    round: u32,
    waiting: Vec<WaitingSession>,
}

/// Remembered so that an older update does not bring the follow back.
struct Unfollowed {
    followee: Arc<str>,
    version: u64,
    at: Time,
}

/// A session that waits until every followee of its user is loaded.
pub(super) enum WaitingSession {
    /// It asked for all statuses.
    All(ListenerId),
    /// It migrated from another node and has these: it is sent the differences.
    Differences(ListenerId, KnownStatuses),
}

impl FollowLists {
    pub fn contains(&self, user: &str) -> bool {
        self.lists.contains_key(user)
    }

    /// The local users, in order.
    pub fn users(&self) -> impl Iterator<Item = &Arc<str>> {
        self.lists.keys()
    }

    pub fn add_user(&mut self, user: Arc<str>, entry: Arc<NameEntry>) {
        let list = FollowList {
            entry,
            visibility_version: 0,
            unfollowed: Vec::new(),
            complete: false,
            round: 0,
            waiting: Vec::new(),
        };
        self.lists.insert(user, Box::new(list));
    }

    pub fn remove_user(&mut self, user: &str) -> Option<Arc<NameEntry>> {
        self.lists.remove(user).map(|list| list.entry)
    }

    /// False: this version of the user's visibility is not newer, or they are not local.
    pub fn note_visibility(&mut self, user: &str, version: u64) -> bool {
        let newer = self.lists.get_mut(user).filter(|list| version > list.visibility_version);
        newer.map(|list| list.visibility_version = version).is_some()
    }

    /// A load of a list begins.
    pub fn begin_round(&mut self, user: &str) {
        if let Some(list) = self.lists.get_mut(user) {
            list.round += 1;
        }
    }

    /// The whole list was read.
    pub fn set_complete(&mut self, user: &str) {
        if let Some(list) = self.lists.get_mut(user) {
            list.complete = true;
        }
    }

    pub fn is_complete(&self, user: &str) -> bool {
        self.lists.get(user).is_some_and(|list| list.complete)
    }

    /// The current load of a list. None: the user is not local.
    pub fn round(&self, user: &str) -> Option<u32> {
        self.lists.get(user).map(|list| list.round)
    }

    /// A local user follows another user. True: this is new.
    pub fn follow(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        followee: &Arc<str>,
        edge: FollowedUser,
    ) -> bool {
        let Some(list) = self.lists.get(user) else { return false };
        let Some(local) = core.users.get_mut(user) else { return false };
        if list.unfollowed.iter().any(|other| other.followee == *followee && other.version > edge.version) {
            return false;
        }
        if let Some(known) = local.following.get_mut(followee) {
            known.round = edge.round;
            if edge.version >= known.version {
                *known = FollowedUser { status_sent: known.status_sent, check: known.check, ..edge };
            }
            return false;
        }
        local.following.insert(followee.clone(), edge);
        core.users.add_follower(followee, user);
        true
    }

    /// A newer follow clears the record of an unfollow.
    pub fn forget_unfollowed(&mut self, now: Time, user: &str, followee: &str, version: u64) {
        let Some(list) = self.lists.get_mut(user) else { return };
        list.expire_unfollowed(now);
        list.unfollowed.retain(|other| *other.followee != *followee || other.version >= version);
    }

    /// A local user stopped following another. False: they did not follow, or have followed again since.
    pub fn unfollow(&mut self, core: &mut Core, user: &str, followee: &Arc<str>, version: u64) -> bool {
        let Some(list) = self.lists.get_mut(user) else { return false };
        list.expire_unfollowed(core.now);
        let Some(local) = core.users.get_mut(user) else { return false };
        let known = local.following.get(followee).map(|edge| edge.version);
        if known.is_some_and(|known| known >= version) {
            return false;
        }
        list.unfollowed.push(Unfollowed { followee: followee.clone(), version, at: core.now });
        local.following.remove(followee).is_some()
    }

    /// Removes the follows that the last load of the list did not find. Returns the followees.
    pub fn remove_unlisted(&mut self, core: &mut Core, user: &str) -> Vec<Arc<str>> {
        let Some(round) = self.round(user) else { return Vec::new() };
        let Some(local) = core.users.get_mut(user) else { return Vec::new() };
        let mut unlisted = local.followees();
        unlisted.retain(|followee| local.following.get(followee).is_some_and(|edge| edge.round != round));
        for followee in &unlisted {
            local.following.remove(followee);
        }
        unlisted
    }

    pub fn wait(&mut self, user: &str, waiting: WaitingSession) {
        if let Some(list) = self.lists.get_mut(user) {
            list.waiting.push(waiting);
        }
    }

    /// The statuses that a session which still waits has. None: it does not wait.
    pub fn known_to_waiting(&self, user: &str, id: ListenerId) -> Option<KnownStatuses> {
        let waiting = &self.lists.get(user)?.waiting;
        waiting.iter().find_map(|session| match session {
            WaitingSession::All(waiting) => (*waiting == id).then(Vec::new),
            WaitingSession::Differences(waiting, known) => (*waiting == id).then(|| known.clone()),
        })
    }

    /// Whether sessions wait for the statuses of a user's followees, and the followees are known.
    pub fn is_awaited(&self, user: &str) -> bool {
        self.lists.get(user).is_some_and(|list| list.complete && !list.waiting.is_empty())
    }

    pub fn take_waiting(&mut self, user: &str) -> Vec<WaitingSession> {
        self.lists.get_mut(user).map_or_else(Vec::new, |list| std::mem::take(&mut list.waiting))
    }
}

impl FollowList {
    fn expire_unfollowed(&mut self, now: Time) {
        self.unfollowed.retain(|unfollowed| now.since(unfollowed.at) < UNFOLLOWED_MS);
    }
}
