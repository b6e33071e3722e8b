//! All tables of the in-memory store: reads, and what the commit algorithm needs.

use super::deadline::Deadlines;
use super::document::Documents;
use super::history::Histories;
use super::hold::Holds;
use super::inbox::MemoryInboxes;
use super::key::ApiKeyTable;
use super::lease::Leases;
use super::log::EventLog;
use super::node::Nodes;
use super::presence::MemoryPresences;
use super::session::Sessions;
use super::social::MemoryPeople;
use crate::commit::{
    self, Commit, HistoryHead, InboxCounts, LeaseState, Receipt, RemovedMessages, Tables, VersionClock,
};
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::history::{HistoryLimits, HistoryMessage};
use crate::inbox::InboxMessage;
use crate::limits;
use crate::log::{LogEntry, Trim};
use crate::node::{NodeRow, Writer};
use crate::page::{Page, Versioned};
use crate::presence::{PresenceKey, PresencePage};
use crate::read::{Found, Read};
use crate::row::{Row, RowKey, RowKind};
use crate::social::{LastSeenUpdate, UserSnapshot};
use crate::store::{StoreAnswer, Work};
use std::sync::Arc;
use tavern_domain::Time;

#[derive(Default)]
pub(super) struct MemoryTables {
    clock: VersionClock,
    nodes: Nodes,
    keys: ApiKeyTable,
    sessions: Sessions,
    documents: Documents,
    presences: MemoryPresences,
    people: MemoryPeople,
    holds: Holds,
    deadlines: Deadlines,
    leases: Leases,
    events: EventLog,
    inboxes: MemoryInboxes,
    histories: Histories,
}

impl MemoryTables {
    pub fn perform(&mut self, wall: Time, work: &Work) -> StoreAnswer {
        match work {
            Work::Commit(commit) => {
                self.commit(wall, commit).map_or_else(StoreAnswer::Failed, StoreAnswer::Committed)
            }
            Work::Read(read) => StoreAnswer::Read(self.read(wall, read)),
        }
    }

    fn commit(&mut self, wall: Time, commit: &Commit) -> Result<Receipt, StoreError> {
        commit.check()?;
        let mut clock = self.clock;
        let outcome = commit::apply(self, &mut clock, wall, commit);
        self.clock = clock;
        outcome
    }

    fn read(&self, wall: Time, read: &Read) -> Found {
        match read {
            Read::Time => Found::Time(self.clock.time.max(wall)),
            Read::Totals => Found::Totals(self.clock.totals),
            Read::KeyByHash(hash) => Found::Key(self.keys.by_hash(hash)),
            Read::Keys { after, limit } => Found::Keys(self.keys.page(after.as_deref(), *limit)),
            Read::Session(client) => Found::Session(self.sessions.get(*client)),
            Read::Sessions { node, after, limit } => {
                Found::Sessions(self.sessions.page(node.as_deref(), *after, *limit))
            }
            Read::Nodes { after, limit } => Found::Nodes(self.nodes.page(after.as_ref(), *limit)),
            Read::DueDeadlines { by, after, limit } => {
                Found::Deadlines(self.deadlines.due(*by, after.as_ref(), *limit))
            }
            Read::Document(key) => Found::Document(self.documents.get(key)),
            Read::Presence(key) => Found::Presence(self.presences.get(key)),
            Read::Roster { channel, after, limit } => {
                let roster = self.presences.roster(channel, after.as_ref(), *limit);
                Found::Roster(match roster.users {
                    0 => PresencePage { version: self.clock.floor, ..roster },
                    _ => roster,
                })
            }
            Read::ChannelsOf { user, after, limit } => {
                Found::Presences(self.presences.of_user(user, after.as_ref(), *limit))
            }
            Read::People { users, viewer } => {
                let users = users.iter().take(limits::PAGE_ROWS as usize);
                Found::People(users.map(|user| self.person(user, viewer.as_ref())).collect())
            }
            Read::Hold(key) => Found::Hold(self.holds.get(key)),
            Read::Following { user, after, limit } => {
                Found::Edges(self.people.following(user, after.as_ref(), *limit))
            }
            Read::Followers { user, after, limit } => {
                Found::Edges(self.people.followers(user, after.as_ref(), *limit))
            }
            Read::PresencesAt { node: home, after, limit } => {
                Found::Presences(self.presences.at_node(home, after.as_ref(), *limit))
            }
            Read::StalePresences { before, limit } => {
                Found::StalePresences(self.presences.stale(&self.nodes, *before, *limit))
            }
            Read::Rows { kind, after, limit } => Found::Rows(self.rows(*kind, after.as_ref(), *limit)),
            Read::Lease(name) => Found::Lease(self.leases.get(name)),
            Read::Log { topics, after, limit } => Found::Log(self.events.page(topics, *after, *limit)),
            Read::Topics { names, after, limit } => {
                Found::Topics(self.events.topics(names, after.as_ref(), *limit))
            }
            Read::Inbox { user, after, limit } => Found::Inbox(self.inboxes.page(user, *after, *limit)),
            Read::History { channel, after, before, newest, limit } => {
                Found::History(self.histories.page(channel, *after, *before, *newest, *limit))
            }
            Read::Histories { after, limit } => Found::Histories(self.histories.list(after.as_ref(), *limit)),
        }
    }

