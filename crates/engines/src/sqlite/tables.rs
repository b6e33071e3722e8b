//! The tables as one transaction of the writer sees them, with a cache of what the commits of a batch read again and again:
//! the writer, the last presence, the counts of channels and of the log, and the heads of histories, which are written once at the end.
//! Must hold: the cache does not outlive the transaction, in which nothing else writes; it is written before COMMIT.

use super::value::fault;
use super::{deadline, document, history, hold, inbox, key, lease, log, node, presence, session, social};
use rusqlite::{Connection, Error};
use std::collections::HashMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::commit::{HistoryHead, InboxCounts, LeaseState, RemovedMessages, Tables};
use tavern_store::{
    Deadline, HistoryLimits, HistoryMessage, InboxMessage, LastSeenUpdate, LogEntry, NodeRow, PresenceKey,
    PresenceRow, Row, RowKey, StoreError, Trim, Writer, planted,
};

pub(super) struct SqliteTables<'a> {
    connection: &'a Connection,
    /// Nearly all commits of a batch have the same writer.
    node: Option<(Writer, Option<NodeRow>)>,
    /// A presence is expected, then changed: its version is read once.
    presence: Option<(PresenceKey, u64)>,
    channels: HashMap<Arc<str>, SqliteChannel>,
    /// Whether there are any holds: usually not.
    holds: Option<bool>,
    log: Option<log::LogCounts>,
    histories: history::HistoryHeads,
}

/// A row of `channel_presences`; an empty channel has none.
struct SqliteChannel {
    version: u64,
    users: u64,
    updated: Time,
    changed: bool,
}

impl<'a> SqliteTables<'a> {
    pub fn new(connection: &'a Connection) -> SqliteTables<'a> {
        SqliteTables {
            connection,
            node: None,
            presence: None,
            channels: HashMap::new(),
            holds: None,
            log: None,
            histories: history::HistoryHeads::default(),
        }
    }

    /// The last step before COMMIT.
    pub fn write_counts(&mut self) -> Result<(), Error> {
        for (name, channel) in self.channels.drain().filter(|(_, channel)| channel.changed) {
            let SqliteChannel { version, users, updated, .. } = channel;
            match users {
                0 => presence::forget_channel(self.connection, &name)?,
                _ => presence::put_channel(self.connection, &name, version, users, updated)?,
            }
        }
        std::mem::take(&mut self.histories).write(self.connection)?;
        self.log.take().map_or(Ok(()), |log| log.write(self.connection))
    }

    fn count(&mut self, name: &Arc<str>) -> Result<&mut SqliteChannel, Error> {
        if !self.channels.contains_key(name) {
            let (version, users, updated) = presence::channel(self.connection, name)?;
            self.channels.insert(name.clone(), SqliteChannel { version, users, updated, changed: false });
        }
        Ok(self.channels.get_mut(name).expect("it was just inserted"))
    }

    fn log(&mut self) -> Result<&mut log::LogCounts, Error> {
        if self.log.is_none() {
            self.log = Some(log::LogCounts::read(self.connection)?);
        }
        Ok(self.log.get_or_insert_default())
    }

    fn presence_version(&mut self, key: &PresenceKey) -> Result<u64, Error> {
        if let Some((known, version)) = &self.presence
            && known == key
        {
            return Ok(*version);
        }
        let version = presence::version(self.connection, key)?;
        self.presence = Some((key.clone(), version));
        Ok(version)
    }

    fn put_presence(&mut self, presence: &PresenceRow, version: u64) -> Result<(), Error> {
        let new = self.presence_version(&presence.key)? == 0;
        if new {
            presence::insert(self.connection, presence, version)?;
            let channel = self.count(&presence.key.channel)?;
            (channel.users, channel.changed) = (channel.users + 1, true);
        } else {
            presence::update(self.connection, presence, version)?;
        }
        self.presence = Some((presence.key.clone(), version));
        Ok(())
    }

    fn delete_presence(&mut self, key: &PresenceKey) -> Result<(), Error> {
        if self.presence_version(key)? != 0 {
            presence::delete(self.connection, key)?;
            let channel = self.count(&key.channel)?;
            (channel.users, channel.changed) = (channel.users - 1, true);
        }
        if !planted("sqlite-version-check") {
            self.presence = Some((key.clone(), 0));
        }
        Ok(())
    }
}

impl Tables for SqliteTables<'_> {
    fn version(&mut self, key: &RowKey) -> Result<u64, StoreError> {
        match key {
            RowKey::Key(id) => key::version(self.connection, id),
            RowKey::Session(client) => session::version(self.connection, *client),
            RowKey::Document(key) => document::version(self.connection, key),
            RowKey::Presence(key) => self.presence_version(key),
            RowKey::Hold(key) => hold::version(self.connection, key),
            RowKey::User(user) => social::user_version(self.connection, user),
            RowKey::Follow { follower, followee } => {
                social::follow_version(self.connection, follower, followee)
            }
            RowKey::Lease(name) => lease::version(self.connection, name),
            RowKey::Deadline { kind, name } => deadline::version(self.connection, kind, name),
        }
        .map_err(fault)
    }

