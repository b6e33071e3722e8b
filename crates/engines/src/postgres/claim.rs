//! What a batch of commits touches, and its locks. Must hold: every transaction of every store locks in the one order of
//! names of nodes, nodes, rows by kind and key, channels, inboxes, the log; a row that is not there is reserved with version 0, so
//! that nobody else makes it meanwhile; the store's time and floor are read after the last lock.

use super::link::Step;
use super::log::{self, Wanted};
use super::{deadline, document, hold, inbox, key, lease, node, presence, session, social};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_store::commit::{Commit, NodeChange};
use tavern_store::node::Writer;
use tavern_store::presence::PresenceKey;
use tavern_store::row::{Row, RowKey};

#[derive(Default)]
pub(super) struct Claim {
    /// Nodes that are opened: their name stands for epochs that are not there yet.
    pub names: BTreeSet<Arc<str>>,
    pub nodes: BTreeSet<Writer>,
    /// Whether nodes change. Else they only must stay as they are.
    pub exclusive: bool,
    pub rows: BTreeSet<RowKey>,
    pub channels: BTreeSet<Arc<str>>,
    /// Presences that are put or deleted: somebody may be held by them.
    pub carriers: BTreeSet<PresenceKey>,
    /// Users whose inboxes change.
    pub inboxes: BTreeSet<Arc<str>>,
    /// None: the log stays as it is.
    pub log: Option<Wanted>,
}

/// The statements of one kind of row, in two columns of keys.
pub(super) struct Kind {
    /// Reserves what is not there and locks what is.
    pub lock: &'static str,
    /// What is there: the number of the key from 1, the version, and what else the engine must know.
    pub load: &'static str,
    pub delete: &'static str,
}

/// In the order of their locks.
pub(super) const KINDS: [&Kind; 9] = [
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

pub(super) type Names<'a> = (Vec<Cow<'a, str>>, Vec<Cow<'a, str>>);

impl Claim {
    pub fn of<'a>(commits: impl Iterator<Item = &'a Commit>) -> Claim {
        let mut claim = Claim::default();
        for commit in commits {
            claim.nodes.extend(commit.writer.clone());
            claim.change(commit.node.as_ref());
            for row in &commit.puts {
                if let Row::Hold(hold) = row
                    && let Some(carrier) = &hold.carrier
                {
                    // Whoever moves the carrier meanwhile must hear of the hold, or be seen by its writer.
                    claim.row(RowKey::Presence(PresenceKey::new(carrier, &hold.key.user)));
                }
                claim.changed(row.key());
            }
            commit.deletes.iter().for_each(|key| claim.changed(key.clone()));
            commit.expects.iter().for_each(|expect| claim.row(expect.key.clone()));
            commit.seen.iter().for_each(|seen| claim.row(RowKey::User(seen.user.clone())));
            commit.deadlines.iter().for_each(|deadline| claim.row(deadline.key()));
            claim.channels.extend(commit.raises.iter().map(|raise| raise.channel.clone()));
            commit.takes.iter().for_each(|take| claim.row(RowKey::Lease(take.name.clone())));
            claim.inboxes.extend(commit.inbox_messages.iter().map(|message| message.user.clone()));
            claim.inboxes.extend(commit.freed_messages.iter().map(|freed| freed.user.clone()));
            claim.log(commit);
        }
        claim
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
            self.carriers.insert(key.clone());
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

    /// Locks in order. What the nodes' step finds is the nodes.
    pub fn locks(&self) -> (Vec<Step<'_>>, Option<usize>) {
        let mut steps = Vec::new();
        if !self.names.is_empty() {
            let names: Vec<&str> = self.names.iter().map(|name| &**name).collect();
            steps.push(Step::new(node::LOCK_NAMES).with(names));
        }
        let nodes = (!self.nodes.is_empty() || !self.names.is_empty()).then(|| {
            steps.push(node::lock(&self.nodes, &self.names, self.exclusive));
            steps.len() - 1
        });
        for (kind, statements) in KINDS.iter().enumerate() {
            let keys = self.keys(kind);
            if !keys.is_empty() {
                let (one, two) = names(keys.into_iter());
                steps.push(Step::new(statements.lock).with(one).with(two));
            }
        }
        if !self.channels.is_empty() {
            steps.push(presence::lock_channels(&self.channels));
        }
        if !self.inboxes.is_empty() {
            steps.push(inbox::lock(&self.inboxes));
        }
        // Everybody who appends waits here: nobody waits for anything else behind it.
        if self.log.is_some() {
            steps.push(log::lock());
        }
        (steps, nodes)
    }
}

/// Its place in `KINDS`.
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
pub(super) fn names<'a>(keys: impl Iterator<Item = &'a RowKey>) -> Names<'a> {
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
