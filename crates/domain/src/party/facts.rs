//! What was loaded for a command, and what else it needs.

use super::{Guest, Party, User};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// A user's presence, as far as parties care.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// The store has never seen this user.
    Never,
    Absent,
    /// Disconnected, and may come back until the grace period of their presence ends.
    Lost {
        since: Time,
        until: Time,
        /// Their server went down.
        node_down: bool,
    },
    Online {
        name: Option<Arc<str>>,
    },
}

impl Standing {
    pub fn is_online(&self) -> bool {
        matches!(self, Standing::Online { .. })
    }
}

/// A fact to load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Party(u64),
    Guest(User),
    Standing(User),
    /// A party id that was never used.
    Id,
}

/// The facts of one command. What is not in it was not loaded; a party that was loaded and does not exist is `None`.
#[derive(Clone, Debug, Default)]
pub struct Table {
    parties: BTreeMap<u64, Option<Party>>,
    guests: BTreeMap<User, Guest>,
    standings: BTreeMap<User, Standing>,
    /// Given when `Need::Id` asks for it.
    pub id: Option<u64>,
}

impl Table {
    pub fn put_party(&mut self, id: u64, party: Option<Party>) {
        self.parties.insert(id, party);
    }

    /// A user without a stored record has an empty one.
    pub fn put_guest(&mut self, user: User, guest: Guest) {
        self.guests.insert(user, guest);
    }

    pub fn put_standing(&mut self, user: User, standing: Standing) {
        self.standings.insert(user, standing);
    }

    pub fn party(&self, id: u64) -> Option<Option<&Party>> {
        self.parties.get(&id).map(Option::as_ref)
    }

    pub fn guest(&self, user: &User) -> Option<&Guest> {
        self.guests.get(user)
    }

    pub fn standing(&self, user: &User) -> Option<&Standing> {
        self.standings.get(user)
    }

    /// Whether a fact was loaded.
    pub fn has(&self, need: &Need) -> bool {
        match need {
            Need::Party(id) => self.parties.contains_key(id),
            Need::Guest(user) => self.guests.contains_key(user),
            Need::Standing(user) => self.standings.contains_key(user),
            Need::Id => self.id.is_some(),
        }
    }
}
