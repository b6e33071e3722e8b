//! What an engine keeps: the kinds of rows, their keys and their versions. No rule about any of them.
//! Must hold: two different keys never have the same text.

use crate::lease::Lease;
use crate::limits;
use crate::presence::{Hold, Presence, PresenceKey};
use crate::social::{Follow, User};
use std::fmt;
use std::sync::Arc;
use tavern_domain::{ClientId, Epoch, Scopes, SessionKey, Time};

/// One lifetime of a node: who writes. Every commit is fenced by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer {
    pub node: Arc<str>,
    pub epoch: Epoch,
}

/// A row to put. The store gives it its version.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    Key(ApiKey),
    Session(StoredSession),
    Document(Document),
    Presence(Presence),
    Hold(Hold),
    User(User),
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

/// Rows that are listed as a whole only to move a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKind {
    Document,
    Presence,
    Hold,
    User,
    Follow,
}

/// A row as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    pub version: u64,
    pub row: T,
}

/// An API key. The key itself is never stored, only its hash.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiKey {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub hash: [u8; 32],
    pub scopes: Scopes,
    pub created_at: Time,
    /// A revoked key stays, so that a list can say when it ended.
    pub revoked_at: Option<Time>,
}

/// A session that waits in the store for its client to come back to any node.
#[derive(Clone, Debug)]
pub struct StoredSession {
    pub client: ClientId,
    pub secret: SessionKey,
    pub user: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
    /// Whose it is. Ownership moves by a commit that expects the version that was read.
    pub owner: Writer,
    /// Subscriptions, rights and mailbox, as `SessionBody` writes them.
    pub body: Arc<[u8]>,
    pub detached_at: Option<Time>,
    pub expires_at: Time,
}

/// A versioned body for things that have no columns of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub key: DocumentKey,
    pub body: Arc<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    kind: Arc<str>,
    name: Arc<str>,
}

/// Something that is due at a time. One per kind and name: setting it again moves it.
/// The fields stand in the order in which deadlines come due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    pub due: Time,
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

/// A node as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub writer: Writer,
    pub opened_at: Time,
    pub lease_until: Time,
    /// Set once; the moment of loss for its clients.
    pub closed_at: Option<Time>,
    /// It said goodbye itself.
    pub clean: bool,
}

/// A bounded part of a list. When `more`, ask again after the last row.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    pub more: bool,
}

impl Writer {
    pub fn new(node: &str, epoch: Epoch) -> Writer {
        Writer { node: node.into(), epoch }
    }

    /// Somebody who is no node: a process that shares the bus. It has no epoch and numbers nothing.
    pub fn outsider() -> Writer {
        Writer::new("", Epoch(0))
    }

    pub fn is_outsider(&self) -> bool {
        self.node.is_empty()
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.epoch.0)
    }
}

impl Row {
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

    /// What it says in words, besides its key and its clients.
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
                document.key.kind.len() + document.key.name.len() + document.body.len()
            }
            Row::Presence(presence) => presence.bytes(),
            Row::Hold(hold) => {
                hold.key.channel.len()
                    + hold.key.user.len()
                    + hold.carrier.as_ref().map_or(0, |name| name.len())
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
            RowKey::Document(key) => write!(f, "document:{}/{}", key.kind, key.name),
            RowKey::Presence(key) => write!(f, "presence:{key}"),
            RowKey::Hold(key) => write!(f, "hold:{key}"),
            RowKey::User(user) => write!(f, "user:{user}"),
            // Both may contain anything: the length says where the first ends.
            RowKey::Follow { follower, followee } => {
                write!(f, "follow:{}:{follower}/{followee}", follower.len())
            }
            RowKey::Lease(name) => write!(f, "lease:{name}"),
            RowKey::Deadline { kind, name } => write!(f, "deadline:{kind}/{name}"),
        }
    }
}

impl RowKey {
    /// The two names of a key of which whole lists are read, in the order in which they sort.
    pub fn names(key: Option<&RowKey>) -> (&str, &str) {
        match key {
            Some(RowKey::Document(key)) => (&key.kind, &key.name),
            Some(RowKey::Presence(key) | RowKey::Hold(key)) => (&key.channel, &key.user),
            Some(RowKey::Follow { follower, followee }) => (follower, followee),
            Some(RowKey::User(name) | RowKey::Key(name) | RowKey::Lease(name)) => (name, ""),
            Some(RowKey::Session(_) | RowKey::Deadline { .. }) | None => ("", ""),
        }
    }
}

impl<T> Versioned<T> {
    pub fn map<U>(self, row: impl FnOnce(T) -> U) -> Versioned<U> {
        Versioned { version: self.version, row: row(self.row) }
    }
}

impl DocumentKey {
    /// The kind is one word of ours, never text from outside.
    pub fn new(kind: &str, name: &str) -> DocumentKey {
        assert!(is_word(kind), "{kind:?} is no kind of document");
        DocumentKey { kind: kind.into(), name: name.into() }
    }

    /// As it was kept: what is no kind was not written by us.
    pub fn parse(kind: &str, name: &str) -> Option<DocumentKey> {
        is_word(kind).then(|| DocumentKey { kind: kind.into(), name: name.into() })
    }

    pub fn kind(&self) -> &str {
        &self.kind
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

fn is_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.len() <= 32 && text.bytes().all(inner)
}

impl Deadline {
    pub fn new(due: Time, kind: &str, name: &str) -> Deadline {
        assert!(is_word(kind), "{kind:?} is no kind of deadline");
        Deadline { due, kind: kind.into(), name: name.into() }
    }

    pub fn key(&self) -> RowKey {
        RowKey::Deadline { kind: self.kind.clone(), name: self.name.clone() }
    }
}

impl PartialEq for StoredSession {
    /// By hand because secrets have no equality of their own: they compare without a branch.
    fn eq(&self, other: &StoredSession) -> bool {
        self.secret.matches(other.secret)
            && (self.client, &self.user, &self.name, &self.owner)
                == (other.client, &other.user, &other.name, &other.owner)
            && (&self.body, self.detached_at, self.expires_at)
                == (&other.body, other.detached_at, other.expires_at)
    }
}

impl<T> Page<T> {
    /// Takes from `rows` until the page is full by count or by bytes.
    pub fn fill<E>(
        limit: u32,
        bytes: impl Fn(&T) -> usize,
        rows: impl Iterator<Item = Result<T, E>>,
    ) -> Result<Page<T>, E> {
        let limit = limit.clamp(1, limits::PAGE_ROWS) as usize;
        let mut page = Page { rows: Vec::new(), more: false };
        let mut room = limits::PAGE_BYTES;
        for row in rows {
            let row = row?;
            let size = bytes(&row);
            if page.rows.len() == limit || (size > room && !page.rows.is_empty()) {
                page.more = true;
                break;
            }
            room = room.saturating_sub(size);
            page.rows.push(row);
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_page_is_full_by_count_or_by_bytes_and_never_empty() {
        let fill = |limit, sizes: &[usize]| {
            let rows = sizes.iter().map(|&size| Ok::<usize, ()>(size));
            let page = Page::fill(limit, |&size| size, rows).unwrap();
            (page.rows.len(), page.more)
        };
        assert_eq!(fill(2, &[1, 1]), (2, false));
        assert_eq!(fill(2, &[1, 1, 1]), (2, true));
        assert_eq!(fill(0, &[1, 1]), (1, true), "a limit of nothing means one");
        assert_eq!(fill(9, &[limits::PAGE_BYTES + 1, 1]), (1, true), "one too large travels alone");
        assert_eq!(fill(9, &[1, limits::PAGE_BYTES]), (1, true));
    }
}
