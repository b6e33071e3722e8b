//! The kinds of rows that an engine stores, and their keys. No rule about any of them.
//! Must hold: two different keys never have the same text.

use crate::deadline::Deadline;
use crate::document::{Document, DocumentKey};
use crate::key::ApiKey;
use crate::lease::Lease;
use crate::presence::{PresenceHold, PresenceKey, PresenceRow};
use crate::session::StoredSession;
use crate::social::{Follow, UserRow};
use std::fmt;
use std::sync::Arc;
use tavern_domain::ClientId;

/// A row to put. The store gives it its version.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Key(ApiKey),
    Session(StoredSession),
    Document(Document),
    Presence(PresenceRow),
    Hold(PresenceHold),
    User(UserRow),
    Follow(Follow),
    Lease(Lease),
}

/// Names one row. Deadlines are named here too, to expect and to delete them: their version is their due time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    Key(Arc<str>),
    Session(ClientId),
    Document(DocumentKey),
    Presence(PresenceKey),
    Hold(PresenceKey),
    User(Arc<str>),
    Follow { follower: Arc<str>, followee: Arc<str> },
    Lease(Arc<str>),
    Deadline { kind: Arc<str>, name: Arc<str> },
}

/// Rows that are listed as a whole only to copy a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKind {
    Document,
    Presence,
    Hold,
    User,
    Follow,
}

impl Row {
    /// The key of the row.
    pub fn key(&self) -> RowKey {
        match self {
            Row::Key(key) => RowKey::Key(key.id.clone()),
            Row::Session(session) => RowKey::Session(session.client),
            Row::Document(document) => RowKey::Document(document.key.clone()),
            Row::Presence(presence) => RowKey::Presence(presence.key.clone()),
            Row::Hold(hold) => RowKey::Hold(hold.key.clone()),
            Row::User(user) => RowKey::User(user.user.clone()),
            Row::Follow(follow) => {
                RowKey::Follow { follower: follow.follower.clone(), followee: follow.followee.clone() }
            }
            Row::Lease(lease) => RowKey::Lease(lease.name.clone()),
        }
    }

    /// Its texts, besides its key and its clients.
    pub fn texts(&self) -> [Option<&str>; 3] {
        match self {
            Row::Key(key) => [Some(&*key.name), None, None],
            Row::Session(session) => {
                [session.user.as_deref(), session.name.as_deref(), Some(&session.owner.node)]
            }
            Row::Presence(presence) => [presence.name.as_deref(), None, None],
            Row::Lease(lease) => [Some(&lease.holder.node), None, None],
            Row::Document(_) | Row::Hold(_) | Row::User(_) | Row::Follow(_) => [None; 3],
        }
    }

    /// About how many bytes the row takes, for bounds by bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Row::Key(key) => key.id.len() + key.name.len() + key.hash.len(),
            Row::Session(session) => {
                session.body.len()
                    + session.owner.node.len()
                    + session.user.as_ref().map_or(0, |user| user.len())
                    + session.name.as_ref().map_or(0, |name| name.len())
            }
            Row::Document(document) => {
                document.key.kind().len() + document.key.name().len() + document.body.len()
            }
            Row::Presence(presence) => presence.bytes(),
            Row::Hold(hold) => {
                hold.key.channel.len()
                    + hold.key.user.len()
                    + hold.held_with.as_ref().map_or(0, |name| name.len())
            }
            Row::User(user) => user.user.len(),
            Row::Follow(follow) => follow.follower.len() + follow.followee.len(),
            Row::Lease(lease) => lease.name.len() + lease.holder.node.len(),
        }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowKey::Key(id) => write!(f, "key:{id}"),
            RowKey::Session(client) => write!(f, "session:{client}"),
            RowKey::Document(key) => write!(f, "document:{}/{}", key.kind(), key.name()),
            RowKey::Presence(key) => write!(f, "presence:{key}"),
            RowKey::Hold(key) => write!(f, "hold:{key}"),
            RowKey::User(user) => write!(f, "user:{user}"),
            // Both may contain anything: the length shows where the first ends.
            RowKey::Follow { follower, followee } => {
                write!(f, "follow:{}:{follower}/{followee}", follower.len())
            }
            RowKey::Lease(name) => write!(f, "lease:{name}"),
            RowKey::Deadline { kind, name } => write!(f, "deadline:{kind}/{name}"),
        }
    }
}

impl RowKey {
    /// The two names in a key of such a list, in the order in which they sort.
    pub fn names(key: Option<&RowKey>) -> (&str, &str) {
        match key {
            Some(RowKey::Document(key)) => (key.kind(), key.name()),
            Some(RowKey::Presence(key) | RowKey::Hold(key)) => (&key.channel, &key.user),
            Some(RowKey::Follow { follower, followee }) => (follower, followee),
            Some(RowKey::User(name) | RowKey::Key(name) | RowKey::Lease(name)) => (name, ""),
            Some(RowKey::Session(_) | RowKey::Deadline { .. }) | None => ("", ""),
        }
    }
}

impl Deadline {
    /// The key to expect or delete the deadline by.
    pub fn key(&self) -> RowKey {
        RowKey::Deadline { kind: self.kind.clone(), name: self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Time;

    #[test]
    fn keys_read_like_paths() {
        let client = ClientId::from_random(0);
        for (key, text) in [
            (RowKey::Key("k1".into()), "key:k1"),
            (RowKey::Session(client), "session:0000000000000000"),
            (RowKey::Document(DocumentKey::new("party", "42")), "document:party/42"),
            (RowKey::Presence(PresenceKey::new("game#1", "ann")), "presence:6:game#1/ann"),
            (Deadline::new(Time(1), "grace", "a/b").key(), "deadline:grace/a/b"),
        ] {
            assert_eq!(key.to_string(), text);
        }
    }
}
