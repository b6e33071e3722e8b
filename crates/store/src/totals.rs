//! How much there is in the store: counted as rows come and go, so that a read costs the same however many there are.
//! Must hold: a total equals the number of its rows after every commit, whichever node wrote it.

use crate::row::RowKey;
use std::ops::{AddAssign, SubAssign};
use tavern_domain::channel::USER_KIND;

/// The kind of the documents that are parties.
const PARTY: &str = "party";

/// Numbers of rows, or by how much a commit changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreTotals {
    /// Users who are online: present in their own channel, or in its grace period.
    pub users: i64,
    /// Users in channels, each channel for itself, without the users' own channels.
    pub presences: i64,
    pub parties: i64,
}

impl StoreTotals {
    /// What a row counts for.
    pub fn of(key: &RowKey) -> StoreTotals {
        let mut totals = StoreTotals::default();
        match key {
            RowKey::Presence(key) if is_own_channel(&key.channel) => totals.users = 1,
            RowKey::Presence(_) => totals.presences = 1,
            RowKey::Document(key) if key.kind() == PARTY => totals.parties = 1,
            _ => {}
        }
        totals
    }
}

fn is_own_channel(channel: &str) -> bool {
    channel.strip_prefix(USER_KIND).is_some_and(|rest| rest.starts_with('#'))
}

impl AddAssign for StoreTotals {
    fn add_assign(&mut self, other: StoreTotals) {
        self.users += other.users;
        self.presences += other.presences;
        self.parties += other.parties;
    }
}

impl SubAssign for StoreTotals {
    fn sub_assign(&mut self, other: StoreTotals) {
        self.users -= other.users;
        self.presences -= other.presences;
        self.parties -= other.parties;
    }
}
