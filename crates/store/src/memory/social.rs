//! Users and follows, in memory.

use super::page::{page, rows};
use crate::page::{Page, Versioned};
use crate::row::{Row, RowKey};
use crate::social::{Follow, FollowRow, LastSeenUpdate, UserRow};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use tavern_domain::presence::Visibility;

#[derive(Default)]
pub(super) struct MemoryPeople {
    users: BTreeMap<Arc<str>, Versioned<UserRow>>,
    /// Follower, then followee.
    follows: BTreeMap<(Arc<str>, Arc<str>), Versioned<Follow>>,
    /// Followee, then follower.
    followers: BTreeMap<(Arc<str>, Arc<str>), ()>,
}

impl MemoryPeople {
    pub fn user_version(&self, user: &str) -> u64 {
        self.users.get(user).map_or(0, |row| row.version)
    }

    pub fn user(&self, user: &str) -> Option<Versioned<UserRow>> {
        self.users.get(user).cloned()
    }

    pub fn put_user(&mut self, user: &UserRow, version: u64) {
        let before = self.users.get(&user.user).and_then(|row| row.row.last_seen);
        let row = UserRow { last_seen: user.last_seen.max(before), ..user.clone() };
        self.users.insert(user.user.clone(), Versioned { version, row });
    }

    pub fn user_rows(&self, after: Option<&RowKey>, limit: u32) -> Page<Versioned<Row>> {
        let after = after.and_then(|key| match key {
            RowKey::User(user) => Some(user),
            _ => None,
        });
        rows(&self.users, after, limit, Row::User)
    }

    pub fn follow_rows(&self, after: Option<&RowKey>, limit: u32) -> Page<Versioned<Row>> {
        let after = after.and_then(|key| match key {
            RowKey::Follow { follower, followee } => Some((follower.clone(), followee.clone())),
            _ => None,
        });
        rows(&self.follows, after.as_ref(), limit, Row::Follow)
    }

    pub fn see(&mut self, seen: &LastSeenUpdate, version: u64) {
        let known = self.users.entry(seen.user.clone()).or_insert_with(|| {
            let row = UserRow { user: seen.user.clone(), last_seen: None, visibility: Visibility::Everyone };
            Versioned { version, row }
        });
        known.row.last_seen = known.row.last_seen.max(Some(seen.at));
    }

    pub fn are_mutual(&self, one: &Arc<str>, other: &Arc<str>) -> bool {
        self.follow_version(one, other) > 0 && self.follow_version(other, one) > 0
    }

    pub fn delete_user(&mut self, user: &str) {
        self.users.remove(user);
    }

    pub fn follow_version(&self, follower: &Arc<str>, followee: &Arc<str>) -> u64 {
        self.follows.get(&(follower.clone(), followee.clone())).map_or(0, |row| row.version)
    }

    pub fn put_follow(&mut self, follow: &Follow, version: u64) {
        let Follow { follower, followee, .. } = follow;
        let row = Versioned { version, row: follow.clone() };
        self.follows.insert((follower.clone(), followee.clone()), row);
        self.followers.insert((followee.clone(), follower.clone()), ());
    }

    pub fn delete_follow(&mut self, follower: &Arc<str>, followee: &Arc<str>) {
        self.follows.remove(&(follower.clone(), followee.clone()));
        self.followers.remove(&(followee.clone(), follower.clone()));
    }

    pub fn following(&self, user: &Arc<str>, after: Option<&Arc<str>>, limit: u32) -> Page<FollowRow> {
        let rows = self.follows.range((from(user, after), Bound::Unbounded));
        let rows = rows.take_while(|((follower, _), _)| follower == user);
        page(limit, |_| 64, rows.map(|(_, row)| self.edge(row)))
    }

    pub fn followers(&self, user: &Arc<str>, after: Option<&Arc<str>>, limit: u32) -> Page<FollowRow> {
        let rows = self.followers.range((from(user, after), Bound::Unbounded));
        let rows = rows.take_while(|((followee, _), ())| followee == user);
        let row = |follower: &Arc<str>| self.follows.get(&(follower.clone(), user.clone()));
        page(limit, |_| 64, rows.filter_map(|((_, follower), ())| Some(self.edge(row(follower)?))))
    }

    fn edge(&self, row: &Versioned<Follow>) -> FollowRow {
        let follow = row.row.clone();
        let back = (follow.followee.clone(), follow.follower.clone());
        FollowRow { follow, version: row.version, mutual: self.follows.contains_key(&back) }
    }
}

fn from(user: &Arc<str>, after: Option<&Arc<str>>) -> Bound<(Arc<str>, Arc<str>)> {
    match after {
        Some(other) => Bound::Excluded((user.clone(), other.clone())),
        None => Bound::Included((user.clone(), Arc::from(""))),
    }
}
