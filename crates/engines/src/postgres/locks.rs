//! What a batch of commits depends on, and its locks. Must hold: every transaction of every store locks in one global
//! order: names of nodes, nodes, rows by kind and key, channels, inboxes, histories, the log; an absent row is
//! reserved with version 0, so that no other transaction creates it before COMMIT; the store's time and floor are
//! read after the last lock.

use super::connection::Statement;
use super::history::{self, HistoryLocks};
use super::log::{self, LogLocks};
use super::statements::RowStatements;
use super::{deadline, document, hold, inbox, key, lease, node, presence, session, social};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_store::{Commit, NodeChange, PresenceKey, Row, RowKey, Writer};

#[derive(Default)]
pub(super) struct LockSet {
    /// Nodes that are opened: their epochs have no row yet.
    pub names: BTreeSet<Arc<str>>,
    pub nodes: BTreeSet<Writer>,
    /// Whether nodes change. Otherwise their rows are locked for share.
    pub exclusive: bool,
    pub rows: BTreeSet<RowKey>,
    pub channels: BTreeSet<Arc<str>>,
    /// Presences that are put or deleted: holds may follow them.
    pub presences: BTreeSet<PresenceKey>,
    /// Users whose inboxes change.
    pub inboxes: BTreeSet<Arc<str>>,
    /// None: no history changes.
    pub histories: Option<HistoryLocks>,
    /// None: the log does not change.
    pub log: Option<LogLocks>,
}

/// In the order of their locks.
pub(super) const KINDS: [&RowStatements; 9] = [
    &key::KIND,
    &session::KIND,
    &document::KIND,
    &presence::KIND,
    &hold::KIND,
    &social::USERS,
    &social::FOLLOWS,
    &lease::KIND,
    &deadline::KIND,
];

pub(super) type LockNames<'a> = (Vec<Cow<'a, str>>, Vec<Cow<'a, str>>);

