//! The rows that a decision needs from the store, and the rows loaded for it.
//! Must hold: a row that a decision has seen is expected by its commit, unless it was requested as a read.

use crate::user::is_own_channel;
use std::sync::Arc;
use tavern_store::{
    Document, DocumentKey, Expect, Found, PresenceHold, PresenceKey, PresenceRow, Read, RowKey, UserSnapshot,
    Versioned,
};

/// A row or read that a decision needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Need {
    Document(DocumentKey),
    Presence(PresenceKey),
    /// A presence that is usually not there: a first attempt that may assume rows assumes that, unless it is cached.
    NewPresence(PresenceKey),
    Hold(PresenceKey),
    /// A user with all their presences. Not expected by the commit: the decision expects the rows it relies on.
    Person(Arc<str>),
    /// Anything else, kept while the transaction runs. Not expected by the commit.
    Read(Read),
    /// The same, but given to the decision only once: a page of a long list, from which it keeps what it needs.
    Page(Read),
}

impl Need {
    pub fn read(&self) -> Read {
        match self {
            Need::Document(key) => Read::Document(key.clone()),
            Need::Presence(key) | Need::NewPresence(key) => Read::Presence(key.clone()),
            Need::Hold(key) => Read::Hold(key.clone()),
            Need::Person(user) => Read::People { users: vec![user.clone()], viewer: None },
            Need::Read(read) | Need::Page(read) => read.clone(),
        }
    }
}

/// The rows loaded for one attempt of a transaction. `None` outside: not loaded; inside: there is no such row. A transaction has few
/// rows, so lists are quicker than maps.
#[derive(Default)]
pub(crate) struct Facts {
    documents: Vec<(DocumentKey, Option<Versioned<Document>>)>,
    presences: Vec<(PresenceKey, Option<Versioned<PresenceRow>>)>,
    holds: Vec<(PresenceKey, Option<Versioned<PresenceHold>>)>,
    people: Vec<(Arc<str>, UserSnapshot)>,
    reads: Vec<(Read, Found)>,
    pages: Vec<(Read, Found)>,
    /// The row whose version made the last commit fail, and that version.
    conflict: Option<(RowKey, u64)>,
    /// Some rows come from a cache and may be stale.
    assumed: bool,
    /// It is not the first attempt.
    retry: bool,
    /// How often the transaction was paused and resumed.
    resumed: u8,
}

impl Facts {
    /// A presence from a cache. If it is stale, the commit conflicts and it is read.
    pub fn assuming(key: PresenceKey, known: Option<Versioned<PresenceRow>>) -> Facts {
        Facts { presences: vec![(key, known)], ..Facts::default() }
    }

    /// Adds a row from a cache. If it is stale, the commit conflicts and all rows are loaded.
    pub(super) fn assume(&mut self, need: Need, found: Found) {
        self.assumed = true;
        assert!(self.add(need, found), "a cached row is of the kind that was asked for");
    }

    /// Whether some rows may be stale.
    pub fn are_assumed(&self) -> bool {
        self.assumed
    }

    /// Those of the next attempt: everything is loaded again. Only the conflict that made the last commit fail is known.
    pub(super) fn next_attempt(&self, conflict: Option<(RowKey, u64)>) -> Facts {
        Facts { conflict, retry: true, resumed: self.resumed, ..Facts::default() }
    }

    pub(super) fn count_resumption(&mut self) {
        self.resumed = self.resumed.saturating_add(1);
    }

    /// Whether an earlier attempt failed: what came with the decision from a cache may be stale.
    pub fn is_retry(&self) -> bool {
        self.retry
    }

    /// How often the transaction waited for other rows.
    pub fn resumed(&self) -> u8 {
        self.resumed
    }

    pub fn document(&self, key: &DocumentKey) -> Option<Option<&Versioned<Document>>> {
        find(&self.documents, key).map(Option::as_ref)
    }

    pub fn presence(&self, key: &PresenceKey) -> Option<Option<&Versioned<PresenceRow>>> {
        find(&self.presences, key).map(Option::as_ref)
    }

    /// The presence of a user in their own channel.
    pub fn own_presence(&self, user: &Arc<str>) -> Option<Option<&Versioned<PresenceRow>>> {
        let own = |key: &PresenceKey| key.user == *user && is_own_channel(&key.channel);
        self.presences.iter().rev().find(|(key, _)| own(key)).map(|(_, row)| row.as_ref())
    }

    pub fn hold(&self, key: &PresenceKey) -> Option<Option<&Versioned<PresenceHold>>> {
        find(&self.holds, key).map(Option::as_ref)
    }

    pub fn person(&self, user: &Arc<str>) -> Option<&UserSnapshot> {
        find(&self.people, user)
    }

    pub fn read(&self, read: &Read) -> Option<&Found> {
        find(&self.reads, read)
    }

    /// A page that was loaded since the decision ran last.
    pub fn page(&self, read: &Read) -> Option<&Found> {
        find(&self.pages, read)
    }

    /// The version of a row, if the last commit failed because of it. Enough for a decision that only needs to know
    /// whether a row exists: it need not be read.
    pub fn conflicting_version(&self, key: &RowKey) -> Option<u64> {
        self.conflict.as_ref().filter(|(known, _)| known == key).map(|(_, version)| *version)
    }

    pub(super) fn forget_pages(&mut self) {
        self.pages.clear();
    }

    pub(super) fn add(&mut self, need: Need, found: Found) -> bool {
        match (need, found) {
            (Need::Document(key), Found::Document(row)) => self.documents.push((key, row)),
            (Need::Presence(key) | Need::NewPresence(key), Found::Presence(row)) => {
                self.presences.push((key, row));
            }
            (Need::Hold(key), Found::Hold(row)) => self.holds.push((key, row)),
            (Need::Person(user), Found::People(people)) => {
                let Some(person) = people.into_iter().next() else { return false };
                self.people.push((user, person));
            }
            (Need::Read(read), found) => self.reads.push((read, found)),
            (Need::Page(read), found) => self.pages.push((read, found)),
            _ => return false,
        }
        true
    }

    pub(super) fn expects(&self) -> impl Iterator<Item = Expect> {
        fn expect<T>(key: RowKey, row: &Option<Versioned<T>>) -> Expect {
            Expect { key, version: row.as_ref().map_or(0, |row| row.version) }
        }
        let documents = self.documents.iter().map(|(key, row)| expect(RowKey::Document(key.clone()), row));
        let presences = self.presences.iter().map(|(key, row)| expect(RowKey::Presence(key.clone()), row));
        let holds = self.holds.iter().map(|(key, row)| expect(RowKey::Hold(key.clone()), row));
        documents.chain(presences).chain(holds)
    }
}

fn find<'a, K: PartialEq, T>(rows: &'a [(K, T)], key: &K) -> Option<&'a T> {
    // The last loaded row is usually the one asked for.
    rows.iter().rev().find(|(known, _)| known == key).map(|(_, row)| row)
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
