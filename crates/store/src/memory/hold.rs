//! Presences set by apps, in memory.

use super::page::rows;
use crate::page::{Page, Versioned};
use crate::presence::{PresenceHold, PresenceKey};
use crate::row::{Row, RowKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Holds {
    rows: BTreeMap<PresenceKey, Versioned<PresenceHold>>,
    /// By the presence that they follow: the channels in which the user is held.
    followers: BTreeMap<PresenceKey, BTreeSet<Arc<str>>>,
}

impl Holds {
    pub fn version(&self, key: &PresenceKey) -> u64 {
        self.rows.get(key).map_or(0, |row| row.version)
    }

    pub fn get(&self, key: &PresenceKey) -> Option<Versioned<PresenceHold>> {
        self.rows.get(key).cloned()
    }

    pub fn rows(&self, after: Option<&RowKey>, limit: u32) -> Page<Versioned<Row>> {
        let after = after.and_then(|key| match key {
            RowKey::Hold(key) => Some(key),
            _ => None,
        });
        rows(&self.rows, after, limit, Row::Hold)
    }

    pub fn put(&mut self, hold: &PresenceHold, version: u64) {
        self.delete(&hold.key);
        if let Some(presence) = followed(hold) {
            self.followers.entry(presence).or_default().insert(hold.key.channel.clone());
        }
        self.rows.insert(hold.key.clone(), Versioned { version, row: hold.clone() });
    }

    pub fn delete(&mut self, key: &PresenceKey) {
        let Some(presence) = self.rows.remove(key).and_then(|row| followed(&row.row)) else { return };
        if let Some(channels) = self.followers.get_mut(&presence) {
            channels.remove(&key.channel);
            if channels.is_empty() {
                self.followers.remove(&presence);
            }
        }
    }

    pub fn held_with(&self, presence: &PresenceKey) -> Vec<Arc<str>> {
        self.followers.get(presence).map(|channels| channels.iter().cloned().collect()).unwrap_or_default()
    }
}

fn followed(hold: &PresenceHold) -> Option<PresenceKey> {
    let channel = hold.held_with.clone()?;
    Some(PresenceKey { channel, user: hold.key.user.clone() })
}
