//! The tables as one transaction of the writer sees them: what was locked and loaded, and how the commits of the batch change
//! it, in memory. Must hold: only locked rows are read or changed; `changes` deletes every row that was only reserved.

use super::change::{Puts, RowChange};
use super::connection::Statement;
use super::error::PostgresError;
use super::locks::{KINDS, LockSet, names};
use super::presence::ChannelRow;
use super::value::{get as column, read_number, read_time};
use super::{deadline, history, hold, inbox, lease, log, node, presence, social};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Visibility;
use tavern_store::commit::{HistoryHead, InboxCounts, LeaseState, RemovedMessages, Tables};
use tavern_store::{
    Deadline, HistoryLimits, HistoryMessage, InboxMessage, LastSeenUpdate, LogEntry, NodeRow, PresenceHold,
    PresenceKey, Row, RowKey, StoreError, Trim, UserRow, Versioned, Writer, planted,
};
use tokio_postgres::Row as PgRow;

pub(super) struct PostgresTables<'a> {
    locks: &'a LockSet,
    /// The version of every locked row; 0: absent.
    versions: HashMap<RowKey, u64>,
    nodes: BTreeMap<Writer, NodeRow>,
    channels: BTreeMap<Arc<str>, ChannelRow>,
    users: HashMap<Arc<str>, UserRow>,
    holds: BTreeMap<PresenceKey, PresenceHold>,
    leases: HashMap<Arc<str>, LeaseState>,
    inboxes: inbox::LockedInboxes,
    histories: history::LockedHistories,
    log: Option<log::LogChanges>,
    /// The last change of each row.
    changes: BTreeMap<RowKey, RowChange>,
    changed_nodes: BTreeSet<Writer>,
}

