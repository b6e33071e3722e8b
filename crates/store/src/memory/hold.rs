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
    /// By carrier, the channels in which the user is held.
    carried: BTreeMap<PresenceKey, BTreeSet<Arc<str>>>,
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
        if let Some(carrier) = carrier(hold) {
            self.carried.entry(carrier).or_default().insert(hold.key.channel.clone());
        }
        self.rows.insert(hold.key.clone(), Versioned { version, row: hold.clone() });
    }

    pub fn delete(&mut self, key: &PresenceKey) {
        let Some(carrier) = self.rows.remove(key).and_then(|row| carrier(&row.row)) else { return };
        if let Some(channels) = self.carried.get_mut(&carrier) {
            channels.remove(&key.channel);
            if channels.is_empty() {
                self.carried.remove(&carrier);
            }
        }
    }

    pub fn held_by(&self, carrier: &PresenceKey) -> Vec<Arc<str>> {
        self.carried.get(carrier).map(|channels| channels.iter().cloned().collect()).unwrap_or_default()
    }
}

fn carrier(hold: &PresenceHold) -> Option<PresenceKey> {
    let channel = hold.carrier.clone()?;
    Some(PresenceKey { channel, user: hold.key.user.clone() })
}