    fn rows(&self, kind: RowKind, after: Option<&RowKey>, limit: u32) -> Page<Versioned<Row>> {
        match kind {
            RowKind::Document => self.documents.rows(after, limit),
            RowKind::Presence => self.presences.rows(after, limit),
            RowKind::Hold => self.holds.rows(after, limit),
            RowKind::User => self.people.user_rows(after, limit),
            RowKind::Follow => self.people.follow_rows(after, limit),
        }
    }

    fn person(&self, user: &Arc<str>, viewer: Option<&Arc<str>>) -> UserSnapshot {
        UserSnapshot {
            user: user.clone(),
            known: self.people.user(user),
            presences: self.presences.of_user(user, None, limits::PAGE_ROWS).rows,
            mutual: viewer.is_some_and(|viewer| self.people.are_mutual(user, viewer)),
        }
    }
}

impl Tables for MemoryTables {
    fn version(&mut self, key: &RowKey) -> Result<u64, StoreError> {
        Ok(match key {
            RowKey::Key(id) => self.keys.version(id),
            RowKey::Session(client) => self.sessions.version(*client),
            RowKey::Document(key) => self.documents.version(key),
            RowKey::Presence(key) => self.presences.version(key),
            RowKey::Hold(key) => self.holds.version(key),
            RowKey::User(user) => self.people.user_version(user),
            RowKey::Follow { follower, followee } => self.people.follow_version(follower, followee),
            RowKey::Lease(name) => self.leases.version(name),
            RowKey::Deadline { kind, name } => self.deadlines.version(kind, name),
        })
    }

    fn put(&mut self, row: &Row, version: u64) -> Result<(), StoreError> {
        match row {
            Row::Key(key) => self.keys.put(key, version),
            Row::Session(session) => self.sessions.put(session, version),
            Row::Document(document) => self.documents.put(document, version),
            Row::Presence(presence) => self.presences.put(presence, version),
            Row::Hold(hold) => self.holds.put(hold, version),
            Row::User(user) => self.people.put_user(user, version),
            Row::Follow(follow) => self.people.put_follow(follow, version),
            Row::Lease(lease) => self.leases.put(lease, version),
        }
        Ok(())
    }

    fn delete(&mut self, key: &RowKey) -> Result<(), StoreError> {
        match key {
            RowKey::Key(id) => self.keys.delete(id),
            RowKey::Session(client) => self.sessions.delete(*client),
            RowKey::Document(key) => self.documents.delete(key),
            RowKey::Presence(key) => self.presences.delete(key),
            RowKey::Hold(key) => self.holds.delete(key),
            RowKey::User(user) => self.people.delete_user(user),
            RowKey::Lease(name) => self.leases.delete(name),
            RowKey::Follow { follower, followee } => self.people.delete_follow(follower, followee),
            RowKey::Deadline { kind, name } => self.deadlines.delete(kind, name),
        }
        Ok(())
    }

    fn set_deadline(&mut self, deadline: &Deadline) -> Result<(), StoreError> {
        self.deadlines.set(deadline);
        Ok(())
    }

    fn node(&mut self, node: &Writer) -> Result<Option<NodeRow>, StoreError> {
        Ok(self.nodes.get(node))
    }

    fn epochs(&mut self, name: &str) -> Result<Vec<NodeRow>, StoreError> {
        Ok(self.nodes.epochs(name))
    }

    fn put_node(&mut self, node: &NodeRow) -> Result<(), StoreError> {
        self.nodes.put(node);
        Ok(())
    }

    fn forget_node(&mut self, node: &Writer) -> Result<(), StoreError> {
        self.nodes.forget(node);
        Ok(())
    }

    fn channel(&mut self, name: &Arc<str>) -> Result<(u64, u64), StoreError> {
        Ok(self.presences.channel(name))
    }

    fn set_channel(&mut self, name: &Arc<str>, version: u64, _now: Time) -> Result<(), StoreError> {
        self.presences.set_channel(name, version);
        Ok(())
    }

    fn forget_channel(&mut self, name: &Arc<str>) -> Result<(), StoreError> {
        self.presences.forget_channel(name);
        Ok(())
    }

    fn see(&mut self, seen: &LastSeenUpdate, version: u64) -> Result<(), StoreError> {
        self.people.see(seen, version);
        Ok(())
    }

    fn held_with(&mut self, presence: &PresenceKey) -> Result<Vec<Arc<str>>, StoreError> {
        Ok(self.holds.held_with(presence))
    }

    fn lease(&mut self, name: &Arc<str>) -> Result<Option<LeaseState>, StoreError> {
        let Some(lease) = self.leases.get(name) else { return Ok(None) };
        let holder_is_open = self.nodes.get(&lease.row.holder).is_some_and(|node| node.closed_at.is_none());
        Ok(Some(LeaseState { lease, holder_is_open }))
    }

    fn head(&mut self) -> Result<u64, StoreError> {
        Ok(self.events.head())
    }

    fn count(&mut self, topic: &Arc<str>) -> Result<u64, StoreError> {
        Ok(self.events.count(topic))
    }

    fn known_event(&mut self, topic: &Arc<str>, id: &Arc<str>) -> Result<Option<(u64, u64)>, StoreError> {
        Ok(self.events.known(topic, id))
    }

    fn append(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        self.events.append(entry);
        Ok(())
    }

    fn trim(&mut self, trim: &Trim) -> Result<(), StoreError> {
        self.events.trim(trim);
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
