//! The users with a session on this shard: their sessions, their visibility, and whom they follow. Written by
//! `people`, read by every feature that must know which users see each other.

use crate::core::listener::ListenerId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::presence::{Viewer, Visibility};

#[derive(Default)]
pub(crate) struct Users {
    local: HashMap<Arc<str>, Box<LocalUser>, RandomState>,
    /// The local users who follow a user, by the user who is followed.
    followers: HashMap<Arc<str>, Vec<Arc<str>>, RandomState>,
}

#[derive(Default)]
pub(crate) struct LocalUser {
    pub sessions: Vec<ListenerId>,
    /// None: not loaded yet.
    pub visibility: Option<Visibility>,
    pub following: HashMap<Arc<str>, FollowedUser, RandomState>,
}

/// A user whom a local user follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowedUser {
    pub version: u64,
    /// The other follows back.
    pub mutual: bool,
    /// `mutual` is being read together with the other's visibility: until then it counts for no status.
    pub check: Option<MutualCheck>,
    /// The last load of the whole list that found it, or during or after which it was created.
    pub round: u32,
    /// The follower's sessions were sent the followee's status when it was created. False for edges that the first
    /// load of the list found.
    pub status_sent: bool,
}

/// What a read of a follow and of the followee's visibility decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MutualCheck {
    /// A later check of the same follow has another number, and needs a later read.
    pub number: u32,
    pub then: AfterCheck,
}

/// What the follower is sent after a check. The greatest reason counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AfterCheck {
    /// Nothing: their sessions wait for all statuses.
    Nothing,
    /// The status, if they see the followee now.
    Change,
    /// The status.
    Status,
}

impl LocalUser {
    /// Sorted, so that every run has the same order.
    pub fn followees(&self) -> Vec<Arc<str>> {
        let mut followees: Vec<Arc<str>> = self.following.keys().cloned().collect();
        followees.sort();
        followees
    }
}

impl Users {
    pub fn get(&self, user: &str) -> Option<&LocalUser> {
        self.local.get(user).map(|local| &**local)
    }

    pub fn get_mut(&mut self, user: &str) -> Option<&mut LocalUser> {
        self.local.get_mut(user).map(|local| &mut **local)
    }

    pub fn contains(&self, user: &str) -> bool {
        self.local.contains_key(user)
    }

    pub fn add_session(&mut self, user: &Arc<str>, id: ListenerId) {
        self.local.entry(user.clone()).or_default().sessions.push(id);
    }

    /// True: that was the user's last session here.
    pub fn remove_session(&mut self, user: &str, id: ListenerId) -> bool {
        let Some(local) = self.local.get_mut(user) else { return false };
        local.sessions.retain(|other| *other != id);
        local.sessions.is_empty()
    }

    pub fn remove(&mut self, user: &str) {
        self.local.remove(user);
    }

    /// The sessions that a user has here.
    pub fn sessions(&self, user: &str) -> &[ListenerId] {
        self.local.get(user).map_or(&[][..], |local| &local.sessions)
    }

    /// The visibility of a local user, as far as it is known.
    pub fn visibility(&self, user: &str) -> Option<Visibility> {
        self.local.get(user).and_then(|local| local.visibility)
    }

    /// Whether a viewer may see a user with this visibility.
    pub fn sees(&self, viewer: Option<&str>, user: &str, visibility: Visibility) -> bool {
        let viewer = match viewer {
            Some(viewer) if viewer == user => Viewer::Themselves,
            Some(viewer) => Viewer::Other { mutual: self.is_mutual(viewer, user) },
            None => Viewer::Other { mutual: false },
        };
        visibility.shows(viewer)
    }

    pub fn is_mutual(&self, follower: &str, followee: &str) -> bool {
        let edge = self.local.get(follower).and_then(|local| local.following.get(followee));
        edge.is_some_and(|edge| edge.mutual)
    }

    /// Whether a follower may be sent the status of a user with this visibility.
    pub fn sees_status(&self, follower: &str, user: &str, visibility: Visibility) -> bool {
        let mutual = self.is_mutual(follower, user) && !self.is_checked(follower, user);
        visibility.shows(Viewer::Other { mutual })
    }

    /// Whether it is being read if two users follow each other.
    pub fn is_checked(&self, follower: &str, followee: &str) -> bool {
        let edge = self.local.get(follower).and_then(|local| local.following.get(followee));
        edge.is_some_and(|edge| edge.check.is_some())
    }

    pub fn follow_mut(&mut self, follower: &str, followee: &str) -> Option<&mut FollowedUser> {
        self.get_mut(follower).and_then(|local| local.following.get_mut(followee))
    }

    pub fn follows(&self, follower: &str, followee: &str) -> bool {
        self.local.get(follower).is_some_and(|local| local.following.contains_key(followee))
    }

    /// The local users who follow a user.
    pub fn followers(&self, user: &str) -> &[Arc<str>] {
        self.followers.get(user).map_or(&[][..], |followers| followers)
    }

    pub fn add_follower(&mut self, followee: &Arc<str>, follower: &Arc<str>) {
        self.followers.entry(followee.clone()).or_default().push(follower.clone());
    }

    /// True: no local user follows them now.
    pub fn remove_follower(&mut self, followee: &str, follower: &str) -> bool {
        let Some(followers) = self.followers.get_mut(followee) else { return true };
        followers.retain(|other| &**other != follower);
        if !followers.is_empty() {
            return false;
        }
        self.followers.remove(followee);
        true
    }

    /// The local sessions of a user and of their followers, who may see more of the user than others do.
    pub fn sessions_close_to<'a>(&'a self, user: &'a str) -> impl Iterator<Item = ListenerId> + use<'a> {
        let users = self.followers(user).iter().map(|name| &**name).chain([user]);
        users.filter_map(|name| self.local.get(name)).flat_map(|local| local.sessions.iter().copied())
    }
}