    fn put(&mut self, row: &Row, version: u64) -> Result<(), StoreError> {
        match row {
            Row::Key(key) => key::put(self.connection, key, version),
            Row::Session(session) => session::put(self.connection, session, version),
            Row::Document(document) => document::put(self.connection, document, version),
            Row::Presence(presence) => self.put_presence(presence, version),
            Row::Hold(hold) => {
                self.holds = Some(true);
                hold::put(self.connection, hold, version)
            }
            Row::User(user) => social::put_user(self.connection, user, version),
            Row::Follow(follow) => social::put_follow(self.connection, follow, version),
            Row::Lease(lease) => lease::put(self.connection, lease, version),
        }
        .map_err(fault)
    }

    fn delete(&mut self, key: &RowKey) -> Result<(), StoreError> {
        match key {
            RowKey::Key(id) => key::delete(self.connection, id),
            RowKey::Session(client) => session::delete(self.connection, *client),
            RowKey::Document(key) => document::delete(self.connection, key),
            RowKey::Presence(key) => self.delete_presence(key),
            RowKey::Hold(key) => hold::delete(self.connection, key),
            RowKey::User(user) => social::delete_user(self.connection, user),
            RowKey::Follow { follower, followee } => {
                social::delete_follow(self.connection, follower, followee)
            }
            RowKey::Lease(name) => lease::delete(self.connection, name),
            RowKey::Deadline { kind, name } => deadline::delete(self.connection, kind, name),
        }
        .map_err(fault)
    }

    fn set_deadline(&mut self, deadline: &Deadline) -> Result<(), StoreError> {
        deadline::set(self.connection, deadline).map_err(fault)
    }

    fn node(&mut self, node: &Writer) -> Result<Option<NodeRow>, StoreError> {
        match &self.node {
            Some((known, found)) if known == node => Ok(found.clone()),
            _ => {
                let found = node::get(self.connection, node).map_err(fault)?;
                self.node = Some((node.clone(), found.clone()));
                Ok(found)
            }
        }
    }

    fn epochs(&mut self, name: &str) -> Result<Vec<NodeRow>, StoreError> {
        node::epochs(self.connection, name).map_err(fault)
    }

    fn put_node(&mut self, node: &NodeRow) -> Result<(), StoreError> {
        self.node = None;
        node::put(self.connection, node).map_err(fault)
    }

    fn forget_node(&mut self, node: &Writer) -> Result<(), StoreError> {
        self.node = None;
        node::forget(self.connection, node).map_err(fault)
    }

    fn channel(&mut self, name: &Arc<str>) -> Result<(u64, u64), StoreError> {
        let channel = self.count(name).map_err(fault)?;
        Ok((channel.version, channel.users))
    }

    fn set_channel(&mut self, name: &Arc<str>, version: u64, now: Time) -> Result<(), StoreError> {
        let channel = self.count(name).map_err(fault)?;
        (channel.version, channel.updated, channel.changed) = (version, now, true);
        Ok(())
    }

