//! Reads that came together: those of one kind are one statement, because a crowd that arrives reads the same few things for
//! each of its members. Must hold: each read is answered as if it had been alone.

use super::link::Link;
use super::value::Trouble;
use super::writer::Watch;
use super::{reader, roster, session, social};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tavern_store::error::StoreError;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::page::Page;
use tavern_store::read::{Found, Read};
use tavern_store::store::{Answer, Ticket};

/// One statement's worth of reads, all of one kind.
pub(super) struct Lot<'a> {
    kind: Kind,
    reads: Vec<(Ticket, &'a Read)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Presences,
    Sessions,
    People,
    Following,
    /// Better alone; by its place in the batch.
    Other(usize),
}

type Answers = Vec<(Ticket, Answer)>;

impl<'a> Lot<'a> {
    pub fn of(batch: &'a [(Ticket, Read)]) -> Vec<Lot<'a>> {
        let mut lots: BTreeMap<Kind, Vec<(Ticket, &Read)>> = BTreeMap::new();
        let mut people = 0;
        for (at, (ticket, read)) in batch.iter().enumerate() {
            let kind = match read {
                Read::Presence(_) => Kind::Presences,
                Read::Session(_) => Kind::Sessions,
                Read::People { users, viewer: None } if people + users.len() <= PAGE_ROWS as usize => {
                    people += users.len();
                    Kind::People
                }
                Read::Following { after: None, limit: PAGE_ROWS, .. } => Kind::Following,
                _ => Kind::Other(at),
            };
            lots.entry(kind).or_default().push((*ticket, read));
        }
        lots.into_iter().map(|(kind, reads)| Lot { kind, reads }).collect()
    }

    pub async fn read(&self, link: &Link, watch: &Watch) -> Result<Answers, Trouble> {
        match self.kind {
            Kind::Presences => self.presences(link).await,
            Kind::Sessions => self.sessions(link).await,
            Kind::People => self.people(link).await,
            Kind::Following => self.following(link).await,
            Kind::Other(_) => {
                let mut answers = Answers::new();
                for (ticket, read) in &self.reads {
                    answers.push((*ticket, Answer::Read(reader::read(link, watch, read).await?)));
                }
                Ok(answers)
            }
        }
    }

    async fn presences(&self, link: &Link) -> Result<Answers, Trouble> {
        let key = |read: &'a Read| if let Read::Presence(key) = read { Some(key) } else { None };
        let found = roster::get_all(link, self.reads.iter().filter_map(|(_, read)| key(read))).await?;
        let found: HashMap<_, _> = found.into_iter().map(|row| (row.row.key.clone(), row)).collect();
        Ok(self.answers(|read| Found::Presence(key(read).and_then(|key| found.get(key).cloned()))))
    }

    async fn sessions(&self, link: &Link) -> Result<Answers, Trouble> {
        let client = |read: &Read| if let Read::Session(client) = read { Some(*client) } else { None };
        let found = session::get_all(link, self.reads.iter().filter_map(|(_, read)| client(read))).await?;
        let found: HashMap<_, _> = found.into_iter().map(|row| (row.row.client, row)).collect();
        Ok(self.answers(|read| Found::Session(client(read).and_then(|client| found.get(&client).cloned()))))
    }

    async fn people(&self, link: &Link) -> Result<Answers, Trouble> {
        let users = |read: &'a Read| if let Read::People { users, .. } = read { &**users } else { &[] };
        let all: BTreeSet<&Arc<str>> = self.reads.iter().flat_map(|(_, read)| users(read)).collect();
        let all: Vec<Arc<str>> = all.into_iter().cloned().collect();
        let found = social::people(link, &all, None).await?;
        let found: HashMap<_, _> = found.into_iter().map(|person| (person.user.clone(), person)).collect();
        let each = |read| users(read).iter().filter_map(|user| found.get(user).cloned()).collect();
        Ok(self.answers(|read| Found::People(each(read))))
    }

    async fn following(&self, link: &Link) -> Result<Answers, Trouble> {
        let user = |read: &'a Read| if let Read::Following { user, .. } = read { Some(user) } else { None };
        let all: BTreeSet<&Arc<str>> = self.reads.iter().filter_map(|(_, read)| user(read)).collect();
        let found = social::following_all(link, all.into_iter()).await?;
        let nobody = || Page { rows: Vec::new(), more: false };
        let page = |read| user(read).and_then(|user| found.get(user).cloned()).unwrap_or_else(nobody);
        Ok(self.answers(|read| Found::Edges(page(read))))
    }

    fn answers(&self, found: impl Fn(&'a Read) -> Found) -> Answers {
        self.reads.iter().map(|(ticket, read)| (*ticket, Answer::Read(found(read)))).collect()
    }

    pub fn failed(&self, error: &StoreError) -> Answers {
        self.reads.iter().map(|(ticket, _)| (*ticket, Answer::Failed(error.clone()))).collect()
    }

    pub fn is_one(&self) -> bool {
        self.reads.len() == 1
    }

    /// Each alone: what is wrong with one row concerns whoever asked for it.
    pub fn apart(self) -> impl Iterator<Item = Lot<'a>> {
        let kind = self.kind;
        self.reads.into_iter().map(move |read| Lot { kind, reads: vec![read] })
    }
}
