//! What was read for a command, and what else it needs.

use super::{Guest, Party, User};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

/// Where a user is, as far as parties care.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// This store has never seen him.
    Never,
    Absent,
    /// Nobody is connected for him, and he may come back until the grace of his presence ends.
    Lost {
        since: Time,
        until: Time,
        /// With his server, and not by himself.
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

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Party(u64),
    Guest(User),
    Standing(User),
    /// A party id that was never used.
    Id,
}

/// The documents of one command. What is not on it was not read; a party that was read and does not exist is `None`.
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

    /// A user of whom nothing is kept is an empty guest.
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
}
