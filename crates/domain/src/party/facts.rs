//! What was loaded for a command, and what else it needs.

use super::{Membership, Party, UserId};
use crate::sorted::Sorted;
use crate::time::Time;
use alloc::sync::Arc;

/// A user's presence, as far as parties care.
#[derive(Clone, Debug, PartialEq)]
pub enum UserPresence {
    /// The store has never seen this user.
    Never,
    Absent,
    /// Disconnected, and may reconnect until the grace period of their presence ends.
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

impl UserPresence {
    pub fn is_online(&self) -> bool {
        matches!(self, UserPresence::Online { .. })
    }
}

/// A fact to load.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartyNeed {
    Party(u64),
    Membership(UserId),
    Presence(UserId),
    /// A party id that was never used.
    Id,
}

/// The facts of one command. Facts that are not in it were not loaded; a party that was loaded and does not exist is
/// `None`. A command has few facts.
#[derive(Clone, Debug, Default)]
pub struct PartyFacts {
    parties: Sorted<u64, Option<Party>>,
    memberships: Sorted<UserId, Membership>,
    presences: Sorted<UserId, UserPresence>,
    /// Given when `PartyNeed::Id` asks for it.
    pub id: Option<u64>,
    /// The invited user is hidden from the caller.
    pub invited_hides: bool,
}

impl PartyFacts {
    pub fn put_party(&mut self, id: u64, party: Option<Party>) {
        self.parties.insert(id, party);
    }

    /// A user without a stored record has an empty one.
    pub fn put_membership(&mut self, user: UserId, membership: Membership) {
        self.memberships.insert(user, membership);
    }

    pub fn put_presence(&mut self, user: UserId, presence: UserPresence) {
        self.presences.insert(user, presence);
    }

    pub fn party(&self, id: u64) -> Option<Option<&Party>> {
        self.parties.get(&id).map(Option::as_ref)
    }

    pub fn membership(&self, user: &UserId) -> Option<&Membership> {
        self.memberships.get(user)
    }

    pub fn presence(&self, user: &UserId) -> Option<&UserPresence> {
        self.presences.get(user)
    }

    /// Whether a fact was loaded.
    pub fn has(&self, need: &PartyNeed) -> bool {
        match need {
            PartyNeed::Party(id) => self.parties.contains_key(id),
            PartyNeed::Membership(user) => self.memberships.contains_key(user),
            PartyNeed::Presence(user) => self.presences.contains_key(user),
            PartyNeed::Id => self.id.is_some(),
        }
    }
}
