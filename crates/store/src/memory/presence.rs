//! Presences, in memory: by channel and user, and by user and channel. Each name is stored once.

use super::node::Nodes;
use super::packed::{NodeEpochs, PackedPresence};
use super::page::page;
use crate::node::Writer;
use crate::page::{Page, Versioned};
use crate::presence::{PresenceKey, PresencePage, PresenceRow, StalePresence};
use crate::row::{Row, RowKey};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::NodeEpoch;

#[derive(Default)]
pub(super) struct MemoryPresences {
    channels: BTreeMap<Arc<str>, MemoryChannel>,
    /// User, then channel.
    by_user: BTreeSet<(Arc<str>, Arc<str>)>,
    nodes: NodeEpochs,
}

#[derive(Default)]
struct MemoryChannel {
    version: u64,
    users: BTreeMap<Arc<str>, PackedPresence>,
}

impl MemoryPresences {
    pub fn version(&self, key: &PresenceKey) -> u64 {
        self.packed(key).map_or(0, PackedPresence::version)
    }

    pub fn get(&self, key: &PresenceKey) -> Option<Versioned<PresenceRow>> {
        Some(self.packed(key)?.unpack(key.clone(), &self.nodes))
    }

    fn packed(&self, key: &PresenceKey) -> Option<&PackedPresence> {
        self.channels.get(&key.channel)?.users.get(&key.user)
    }

    pub fn rows(&self, after: Option<&RowKey>, limit: u32) -> Page<Versioned<Row>> {
        let after = after.and_then(|key| match key {
            RowKey::Presence(key) => Some(key),
            _ => None,
        });
        let rows = self.after(after).map(|(key, packed)| packed.unpack(key, &self.nodes));
        page(limit, |row| row.row.bytes(), rows.map(|row| row.map(Row::Presence)))
    }

    pub fn put(&mut self, presence: &PresenceRow, version: u64) {
        let packed = PackedPresence::new(presence, version, &mut self.nodes);
        let key = &presence.key;
        let channel = self.channels.entry(key.channel.clone()).or_default();
        if let Some(place) = channel.users.get_mut(&key.user) {
            self.nodes.release(&std::mem::replace(place, packed));
            return;
        }
        let user = self.known_user(&key.user);
        let (name, _) = self.channels.get_key_value(&key.channel).expect("it was just put there");
        self.by_user.insert((user.clone(), name.clone()));
        if let Some(channel) = self.channels.get_mut(&key.channel) {
            channel.users.insert(user, packed);
        }
    }

    /// The name of the user as it is already stored, if it is.
    fn known_user(&self, user: &Arc<str>) -> Arc<str> {
        let stored = self.by_user.range(from(user, None)..).next().filter(|(stored, _)| stored == user);
        stored.map_or_else(|| user.clone(), |(stored, _)| stored.clone())
    }

    pub fn delete(&mut self, key: &PresenceKey) {
        let channel = self.channels.get_mut(&key.channel);
        if let Some(packed) = channel.and_then(|channel| channel.users.remove(&key.user)) {
            self.nodes.release(&packed);
            self.by_user.remove(&(key.user.clone(), key.channel.clone()));
        }
    }

    /// Version and number of users.
    pub fn channel(&self, name: &str) -> (u64, u64) {
        self.channels.get(name).map_or((0, 0), |channel| (channel.version, channel.users.len() as u64))
    }

    pub fn set_channel(&mut self, name: &Arc<str>, version: u64) {
        self.channels.entry(name.clone()).or_default().version = version;
    }

    pub fn forget_channel(&mut self, name: &str) {
        self.channels.remove(name);
    }

    pub fn roster(&self, name: &Arc<str>, after: Option<&Arc<str>>, limit: u32) -> PresencePage {
        let (version, users) = self.channel(name);
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = self.channels.get_key_value(name);
        let rows = found.into_iter().flat_map(|(name, channel)| {
            channel.users.range::<Arc<str>, _>((after, Bound::Unbounded)).map(|(user, packed)| {
                packed.unpack(PresenceKey { channel: name.clone(), user: user.clone() }, &self.nodes)
            })
        });
        PresencePage { version, users, page: page(limit, |row| row.row.bytes(), rows) }
    }

    pub fn of_user(
        &self,
        user: &Arc<str>,
        after: Option<&Arc<str>>,
        limit: u32,
    ) -> Page<Versioned<PresenceRow>> {
        let after = match after {
            Some(channel) => Bound::Excluded(from(user, Some(channel))),
            None => Bound::Included(from(user, None)),
        };
        let keys = self.by_user.range((after, Bound::Unbounded)).take_while(|(of, _)| of == user);
        page(limit, |row| row.row.bytes(), keys.filter_map(|pair| self.get(&key_of(pair))))
    }

    pub fn at_node(
        &self,
        writer: &Writer,
        after: Option<&PresenceKey>,
        limit: u32,
    ) -> Page<Versioned<PresenceRow>> {
        let home = self.nodes.find(&NodeEpoch::from(writer));
        let rows = self.after(after).filter(|(_, packed)| packed.nodes().any(|id| Some(id) == home));
        let rows = rows.map(|(key, packed)| packed.unpack(key, &self.nodes));
        page(limit, |row| row.row.bytes(), rows.filter(|row| row.row.is_at(writer)))
    }

    pub fn stale(&self, nodes: &Nodes, before: Time, limit: u32) -> Page<StalePresence> {
        let known =
            |home: &NodeEpoch| nodes.get(&Writer { node: home.node.clone(), epoch: home.epoch }).is_some();
        let stale = self.by_user.iter().filter_map(|pair| {
            let presence = self.get(&key_of(pair))?.row;
            let nodes = presence.stale_nodes(before, known)?;
            Some(StalePresence { key: presence.key, nodes })
        });
        page(limit, |_| 64, stale)
    }

    /// All of them after a key, by channel and user.
    fn after(&self, after: Option<&PresenceKey>) -> impl Iterator<Item = (PresenceKey, &PackedPresence)> {
        let channels = match after {
            Some(key) => self.channels.range::<str, _>((Bound::Included(&*key.channel), Bound::Unbounded)),
            None => self.channels.range::<str, _>((Bound::Unbounded::<&str>, Bound::Unbounded)),
        };
        channels.flat_map(move |(name, channel)| {
            let users = match after {
                Some(key) if key.channel == *name => Bound::Excluded(&key.user),
                _ => Bound::Unbounded,
            };
            let users = channel.users.range::<Arc<str>, _>((users, Bound::Unbounded));
            users.map(|(user, packed)| (PresenceKey { channel: name.clone(), user: user.clone() }, packed))
        })
    }
}

fn from(user: &Arc<str>, channel: Option<&Arc<str>>) -> (Arc<str>, Arc<str>) {
    (user.clone(), channel.cloned().unwrap_or_else(|| Arc::from("")))
}

fn key_of((user, channel): &(Arc<str>, Arc<str>)) -> PresenceKey {
    PresenceKey { channel: channel.clone(), user: user.clone() }
}
