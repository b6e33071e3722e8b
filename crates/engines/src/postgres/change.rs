//! Changes of rows, and the statements that write them: one for each kind of row, independent of the number of rows.

use super::connection::Statement;
use super::{document, hold, key, lease, presence, session, social};
use tavern_store::{
    ApiKey, Deadline, Document, Follow, Lease, PresenceHold, PresenceRow, Row, StoredSession, UserRow,
};

pub(super) enum RowChange {
    Put(Row, u64),
    Set(Deadline),
    Delete,
}

/// Rows to put, by kind.
#[derive(Default)]
pub(super) struct Puts<'a> {
    keys: Vec<(&'a ApiKey, u64)>,
    sessions: Vec<(&'a StoredSession, u64)>,
    documents: Vec<(&'a Document, u64)>,
    pub presences: Vec<(&'a PresenceRow, u64)>,
    holds: Vec<(&'a PresenceHold, u64)>,
    users: Vec<(&'a UserRow, u64)>,
    follows: Vec<(&'a Follow, u64)>,
    leases: Vec<(&'a Lease, u64)>,
}

impl<'a> Puts<'a> {
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

    pub fn statements(self, statements: &mut Vec<Statement<'a>>) {
        fn each<'a, T>(
            statements: &mut Vec<Statement<'a>>,
            rows: &[T],
            put: impl FnOnce(&[T]) -> Statement<'a>,
        ) {
            if !rows.is_empty() {
                statements.push(put(rows));
            }
        }
        each(statements, &self.keys, key::put);
        each(statements, &self.sessions, session::put);
        each(statements, &self.documents, document::put);
        each(statements, &self.presences, presence::put);
        each(statements, &self.presences, presence::put_clients);
        each(statements, &self.holds, hold::put);
        each(statements, &self.users, social::put_users);
        each(statements, &self.follows, social::put_follows);
        each(statements, &self.leases, lease::put);
    }
}
