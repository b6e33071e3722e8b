//! The limits of a commit. The same on every engine, checked before any work. Must hold: every engine can apply
//! whatever passes.

use super::change::{Commit, NodeChange};
use crate::error::StoreError;
use crate::limits;
use crate::presence::{PresenceHold, PresenceKey, PresenceRow};
use crate::row::{Row, RowKey};
use std::collections::BTreeSet;

impl Commit {
    /// Whether the commit is within the limits that all engines share; panics on commits that no correct hub makes.
    pub fn check(&self) -> Result<(), StoreError> {
        within("items in a commit", self.items(), limits::COMMIT_ITEMS)?;
        within("bytes in a commit", self.bytes(), limits::COMMIT_BYTES)?;
        self.puts.iter().try_for_each(check_row)?;
        for raise in &self.raises {
            check_name(&raise.channel)?;
        }
        self.expects.iter().map(|expect| &expect.key).chain(&self.deletes).try_for_each(check_key)?;
        for deadline in &self.deadlines {
            check_name(&deadline.name)?;
            check_text(&deadline.kind)?;
        }
        self.seen.iter().try_for_each(|seen| check_key(&RowKey::User(seen.user.clone())))?;
        self.check_raises();
        self.check_takes()?;
        for append in &self.appends {
            check_event(&append.topic, append.id.as_deref(), &append.body)?;
        }
        for entry in &self.restores {
            check_event(&entry.topic, entry.id.as_deref(), &entry.body)?;
        }
        for message in &self.inbox_messages {
            within("bytes in an inbox message", message.body.len(), limits::BODY_BYTES)?;
            check_name(&message.user)?;
        }
        self.freed_messages.iter().try_for_each(|freed| check_name(&freed.user))?;
        self.history_clears.iter().try_for_each(|clear| check_name(&clear.channel))?;
        for message in &self.history {
            check_event(&message.channel, message.id.as_deref(), &message.body)?;
            let user = message.sender.as_ref().and_then(|sender| sender.user.as_deref());
            user.map_or(Ok(()), check_name)?;
        }
        self.node.as_ref().map_or(Ok(()), check_node)
    }

    /// Its size in a queue that is bounded by bytes.
    pub(crate) fn bytes(&self) -> usize {
        let rows: usize = self.puts.iter().map(Row::bytes).sum();
        let events: usize = self.appends.iter().map(|append| append.body.len() + append.topic.len()).sum();
        let restored: usize = self.restores.iter().map(|entry| entry.body.len() + entry.topic.len()).sum();
        let messages: usize = self.inbox_messages.iter().map(|message| message.body.len()).sum();
        let history: usize =
            self.history.iter().map(|message| message.body.len() + message.channel.len() + 64).sum();
        let fixed = 64 * (self.expects.len() + self.deletes.len() + self.deadlines.len());
        rows + events + restored + messages + history + fixed
    }

    fn items(&self) -> usize {
        [
            self.expects.len(),
            self.puts.len(),
            self.deletes.len(),
            self.raises.len(),
            self.seen.len(),
            self.deadlines.len(),
            self.takes.len(),
            self.restores.len(),
            self.appends.len(),
            self.freed_messages.len(),
            self.inbox_messages.len(),
            self.history_clears.len(),
            self.history.len(),
        ]
        .iter()
        .sum()
    }

    fn check_raises(&self) {
        let raised: BTreeSet<&str> = self.raises.iter().map(|raise| &*raise.channel).collect();
        assert_eq!(raised.len(), self.raises.len(), "a channel is raised once");
        for key in self.presences() {
            assert!(raised.contains(&*key.channel), "a presence changes with its channel");
        }
    }

    /// The presences that it puts or deletes.
    pub(super) fn presences(&self) -> impl Iterator<Item = &PresenceKey> {
        let puts = self.puts.iter().filter_map(|row| match row {
            Row::Presence(presence) => Some(&presence.key),
            _ => None,
        });
        puts.chain(self.deletes.iter().filter_map(|key| match key {
            RowKey::Presence(key) => Some(key),
            _ => None,
        }))
    }

