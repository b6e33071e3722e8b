//! What becomes of rows, and the statements that write it: one for each kind of row, however many rows.

use super::link::Step;
use super::{document, hold, key, lease, presence, session, social};
use tavern_store::deadline::Deadline;
use tavern_store::document::Document;
use tavern_store::key::ApiKey;
use tavern_store::lease::Lease;
use tavern_store::presence::{Hold, Presence};
use tavern_store::row::Row;
use tavern_store::session::StoredSession;
use tavern_store::social::{Follow, User};

pub(super) enum Change {
    Put(Row, u64),
    Set(Deadline),
    Delete,
}

/// Rows to put, by kind.
#[derive(Default)]
pub(super) struct Sorted<'a> {
    keys: Vec<(&'a ApiKey, u64)>,
    sessions: Vec<(&'a StoredSession, u64)>,
    documents: Vec<(&'a Document, u64)>,
    pub presences: Vec<(&'a Presence, u64)>,
    holds: Vec<(&'a Hold, u64)>,
    users: Vec<(&'a User, u64)>,
    follows: Vec<(&'a Follow, u64)>,
    leases: Vec<(&'a Lease, u64)>,
}

impl<'a> Sorted<'a> {
    pub fn add(&mut self, row: &'a Row, version: u64) {
        match row {
            Row::Key(key) => self.keys.push((key, version)),
            Row::Session(session) => self.sessions.push((session, version)),
            Row::Document(document) => self.documents.push((document, version)),
            Row::Presence(presence) => self.presences.push((presence, version)),
            Row::Hold(hold) => self.holds.push((hold, version)),
            Row::User(user) => self.users.push((user, version)),
            Row::Follow(follow) => self.follows.push((follow, version)),
            Row::Lease(lease) => self.leases.push((lease, version)),
        }
    }

    pub fn puts(self, steps: &mut Vec<Step<'a>>) {
        fn each<'a, T>(steps: &mut Vec<Step<'a>>, rows: &[T], put: impl FnOnce(&[T]) -> Step<'a>) {
            if !rows.is_empty() {
                steps.push(put(rows));
            }
        }
        each(steps, &self.keys, key::put);
        each(steps, &self.sessions, session::put);
        each(steps, &self.documents, document::put);
        each(steps, &self.presences, presence::put);
        each(steps, &self.presences, presence::put_clients);
        each(steps, &self.holds, hold::put);
        each(steps, &self.users, social::put_users);
        each(steps, &self.follows, social::put_follows);
        each(steps, &self.leases, lease::put);
    }
}
