//! Where a session went: a document beside the stored session, written by the commit that stores the session and by the
//! one that takes it. A node that looks for a session reads it, and asks one node instead of all.
//! Must hold: the document names the node that took the session from the store last, or says that it is in the store.

use crate::core::listener::ListenerId;
use crate::core::sweep::session_expires_at;
use crate::core::{Core, Feature};
use crate::rows::MOVED;
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;
use tavern_domain::{ClientId, SessionKey, Time};
use tavern_store::{
    Commit, Deadline, Document, DocumentKey, Expect, Row, RowKey, StoredSession, Versioned, Work, Writer,
};

/// How long a forward is kept after its session would have expired. A client that says hello is told its new node. A client
/// that only polls keeps naming the old one; its polls renew the forward.
const KEEP_MS: u64 = 600_000;

/// The node in which a session is, for a client that names another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionForward {
    /// A node stored it when it stopped, or for a move.
    InStore,
    Node(Arc<str>),
}

impl SessionForward {
    /// None: it was not written by Tavern.
    pub fn read(document: &Document) -> Option<SessionForward> {
        let node = std::str::from_utf8(&document.body).ok()?;
        Some(if node.is_empty() { SessionForward::InStore } else { SessionForward::Node(node.into()) })
    }
}

/// The document of a session; only half of the secret is its name.
pub(super) fn document_of(key: SessionKey) -> DocumentKey {
    DocumentKey::new(MOVED, &name_of(key))
}

fn name_of(key: SessionKey) -> String {
    format!("{:016x}", key.half())
}

/// When the forward of a session that expires at `expires_at` is deleted.
pub(super) fn forward_due(expires_at: Time) -> Time {
    expires_at + KEEP_MS
}

fn put_forward(commit: &mut Commit, key: SessionKey, node: &str, expires_at: Time) {
    commit.puts.push(Row::Document(Document { key: document_of(key), body: node.as_bytes().into() }));
    commit.deadlines.push(Deadline::new(forward_due(expires_at), MOVED, &name_of(key)));
}

/// Adds a session to a commit that stores it.
pub fn store_session(commit: &mut Commit, row: StoredSession) {
    put_forward(commit, row.secret, "", row.expires_at);
    commit.puts.push(Row::Session(row));
}

/// The commit by which the writer takes a session from the store. Only one of all such commits can succeed.
pub fn take_session(writer: Writer, session: &Versioned<StoredSession>) -> Commit {
    let Versioned { version, row } = session;
    take_stored(writer, row.client, *version, (row.secret, row.expires_at))
}

pub(super) fn take_stored(
    writer: Writer,
    client: ClientId,
    version: u64,
    (secret, expires_at): (SessionKey, Time),
) -> Commit {
    let key = RowKey::Session(client);
    let expects = vec![Expect { key: key.clone(), version }];
    let mut commit = Commit { expects, deletes: vec![key], ..Commit::default() };
    put_forward(&mut commit, secret, &writer.node, expires_at);
    commit.writer = Some(writer);
    commit
}

/// A client that names another node found its session here: its forward is kept for longer. Refused if the session has
/// moved on meanwhile.
pub(super) fn renew(core: &mut Core, id: ListenerId) {
    let Some(session) = core.session(id) else { return };
    let (key, known) = (session.key, session.forward_due);
    if known == Time::ZERO || known > core.now + KEEP_MS / 2 {
        return;
    }
    // A connected session was perhaps not heard for long.
    let expires_at = session_expires_at(core, id).max(core.now);
    if let Some(session) = core.session_mut(id) {
        session.forward_due = forward_due(expires_at);
    }
    let expects = vec![Expect { key: Deadline::new(known, MOVED, &name_of(key)).key(), version: known.ms() }];
    let mut commit = Commit { writer: Some(core.writer()), expects, ..Commit::default() };
    put_forward(&mut commit, key, &core.node.name, expires_at);
    core.submit(Feature::None, Work::Commit(commit));
}

/// The forward of a session is due. One of the nodes deletes it, so that they do not all try.
pub(crate) fn forget(core: &mut Core, deadline: &Deadline) {
    let hasher = BuildHasherDefault::<std::collections::hash_map::DefaultHasher>::default();
    let rank = |node: &str| hasher.hash_one((node, &*deadline.name));
    let own = rank(&core.node.name);
    if core.node.other_nodes().iter().any(|other| rank(other) < own) {
        return;
    }
    let document = RowKey::Document(DocumentKey::shared(MOVED, deadline.name.clone()));
    let expects = vec![Expect { key: deadline.key(), version: deadline.due.ms() }];
    let deletes = vec![document, deadline.key()];
    let commit = Commit { writer: Some(core.writer()), expects, deletes, ..Commit::default() };
    core.submit(Feature::None, Work::Commit(commit));
}