    fn check_takes(&self) -> Result<(), StoreError> {
        assert!(self.takes.is_empty() || self.writer.is_some(), "only a node takes a lease");
        let taken: BTreeSet<&str> = self.takes.iter().map(|take| &*take.name).collect();
        assert_eq!(taken.len(), self.takes.len(), "a lease is taken once");
        for take in &self.takes {
            check_key(&RowKey::Lease(take.name.clone()))?;
            check_lease(take.lease_ms)?;
        }
        Ok(())
    }
}

fn check_row(row: &Row) -> Result<(), StoreError> {
    within("bytes in a row", row.bytes(), limits::BODY_BYTES)?;
    check_key(&row.key())?;
    row.texts().into_iter().flatten().try_for_each(check_text)?;
    match row {
        Row::Presence(presence) => check_clients(presence),
        Row::Hold(PresenceHold { key, held_with: Some(held_with), .. }) => {
            check_key(&RowKey::Hold(PresenceKey { channel: held_with.clone(), user: key.user.clone() }))
        }
        _ => Ok(()),
    }
}

fn check_clients(presence: &PresenceRow) -> Result<(), StoreError> {
    for client in presence.attendance.clients() {
        check_text(&client.node.node)?;
        client.state.as_ref().map_or(Ok(()), |state| check_text(&state.text))?;
    }
    Ok(())
}

fn check_event(topic: &str, id: Option<&str>, body: &[u8]) -> Result<(), StoreError> {
    within("bytes in an event", body.len(), limits::BODY_BYTES)?;
    within("bytes in an id", id.map_or(0, str::len), limits::ID_BYTES)?;
    check_name(topic)?;
    id.map_or(Ok(()), check_text)
}

fn check_node(change: &NodeChange) -> Result<(), StoreError> {
    let (name, lease_ms) = match change {
        NodeChange::Open { name, lease_ms } => (name, *lease_ms),
        NodeChange::Renew { node, lease_ms } => (&node.node, *lease_ms),
        NodeChange::Close { node, .. } | NodeChange::Stop { node } | NodeChange::Forget { node } => {
            (&node.node, 0)
        }
    };
    within("bytes in a node's name", name.len(), tavern_domain::limits::NODE_BYTES)?;
    check_text(name)?;
    check_lease(lease_ms)
}

fn check_lease(lease_ms: u64) -> Result<(), StoreError> {
    let lease = usize::try_from(lease_ms).unwrap_or(usize::MAX);
    within("milliseconds in a lease", lease, limits::LEASE_MS as usize)
}

fn check_key(key: &RowKey) -> Result<(), StoreError> {
    let bytes = match key {
        RowKey::Key(name) | RowKey::User(name) | RowKey::Lease(name) => name.len(),
        RowKey::Session(_) => 0,
        RowKey::Document(key) => key.name().len(),
        RowKey::Presence(key) | RowKey::Hold(key) => key.channel.len() + key.user.len(),
        RowKey::Follow { follower, followee } => follower.len() + followee.len(),
        RowKey::Deadline { name, .. } => name.len(),
    };
    within("bytes in a name", bytes, limits::NAME_BYTES)?;
    match key {
        RowKey::Key(name) | RowKey::User(name) | RowKey::Lease(name) => check_text(name),
        RowKey::Session(_) => Ok(()),
        RowKey::Document(key) => check_text(key.name()),
        RowKey::Presence(key) | RowKey::Hold(key) => check_text(&key.channel).and(check_text(&key.user)),
        RowKey::Follow { follower, followee } => check_text(follower).and(check_text(followee)),
        RowKey::Deadline { kind, name } => check_text(kind).and(check_text(name)),
    }
}

fn check_name(name: &str) -> Result<(), StoreError> {
    within("bytes in a name", name.len(), limits::NAME_BYTES)?;
    check_text(name)
}

/// Some engines join names with a zero byte between them, others cannot store one.
fn check_text(text: &str) -> Result<(), StoreError> {
    let zeros = text.bytes().filter(|&byte| byte == 0).count();
    within("zero bytes in a text", zeros, 0)
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<(), StoreError> {
    if found > limit { Err(StoreError::TooLarge { what, found, limit }) } else { Ok(()) }
}
