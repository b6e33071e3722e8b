//! Presences, in memory, in the order of channel and user.

use super::node::Nodes;
use super::store::{page, rows};
use crate::presence::{Presence, PresenceKey, Roster, Stray};
use crate::row::{Page, Row, RowKey, Versioned, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Home;

#[derive(Default)]
pub(super) struct Presences {
    rows: BTreeMap<PresenceKey, Versioned<Presence>>,
    /// User, then channel.
    by_user: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Version and number of users.
    channels: BTreeMap<Arc<str>, (u64, u64)>,
}

impl Presences {
    pub fn version(&self, key: &PresenceKey) -> u64 {
        self.rows.get(key).map_or(0, |row| row.version)
    }

    pub fn get(&self, key: &PresenceKey) -> Option<Versioned<Presence>> {
        self.rows.get(key).cloned()
    }

    pub fn rows(&self, after: Option<&RowKey>, limit: u32) -> Page<Versioned<Row>> {
        let after = after.and_then(|key| match key {
            RowKey::Presence(key) => Some(key),
            _ => None,
        });
        rows(&self.rows, after, limit, Row::Presence)
    }

    pub fn put(&mut self, presence: &Presence, version: u64) {
        let key = presence.key.clone();
        if self.rows.insert(key.clone(), Versioned { version, row: presence.clone() }).is_none() {
            self.channels.entry(key.channel.clone()).or_default().1 += 1;
            self.by_user.insert((key.user, key.channel));
        }
    }

    pub fn delete(&mut self, key: &PresenceKey) {
        if self.rows.remove(key).is_some() {
            self.channels.entry(key.channel.clone()).or_default().1 -= 1;
            self.by_user.remove(&(key.user.clone(), key.channel.clone()));
        }
    }

    /// Version and number of users.
    pub fn channel(&self, name: &str) -> (u64, u64) {
        self.channels.get(name).copied().unwrap_or_default()
    }

    pub fn set_channel(&mut self, name: &Arc<str>, version: u64) {
        self.channels.entry(name.clone()).or_default().0 = version;
    }

    pub fn forget_channel(&mut self, name: &str) {
        self.channels.remove(name);
    }

    pub fn roster(&self, channel: &Arc<str>, after: Option<&Arc<str>>, limit: u32) -> Roster {
        let (version, users) = self.channel(channel);
        let key = |user: &Arc<str>| PresenceKey { channel: channel.clone(), user: user.clone() };
        let from = match after {
            Some(user) => Bound::Excluded(key(user)),
            None => Bound::Included(key(&Arc::from(""))),
        };
        let rows = self.rows.range((from, Bound::Unbounded)).map(|(_, row)| row);
        let rows = rows.take_while(|row| row.row.key.channel == *channel);
        Roster { version, users, page: page(limit, |row| row.row.bytes(), rows.cloned()) }
    }

    pub fn of_user(
        &self,
        user: &Arc<str>,
        after: Option<&Arc<str>>,
        limit: u32,
    ) -> Page<Versioned<Presence>> {
        let from = match after {
            Some(channel) => Bound::Excluded((user.clone(), channel.clone())),
            None => Bound::Included((user.clone(), Arc::from(""))),
        };
        let keys = self.by_user.range((from, Bound::Unbounded)).take_while(|(of, _)| of == user);
        let key = |(user, channel): &(Arc<str>, Arc<str>)| PresenceKey::new(channel, user);
        page(limit, |row| row.row.bytes(), keys.filter_map(|pair| self.get(&key(pair))))
    }

    pub fn at_home(
        &self,
        home: &Writer,
        after: Option<&PresenceKey>,
        limit: u32,
    ) -> Page<Versioned<Presence>> {
        let from = after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
        let rows = self.rows.range((from, Bound::Unbounded)).map(|(_, row)| row);
        page(limit, |row| row.row.bytes(), rows.filter(|row| row.row.lives_at(home)).cloned())
    }

    pub fn strays(&self, nodes: &Nodes, before: Time, limit: u32) -> Page<Stray> {
        let known = |home: &Home| nodes.get(&Writer { node: home.node.clone(), epoch: home.epoch }).is_some();
        let keys = self.by_user.iter().map(|(user, channel)| PresenceKey::new(channel, user));
        let strays = keys.filter_map(|key| {
            let homes = self.rows.get(&key)?.row.astray(before, known)?;
            Some(Stray { key, homes })
        });
        page(limit, |_| 64, strays)
    }
}