    fn forget_channel(&mut self, name: &Arc<str>) -> Result<(), StoreError> {
        let channel = self.count(name).map_err(fault)?;
        (channel.version, channel.users, channel.changed) = (0, 0, true);
        Ok(())
    }

    fn see(&mut self, seen: &LastSeenUpdate, version: u64) -> Result<(), StoreError> {
        social::see(self.connection, seen, version).map_err(fault)
    }

    fn held_with(&mut self, presence: &PresenceKey) -> Result<Vec<Arc<str>>, StoreError> {
        let holds = match self.holds {
            Some(holds) => holds,
            None => *self.holds.insert(hold::any(self.connection).map_err(fault)?),
        };
        if !holds {
            return Ok(Vec::new());
        }
        hold::held_with(self.connection, presence).map_err(fault)
    }

    fn lease(&mut self, name: &Arc<str>) -> Result<Option<LeaseState>, StoreError> {
        let Some(lease) = lease::get(self.connection, name).map_err(fault)? else { return Ok(None) };
        let holder = node::get(self.connection, &lease.row.holder).map_err(fault)?;
        Ok(Some(LeaseState { lease, holder_is_open: holder.is_some_and(|node| node.closed_at.is_none()) }))
    }

    fn head(&mut self) -> Result<u64, StoreError> {
        self.log().map(|log| log.head()).map_err(fault)
    }

    fn count(&mut self, topic: &Arc<str>) -> Result<u64, StoreError> {
        let connection = self.connection;
        self.log().and_then(|log| log.count(connection, topic)).map_err(fault)
    }

    fn known_event(&mut self, topic: &Arc<str>, id: &Arc<str>) -> Result<Option<(u64, u64)>, StoreError> {
        log::known(self.connection, topic, id).map_err(fault)
    }

    fn append(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        let connection = self.connection;
        self.log().and_then(|log| log.append(connection, entry)).map_err(fault)
    }

    fn trim(&mut self, trim: &Trim) -> Result<(), StoreError> {
        let connection = self.connection;
        self.log().and_then(|log| log.trim(connection, trim)).map_err(fault)
    }

    fn inbox(&mut self, user: &Arc<str>) -> Result<InboxCounts, StoreError> {
        inbox::counts(self.connection, user).map_err(fault)
    }

    fn add_message(&mut self, user: &Arc<str>, message: &InboxMessage) -> Result<(), StoreError> {
        inbox::add(self.connection, user, message).map_err(fault)
    }

    fn remove_messages(&mut self, user: &Arc<str>, through: u64) -> Result<RemovedMessages, StoreError> {
        inbox::remove(self.connection, user, through).map_err(fault)
    }

    fn remove_oldest(&mut self, user: &Arc<str>) -> Result<RemovedMessages, StoreError> {
        inbox::remove_oldest(self.connection, user).map_err(fault)
    }

    fn set_inbox(&mut self, user: &Arc<str>, counts: &InboxCounts) -> Result<(), StoreError> {
        inbox::set(self.connection, user, counts).map_err(fault)
    }

    fn history(&mut self, channel: &Arc<str>) -> Result<HistoryHead, StoreError> {
        self.histories.head(self.connection, channel).map_err(fault)
    }

    fn known_history(&mut self, channel: &Arc<str>, id: &Arc<str>) -> Result<Option<u64>, StoreError> {
        self.histories.known(self.connection, channel, id).map_err(fault)
    }

    fn append_history(
        &mut self,
        channel: &Arc<str>,
        head: &HistoryHead,
        message: &HistoryMessage,
        keep: &HistoryLimits,
    ) -> Result<(), StoreError> {
        self.histories.append(self.connection, channel, head, message, keep).map_err(fault)
    }

    fn clear_history(&mut self, channel: &Arc<str>) -> Result<(), StoreError> {
        self.histories.clear(self.connection, channel).map_err(fault)
    }
}