impl LockSet {
    pub fn of<'a>(commits: impl Iterator<Item = &'a Commit>) -> LockSet {
        let mut locks = LockSet::default();
        for commit in commits {
            locks.nodes.extend(commit.writer.clone());
            locks.change(commit.node.as_ref());
            for row in &commit.puts {
                if let Row::Hold(hold) = row
                    && let Some(held_with) = &hold.held_with
                {
                    // A concurrent change of the presence that it follows must see the hold, or be seen by its writer.
                    locks.row(RowKey::Presence(PresenceKey::new(held_with, &hold.key.user)));
                }
                locks.changed(row.key());
            }
            commit.deletes.iter().for_each(|key| locks.changed(key.clone()));
            commit.expects.iter().for_each(|expect| locks.row(expect.key.clone()));
            commit.seen.iter().for_each(|seen| locks.row(RowKey::User(seen.user.clone())));
            commit.deadlines.iter().for_each(|deadline| locks.row(deadline.key()));
            locks.channels.extend(commit.raises.iter().map(|raise| raise.channel.clone()));
            commit.takes.iter().for_each(|take| locks.row(RowKey::Lease(take.name.clone())));
            locks.inboxes.extend(commit.inbox_messages.iter().map(|message| message.user.clone()));
            locks.inboxes.extend(commit.freed_messages.iter().map(|freed| freed.user.clone()));
            locks.history(commit);
            locks.log(commit);
        }
        locks
    }

    fn change(&mut self, change: Option<&NodeChange>) {
        match change {
            None => return,
            Some(NodeChange::Open { name, .. }) => drop(self.names.insert(name.clone())),
            Some(
                NodeChange::Renew { node, .. }
                | NodeChange::Close { node, .. }
                | NodeChange::Stop { node }
                | NodeChange::Forget { node },
            ) => drop(self.nodes.insert(node.clone())),
        }
        self.exclusive = true;
    }

    fn history(&mut self, commit: &Commit) {
        if commit.history.is_empty() && commit.history_clears.is_empty() {
            return;
        }
        let wanted = self.histories.get_or_insert_default();
        wanted.channels.extend(commit.history_clears.iter().map(|clear| clear.channel.clone()));
        for message in &commit.history {
            wanted.channels.insert(message.channel.clone());
            wanted.ids.extend(message.id.iter().map(|id| (message.channel.clone(), id.clone())));
        }
    }

    fn log(&mut self, commit: &Commit) {
        if commit.appends.is_empty() && commit.restores.is_empty() && commit.trim.is_none() {
            return;
        }
        let wanted = self.log.get_or_insert_default();
        wanted.topics.extend(commit.restores.iter().map(|entry| entry.topic.clone()));
        for append in &commit.appends {
            wanted.topics.insert(append.topic.clone());
            wanted.ids.extend(append.id.iter().map(|id| (append.topic.clone(), id.clone())));
        }
    }

    fn changed(&mut self, key: RowKey) {
        if let RowKey::Presence(key) = &key {
            self.presences.insert(key.clone());
        }
        self.row(key);
    }

    fn row(&mut self, key: RowKey) {
        self.rows.insert(key);
    }

    /// The keys of one kind, in their order.
    pub fn keys(&self, kind: usize) -> Vec<&RowKey> {
        self.rows.iter().filter(|key| kind_of(key) == kind).collect()
    }

    /// In order, and which of them finds the nodes.
    pub fn statements(&self) -> (Vec<Statement<'_>>, Option<usize>) {
        let mut statements = Vec::new();
        if !self.names.is_empty() {
            let names: Vec<&str> = self.names.iter().map(|name| &**name).collect();
            statements.push(Statement::new(node::LOCK_NAMES).with(names));
        }
        let nodes = (!self.nodes.is_empty() || !self.names.is_empty()).then(|| {
            statements.push(node::lock(&self.nodes, &self.names, self.exclusive));
            statements.len() - 1
        });
        for (kind, of_kind) in KINDS.iter().enumerate() {
            let keys = self.keys(kind);
            if !keys.is_empty() {
                let (one, two) = names(keys.into_iter());
                statements.push(Statement::new(of_kind.lock).with(one).with(two));
            }
        }
        if !self.channels.is_empty() {
            statements.push(presence::lock_channels(&self.channels));
        }
        if !self.inboxes.is_empty() {
            statements.push(inbox::lock(&self.inboxes));
        }
        if let Some(wanted) = &self.histories {
            statements.push(history::lock(wanted));
        }
        // All writers of the log wait here, and take no further lock.
        if self.log.is_some() {
            statements.push(log::lock());
        }
        (statements, nodes)
    }
}

/// Its index in `KINDS`.
fn kind_of(key: &RowKey) -> usize {
    match key {
        RowKey::Key(_) => 0,
        RowKey::Session(_) => 1,
        RowKey::Document(_) => 2,
        RowKey::Presence(_) => 3,
        RowKey::Hold(_) => 4,
        RowKey::User(_) => 5,
        RowKey::Follow { .. } => 6,
        RowKey::Lease(_) => 7,
        RowKey::Deadline { .. } => 8,
    }
}

/// The two columns of each key; the second is empty where one is enough.
pub(super) fn names<'a>(keys: impl Iterator<Item = &'a RowKey>) -> LockNames<'a> {
    keys.map(|key| -> (Cow<'a, str>, Cow<'a, str>) {
        match key {
            RowKey::Key(id) => ((&**id).into(), "".into()),
            RowKey::Session(client) => (client.to_string().into(), "".into()),
            RowKey::Document(key) => (key.kind().into(), key.name().into()),
            RowKey::Presence(key) | RowKey::Hold(key) => ((&*key.channel).into(), (&*key.user).into()),
            RowKey::User(name) | RowKey::Lease(name) => ((&**name).into(), "".into()),
            RowKey::Follow { follower, followee } => ((&**follower).into(), (&**followee).into()),
            RowKey::Deadline { kind, name } => ((&**kind).into(), (&**name).into()),
        }
    })
    .unzip()
}