impl<'a> PostgresTables<'a> {
    /// The statements that load the locked rows, for `load`.
    pub fn loads(locks: &LockSet) -> Vec<Statement<'_>> {
        let mut statements = Vec::new();
        for (kind, of_kind) in KINDS.iter().enumerate() {
            let keys = locks.keys(kind);
            if !keys.is_empty() {
                let (one, two) = names(keys.into_iter());
                statements.push(Statement::new(of_kind.load).with(one).with(two));
            }
        }
        if !locks.channels.is_empty() {
            statements.push(presence::load_channels(&locks.channels));
        }
        if !locks.presences.is_empty() {
            statements.push(hold::load_held_with(&locks.presences));
        }
        if !locks.inboxes.is_empty() {
            statements.extend(inbox::load(&locks.inboxes));
        }
        if let Some(wanted) = &locks.histories {
            statements.extend(history::load(wanted));
        }
        if let Some(wanted) = &locks.log {
            statements.extend(log::load(wanted));
        }
        statements
    }

    pub fn load(
        locks: &'a LockSet,
        nodes: &[PgRow],
        found: &[Vec<PgRow>],
    ) -> Result<PostgresTables<'a>, PostgresError> {
        let mut tables = PostgresTables {
            locks,
            versions: locks.rows.iter().cloned().map(|key| (key, 0)).collect(),
            nodes: BTreeMap::new(),
            channels: locks.channels.iter().map(|name| (name.clone(), ChannelRow::default())).collect(),
            users: HashMap::new(),
            holds: BTreeMap::new(),
            leases: HashMap::new(),
            inboxes: inbox::LockedInboxes::default(),
            histories: history::LockedHistories::default(),
            log: None,
            changes: BTreeMap::new(),
            changed_nodes: BTreeSet::new(),
        };
        for row in nodes {
            let node = node::read(row)?;
            tables.nodes.insert(node.writer.clone(), node);
        }
        let mut found = found.iter();
        for kind in 0..KINDS.len() {
            let keys = locks.keys(kind);
            if !keys.is_empty() {
                tables.load_rows(&keys, found.next().map_or(&[], |rows| rows))?;
            }
        }
        if !locks.channels.is_empty() {
            let names: Vec<&Arc<str>> = locks.channels.iter().collect();
            for row in found.next().into_iter().flatten() {
                let (version, users) = (read_number(row, 1)?, read_number(row, 2)?);
                let channel = ChannelRow { version, users, updated: read_time(row, 3)?, changed: false };
                tables.channels.insert(names[place(row)?].clone(), channel);
            }
        }
        if !locks.presences.is_empty() {
            for row in found.next().into_iter().flatten() {
                let hold = hold::loaded(row)?;
                tables.holds.insert(hold.key.clone(), hold);
            }
        }
        let mut next = || found.next().map_or(&[][..], |rows| rows);
        if !locks.inboxes.is_empty() {
            tables.inboxes = inbox::LockedInboxes::load(next(), next())?;
        }
        if locks.histories.is_some() {
            tables.histories = history::LockedHistories::load(next(), next())?;
        }
        if locks.log.is_some() {
            tables.log = Some(log::LogChanges::load(next(), next(), next())?);
        }
        Ok(tables)
    }

    fn load_rows(&mut self, keys: &[&RowKey], found: &[PgRow]) -> Result<(), PostgresError> {
        for row in found {
            let key = keys[place(row)?];
            // A deadline that is never due is stored as the largest number that a column can hold.
            let version = read_time(row, 1)?.0;
            self.versions.insert(key.clone(), version);
            match key {
                RowKey::User(user) => drop(self.users.insert(user.clone(), social::loaded_user(row)?)),
                RowKey::Hold(key) => drop(self.holds.insert(key.clone(), hold::loaded(row)?)),
                RowKey::Lease(name) => drop(self.leases.insert(name.clone(), lease::loaded(row)?)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes all changes to the database.
    pub fn changes(&self) -> Vec<Statement<'_>> {
        let mut statements = Vec::new();
        for writer in &self.changed_nodes {
            statements.push(self.nodes.get(writer).map_or_else(|| node::forget(writer), node::put));
        }
        let (mut puts, mut set) = (Puts::default(), Vec::new());
        for change in self.changes.values() {
            match change {
                RowChange::Put(row, version) => puts.add(row, *version),
                RowChange::Set(deadline) => set.push(deadline),
                RowChange::Delete => {}
            }
        }
        self.deletes(&puts, &mut statements);
        puts.statements(&mut statements);
        if !set.is_empty() {
            statements.push(deadline::set(&set));
        }
        let (empty, full): (Vec<_>, Vec<_>) =
            self.channels.iter().partition(|(_, channel)| channel.users == 0);
        let full: Vec<_> = full.into_iter().filter(|(_, channel)| channel.changed).collect();
        if !full.is_empty() {
            statements.push(presence::put_channels(&full));
        }
        if !empty.is_empty() {
            let empty: Vec<_> = empty.into_iter().map(|(name, _)| name).collect();
            statements.push(presence::forget_channels(&empty));
        }
        statements.extend(self.inboxes.changes());
        statements.extend(self.histories.changes());
        statements.extend(self.log.iter().flat_map(log::LogChanges::changes));
        statements
    }

    /// Deleted rows, and those that were only reserved.
    fn deletes<'b>(&'b self, puts: &Puts<'b>, statements: &mut Vec<Statement<'b>>) {
        let mut clients: Vec<&PresenceKey> = puts.presences.iter().map(|(row, _)| &row.key).collect();
        for (kind, of_kind) in KINDS.iter().enumerate() {
            let mut gone = self.locks.keys(kind);
            gone.retain(|key| self.versions.get(key) == Some(&0));
            if gone.is_empty() {
                continue;
            }
            for key in &gone {
                if let RowKey::Presence(key) = key {
                    clients.push(key);
                }
            }
            let (one, two) = names(gone.into_iter());
            statements.push(Statement::new(of_kind.delete).with(one).with(two));
        }
        if !clients.is_empty() {
            statements.push(presence::forget_clients(&clients));
        }
    }

    fn change(&mut self, key: RowKey, version: u64, change: RowChange) {
        let earlier = self.versions.insert(key.clone(), version);
        assert!(earlier.is_some(), "{key} is not locked");
        self.changes.insert(key, change);
    }

    fn log(&mut self) -> &mut log::LogChanges {
        self.log.as_mut().expect("the log is locked")
    }

    fn channel_of(&mut self, key: &PresenceKey) -> &mut ChannelRow {
        let channel = self.channels.get_mut(&key.channel).expect("a presence changes with its channel");
        channel.changed = true;
        channel
    }
}

fn place(row: &PgRow) -> Result<usize, PostgresError> {
    let place = usize::try_from(column::<i64>(row, 0)?).ok().and_then(|at| at.checked_sub(1));
    place.ok_or(PostgresError::Unexpected("no place in a list"))
}

impl Tables for PostgresTables<'_> {
    fn version(&mut self, key: &RowKey) -> Result<u64, StoreError> {
        Ok(*self.versions.get(key).unwrap_or_else(|| panic!("{key} is not locked")))
    }

    fn put(&mut self, row: &Row, version: u64) -> Result<(), StoreError> {
        let mut row = row.clone();
        match &mut row {
            Row::Presence(presence) => {
                if self.versions.get(&RowKey::Presence(presence.key.clone())) == Some(&0) {
                    self.channel_of(&presence.key).users += 1;
                }
            }
            Row::Hold(hold) => drop(self.holds.insert(hold.key.clone(), hold.clone())),
            Row::User(user) => {
                let before = self.users.get(&user.user).and_then(|known| known.last_seen);
                user.last_seen = user.last_seen.max(before);
                self.users.insert(user.user.clone(), user.clone());
            }
            Row::Lease(lease) => {
                let lease = Versioned { version, row: lease.clone() };
                self.leases.insert(lease.row.name.clone(), LeaseState { lease, holder_is_open: true });
            }
            Row::Key(_) | Row::Session(_) | Row::Document(_) | Row::Follow(_) => {}
        }
        self.change(row.key(), version, RowChange::Put(row, version));
        Ok(())
    }

    fn delete(&mut self, key: &RowKey) -> Result<(), StoreError> {
        match key {
            RowKey::Presence(presence) if self.versions.get(key).is_some_and(|version| *version > 0) => {
                self.channel_of(presence).users -= 1;
            }
            RowKey::Hold(key) => drop(self.holds.remove(key)),
            RowKey::User(user) => drop(self.users.remove(user)),
            RowKey::Lease(name) => drop(self.leases.remove(name)),
            _ => {}
        }
        self.change(key.clone(), 0, RowChange::Delete);
        Ok(())
    }

    fn set_deadline(&mut self, deadline: &Deadline) -> Result<(), StoreError> {
        self.change(deadline.key(), deadline.due.0, RowChange::Set(deadline.clone()));
        Ok(())
    }

    fn node(&mut self, node: &Writer) -> Result<Option<NodeRow>, StoreError> {
        Ok(self.nodes.get(node).cloned())
    }

    fn epochs(&mut self, name: &str) -> Result<Vec<NodeRow>, StoreError> {
        Ok(self.nodes.values().filter(|node| &*node.writer.node == name).cloned().collect())
    }

    fn put_node(&mut self, node: &NodeRow) -> Result<(), StoreError> {
        self.changed_nodes.insert(node.writer.clone());
        self.nodes.insert(node.writer.clone(), node.clone());
        Ok(())
    }

    fn forget_node(&mut self, node: &Writer) -> Result<(), StoreError> {
        self.changed_nodes.insert(node.clone());
        self.nodes.remove(node);
        Ok(())
    }

    fn channel(&mut self, name: &Arc<str>) -> Result<(u64, u64), StoreError> {
        let channel = self.channels.get(name).expect("a channel that is raised is locked");
        Ok((channel.version, channel.users))
    }

    fn set_channel(&mut self, name: &Arc<str>, version: u64, now: Time) -> Result<(), StoreError> {
        let channel = self.channels.get_mut(name).expect("a channel that is raised is locked");
        (channel.version, channel.updated, channel.changed) = (version, now, true);
        Ok(())
    }

    fn forget_channel(&mut self, name: &Arc<str>) -> Result<(), StoreError> {
        self.channels.insert(name.clone(), ChannelRow { changed: true, ..ChannelRow::default() });
        Ok(())
    }

    fn see(&mut self, seen: &LastSeenUpdate, version: u64) -> Result<(), StoreError> {
        let key = RowKey::User(seen.user.clone());
        let known = self.version(&key)?;
        let user = self.users.entry(seen.user.clone()).or_insert_with(|| UserRow {
            user: seen.user.clone(),
            last_seen: None,
            visibility: Visibility::Everyone,
        });
        if user.last_seen < Some(seen.at) {
            user.last_seen = Some(seen.at);
            let (user, version) = (user.clone(), if known > 0 { known } else { version });
            self.change(key, version, RowChange::Put(Row::User(user), version));
        }
        Ok(())
    }

    fn held_with(&mut self, presence: &PresenceKey) -> Result<Vec<Arc<str>>, StoreError> {
        let follows = |hold: &&PresenceHold| {
            hold.key.user == presence.user && hold.held_with.as_ref() == Some(&presence.channel)
        };
        Ok(self.holds.values().filter(follows).map(|hold| hold.key.channel.clone()).collect())
    }
    fn lease(&mut self, name: &Arc<str>) -> Result<Option<LeaseState>, StoreError> {
        let Some(mut found) = self.leases.get(name).cloned() else { return Ok(None) };
        let holder = &found.lease.row.holder;
        // What a commit of the same batch did to the holder counts too.
        found.holder_is_open = match self.nodes.get(holder) {
            Some(node) => node.closed_at.is_none(),
            None => found.holder_is_open && !self.changed_nodes.contains(holder),
        };
        if planted("postgres-lease") {
            found.lease.row.until = Time::NEVER;
        }
        Ok(Some(found))
    }

    fn head(&mut self) -> Result<u64, StoreError> {
        Ok(self.log().head())
    }

    fn count(&mut self, topic: &Arc<str>) -> Result<u64, StoreError> {
        Ok(self.log().count(topic))
    }

    fn known_event(&mut self, topic: &Arc<str>, id: &Arc<str>) -> Result<Option<(u64, u64)>, StoreError> {
        Ok(self.log().known(topic, id))
    }

    fn append(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        self.log().append(entry);
        Ok(())
    }

    fn trim(&mut self, trim: &Trim) -> Result<(), StoreError> {
        self.log().trim(trim);
        Ok(())
    }

    fn inbox(&mut self, user: &Arc<str>) -> Result<InboxCounts, StoreError> {
        Ok(self.inboxes.counts(user))
    }

    fn add_message(&mut self, user: &Arc<str>, message: &InboxMessage) -> Result<(), StoreError> {
        self.inboxes.add(user, message);
        Ok(())
    }

    fn remove_messages(&mut self, user: &Arc<str>, through: u64) -> Result<RemovedMessages, StoreError> {
        Ok(self.inboxes.remove(user, through))
    }

    fn remove_oldest(&mut self, user: &Arc<str>) -> Result<RemovedMessages, StoreError> {
        Ok(self.inboxes.remove_oldest(user))
    }

    fn set_inbox(&mut self, user: &Arc<str>, counts: &InboxCounts) -> Result<(), StoreError> {
        self.inboxes.set(user, counts);
        Ok(())
    }

    fn history(&mut self, channel: &Arc<str>) -> Result<HistoryHead, StoreError> {
        Ok(self.histories.head(channel))
    }

    fn known_history(&mut self, channel: &Arc<str>, id: &Arc<str>) -> Result<Option<u64>, StoreError> {
        Ok(self.histories.known(channel, id))
    }

    fn append_history(
        &mut self,
        channel: &Arc<str>,
        head: &HistoryHead,
        message: &HistoryMessage,
        keep: &HistoryLimits,
    ) -> Result<(), StoreError> {
        self.histories.append(channel, head, message, keep);
        Ok(())
    }

    fn clear_history(&mut self, channel: &Arc<str>) -> Result<(), StoreError> {
        self.histories.clear(channel);
        Ok(())
    }
}
