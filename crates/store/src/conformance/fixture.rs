//! What the store cases share: names, a client, and commits and reads of documents.

pub(super) use super::world::StoreUnderTest;
pub(super) use crate::blocking::BlockingStore;
pub(super) use crate::limits;
pub(super) use crate::{
    AnswerReceiver, ApiKey, Append, ChangedRow, ChannelVersionBump, CloseProof, Commit, Deadline, Document,
    DocumentKey, Expect, Follow, FollowRow, Found, FreedMessages, HeldPresence, InboxPage, LastSeenUpdate,
    Lease, LogEnds, LogEntry, LogPage, NewInboxMessage, NodeChange, NodeRow, Page, PresenceHold, PresenceKey,
    PresencePage, PresenceRow, Read, Receipt, Row, RowKey, RowKind, StalePresence, StoreAnswer, StoreError,
    StoredSession, TakeLease, Ticket, TopicPage, Trim, UserRow, UserSnapshot, Versioned, Work, Writer,
};
pub(super) use std::sync::Arc;
use std::time::Duration;
pub(super) use tavern_domain::presence::Visibility;
pub(super) use tavern_domain::{ClientId, Epoch, Time};

/// Long enough for a loaded machine; nothing waits for it unless a case fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
pub(super) const LEASE_MS: u64 = 10_000;

pub(super) fn client(world: &dyn StoreUnderTest) -> BlockingStore {
    BlockingStore::with(PATIENCE, |inbox| Ok(world.open(inbox))).expect("the world opens")
}

pub(super) fn now(client: &BlockingStore) -> Time {
    match client.read(Read::Time) {
        Ok(Found::Time(time)) => time,
        other => panic!("no time but {other:?}"),
    }
}

pub(super) fn open_node(client: &BlockingStore, name: &str) -> Writer {
    let node = Some(NodeChange::Open { name: name.into(), lease_ms: LEASE_MS });
    let receipt = client.commit(Commit { node, ..Commit::default() }).expect("a node opens");
    Writer::new(name, receipt.epoch.expect("an epoch was opened"))
}

pub(super) fn key(name: &str) -> DocumentKey {
    DocumentKey::new("thing", name)
}

pub(super) fn row(name: &str, body: &str) -> Row {
    Row::Document(Document { key: key(name), body: body.as_bytes().into() })
}

pub(super) fn put(name: &str, body: &str) -> Commit {
    Commit { puts: vec![row(name, body)], ..Commit::default() }
}

pub(super) fn delete(name: &str) -> Commit {
    Commit { deletes: vec![RowKey::Document(key(name))], ..Commit::default() }
}

pub(super) fn expect(name: &str, version: u64) -> Expect {
    Expect { key: RowKey::Document(key(name)), version }
}

pub(super) fn read(client: &BlockingStore, name: &str) -> Option<Versioned<Document>> {
    match client.read(Read::Document(key(name))) {
        Ok(Found::Document(found)) => found,
        other => panic!("no document but {other:?}"),
    }
}

pub(super) fn version(client: &BlockingStore, name: &str) -> u64 {
    read(client, name).map_or(0, |found| found.version)
}

/// The versions that a commit has given to rows.
pub(super) fn versions(changed: &[ChangedRow]) -> Vec<u64> {
    changed.iter().map(|row| row.version).collect()
}

pub(super) fn text(client: &BlockingStore, name: &str) -> Option<String> {
    read(client, name).map(|found| String::from_utf8_lossy(&found.row.body).into_owned())
}

#[track_caller]
pub(super) fn assert_conflict(outcome: Result<Receipt, StoreError>, wanted: (RowKey, u64, u64)) {
    match outcome {
        Err(StoreError::Conflict { key, expected, found }) => assert_eq!((key, expected, found), wanted),
        other => panic!("no conflict but {other:?}"),
    }
}

#[track_caller]
pub(super) fn assert_fenced(outcome: Result<Receipt, StoreError>, writer: &Writer) {
    match outcome {
        Err(StoreError::Fenced { node, epoch }) => assert_eq!(Writer { node, epoch }, *writer),
        other => panic!("not fenced but {other:?}"),
    }
}
