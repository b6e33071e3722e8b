//! What a commit may hold. The same bounds on every engine, looked at before any work.
//! Must hold: whatever passes here, every engine can carry out.

use crate::limits;
use crate::presence::{Hold, Presence, PresenceKey};
use crate::row::{Row, RowKey};
use crate::store::{Commit, NodeChange, StoreError, Work};
use std::collections::BTreeSet;

impl Work {
    pub fn bytes(&self) -> usize {
        match self {
            Work::Commit(commit) => commit.bytes(),
            Work::Read(_) => 64,
        }
    }
}

impl Commit {
    /// The same bounds on every engine, looked at before any work.
    pub fn check(&self) -> Result<(), StoreError> {
        let items = self.expects.len() + self.puts.len() + self.deletes.len();
        let items = items + self.raises.len() + self.seen.len() + self.deadlines.len();
        let items = items + self.restores.len();
        let items = items + self.takes.len() + self.appends.len() + self.freed.len() + self.letters.len();
        within("items in a commit", items, limits::COMMIT_ITEMS)?;
        within("bytes in a commit", self.bytes(), limits::COMMIT_BYTES)?;
        for row in &self.puts {
            within("bytes in a row", row.bytes(), limits::BODY_BYTES)?;
            check_key(&row.key())?;
            row.texts().into_iter().flatten().try_for_each(check_text)?;
            match row {
                Row::Presence(presence) => check_clients(presence)?,
                Row::Hold(Hold { key, carrier: Some(carrier), .. }) => {
                    check_key(&RowKey::Hold(PresenceKey {
                        channel: carrier.clone(),
                        user: key.user.clone(),
                    }))?;
                }
                _ => {}
            }
        }
        for raise in &self.raises {
            within("bytes in a name", raise.channel.len(), limits::NAME_BYTES)?;
            check_text(&raise.channel)?;
        }
        self.expects.iter().map(|expect| &expect.key).chain(&self.deletes).try_for_each(check_key)?;
        self.deadlines.iter().try_for_each(|deadline| check_key(&deadline.key()))?;
        self.seen.iter().try_for_each(|seen| check_key(&RowKey::User(seen.user.clone())))?;
        self.check_raises();
        self.check_takes()?;
        for append in &self.appends {
            within("bytes in an event", append.body.len(), limits::BODY_BYTES)?;
            within("bytes in a name", append.topic.len(), limits::NAME_BYTES)?;
            within("bytes in an id", append.id.as_ref().map_or(0, |id| id.len()), limits::ID_BYTES)?;
            check_text(&append.topic)?;
            append.id.as_deref().map_or(Ok(()), check_text)?;
        }
        for entry in &self.restores {
            within("bytes in an event", entry.body.len(), limits::BODY_BYTES)?;
            within("bytes in a name", entry.topic.len(), limits::NAME_BYTES)?;
            within("bytes in an id", entry.id.as_ref().map_or(0, |id| id.len()), limits::ID_BYTES)?;
            check_text(&entry.topic)?;
            entry.id.as_deref().map_or(Ok(()), check_text)?;
        }
        for letter in &self.letters {
            within("bytes in a letter", letter.body.len(), limits::BODY_BYTES)?;
        }
        let users = self.letters.iter().map(|letter| &letter.user);
        for user in users.chain(self.freed.iter().map(|freed| &freed.user)) {
            within("bytes in a name", user.len(), limits::NAME_BYTES)?;
            check_text(user)?;
        }
        if let Some(change) = &self.node {
            let (name, lease_ms) = match change {
                NodeChange::Open { name, lease_ms } => (name, *lease_ms),
                NodeChange::Renew { node, lease_ms } => (&node.node, *lease_ms),
                NodeChange::Close { node, .. } | NodeChange::Stop { node } | NodeChange::Forget { node } => {
                    (&node.node, 0)
                }
            };
            within("bytes in a node's name", name.len(), tavern_domain::limits::NODE_BYTES)?;
            check_text(name)?;
            let lease = usize::try_from(lease_ms).unwrap_or(usize::MAX);
            within("milliseconds in a lease", lease, limits::LEASE_MS as usize)?;
        }
        Ok(())
    }

    fn check_raises(&self) {
        let raised: BTreeSet<&str> = self.raises.iter().map(|raise| &*raise.channel).collect();
        assert_eq!(raised.len(), self.raises.len(), "a channel is raised once");
        let puts = self.puts.iter().map(Row::key);
        for key in puts.chain(self.deletes.iter().cloned()) {
            if let RowKey::Presence(key) = key {
                assert!(raised.contains(&*key.channel), "a presence changes with its channel");
            }
        }
    }

    fn check_takes(&self) -> Result<(), StoreError> {
        assert!(self.takes.is_empty() || self.writer.is_some(), "whoever takes a lease is a node");
        let taken: BTreeSet<&str> = self.takes.iter().map(|take| &*take.name).collect();
        assert_eq!(taken.len(), self.takes.len(), "a lease is taken once");
        for take in &self.takes {
            check_key(&RowKey::Lease(take.name.clone()))?;
            let lease = usize::try_from(take.lease_ms).unwrap_or(usize::MAX);
            within("milliseconds in a lease", lease, limits::LEASE_MS as usize)?;
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let rows: usize = self.puts.iter().map(Row::bytes).sum();
        let events: usize = self.appends.iter().map(|append| append.body.len() + append.topic.len()).sum();
        let restored: usize = self.restores.iter().map(|entry| entry.body.len() + entry.topic.len()).sum();
        let letters: usize = self.letters.iter().map(|letter| letter.body.len()).sum();
        rows + events
            + restored
            + letters
            + 64 * (self.expects.len() + self.deletes.len() + self.deadlines.len())
    }
}

fn check_key(key: &RowKey) -> Result<(), StoreError> {
    let bytes = match key {
        RowKey::Key(id) => id.len(),
        RowKey::Session(_) => 0,
        RowKey::Document(key) => key.name().len(),
        RowKey::Presence(key) | RowKey::Hold(key) => key.channel.len() + key.user.len(),
        RowKey::User(user) => user.len(),
        RowKey::Lease(name) => name.len(),
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

fn check_clients(presence: &Presence) -> Result<(), StoreError> {
    for client in presence.attendance.clients() {
        check_text(&client.home.node)?;
        client.state.as_ref().map_or(Ok(()), |state| check_text(&state.text))?;
    }
    Ok(())
}

/// Some engines put names together with a zero byte between them, some cannot keep one.
fn check_text(text: &str) -> Result<(), StoreError> {
    let zeros = text.bytes().filter(|&byte| byte == 0).count();
    within("zero bytes in a text", zeros, 0)
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<(), StoreError> {
    if found > limit { Err(StoreError::TooLarge { what, found, limit }) } else { Ok(()) }
}
