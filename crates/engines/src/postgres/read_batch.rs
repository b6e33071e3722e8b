//! Reads that were submitted together: those of one kind become one statement, because many users who connect at once
//! cause the same few reads each. Must hold: each read is answered as if it were alone.

use super::connection::PostgresConnection;
use super::error::PostgresError;
use super::writer::PostgresClock;
use super::{reader, roster, session, social};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Found, Page, Read, StoreAnswer, StoreError, Ticket};

/// Reads of one kind, for one statement.
pub(super) struct ReadBatch<'a> {
    kind: ReadKind,
    reads: Vec<(Ticket, &'a Read)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReadKind {
    Presences,
    Sessions,
    People,
    Following,
    /// One statement each; by its index in the batch.
    Other(usize),
}

type BatchAnswers = Vec<(Ticket, StoreAnswer)>;

impl<'a> ReadBatch<'a> {
    pub fn by_kind(batch: &'a [(Ticket, Read)]) -> Vec<ReadBatch<'a>> {
        let mut batches: BTreeMap<ReadKind, Vec<(Ticket, &Read)>> = BTreeMap::new();
        let mut people = 0;
        for (at, (ticket, read)) in batch.iter().enumerate() {
            let kind = match read {
                Read::Presence(_) => ReadKind::Presences,
                Read::Session(_) => ReadKind::Sessions,
                Read::People { users, viewer: None } if people + users.len() <= PAGE_ROWS as usize => {
                    people += users.len();
                    ReadKind::People
                }
                Read::Following { after: None, limit: PAGE_ROWS, .. } => ReadKind::Following,
                _ => ReadKind::Other(at),
            };
            batches.entry(kind).or_default().push((*ticket, read));
        }
        batches.into_iter().map(|(kind, reads)| ReadBatch { kind, reads }).collect()
    }

    pub async fn read(
        &self,
        connection: &PostgresConnection,
        clock: &PostgresClock,
    ) -> Result<BatchAnswers, PostgresError> {
        match self.kind {
            ReadKind::Presences => self.presences(connection).await,
            ReadKind::Sessions => self.sessions(connection).await,
            ReadKind::People => self.people(connection).await,
            ReadKind::Following => self.following(connection).await,
            ReadKind::Other(_) => {
                let mut answers = BatchAnswers::new();
                for (ticket, read) in &self.reads {
                    answers.push((*ticket, StoreAnswer::Read(reader::read(connection, clock, read).await?)));
                }
                Ok(answers)
            }
        }
    }

    async fn presences(&self, connection: &PostgresConnection) -> Result<BatchAnswers, PostgresError> {
        let key = |read: &'a Read| if let Read::Presence(key) = read { Some(key) } else { None };
        let found = roster::get_all(connection, self.reads.iter().filter_map(|(_, read)| key(read))).await?;
        let found: HashMap<_, _> = found.into_iter().map(|row| (row.row.key.clone(), row)).collect();
        Ok(self.answers(|read| Found::Presence(key(read).and_then(|key| found.get(key).cloned()))))
    }

    async fn sessions(&self, connection: &PostgresConnection) -> Result<BatchAnswers, PostgresError> {
        let client = |read: &Read| if let Read::Session(client) = read { Some(*client) } else { None };
        let found =
            session::get_all(connection, self.reads.iter().filter_map(|(_, read)| client(read))).await?;
        let found: HashMap<_, _> = found.into_iter().map(|row| (row.row.client, row)).collect();
        Ok(self.answers(|read| Found::Session(client(read).and_then(|client| found.get(&client).cloned()))))
    }

    async fn people(&self, connection: &PostgresConnection) -> Result<BatchAnswers, PostgresError> {
        let users = |read: &'a Read| if let Read::People { users, .. } = read { &**users } else { &[] };
        let all: BTreeSet<&Arc<str>> = self.reads.iter().flat_map(|(_, read)| users(read)).collect();
        let all: Vec<Arc<str>> = all.into_iter().cloned().collect();
        let found = social::people(connection, &all, None).await?;
        let found: HashMap<_, _> = found.into_iter().map(|person| (person.user.clone(), person)).collect();
        let each = |read| users(read).iter().filter_map(|user| found.get(user).cloned()).collect();
        Ok(self.answers(|read| Found::People(each(read))))
    }

    async fn following(&self, connection: &PostgresConnection) -> Result<BatchAnswers, PostgresError> {
        let user = |read: &'a Read| if let Read::Following { user, .. } = read { Some(user) } else { None };
        let all: BTreeSet<&Arc<str>> = self.reads.iter().filter_map(|(_, read)| user(read)).collect();
        let found = social::following_all(connection, all.into_iter()).await?;
        let empty = || Page { rows: Vec::new(), more: false };
        let page = |read| user(read).and_then(|user| found.get(user).cloned()).unwrap_or_else(empty);
        Ok(self.answers(|read| Found::Edges(page(read))))
    }

    fn answers(&self, found: impl Fn(&'a Read) -> Found) -> BatchAnswers {
        self.reads.iter().map(|(ticket, read)| (*ticket, StoreAnswer::Read(found(read)))).collect()
    }

    pub fn failed(&self, error: &StoreError) -> BatchAnswers {
        self.reads.iter().map(|(ticket, _)| (*ticket, StoreAnswer::Failed(error.clone()))).collect()
    }

    pub fn is_one(&self) -> bool {
        self.reads.len() == 1
    }

    /// One batch for each read: a corrupt row fails only the reads that ask for it.
    pub fn split(self) -> impl Iterator<Item = ReadBatch<'a>> {
        let kind = self.kind;
        self.reads.into_iter().map(move |read| ReadBatch { kind, reads: vec![read] })
    }
}
