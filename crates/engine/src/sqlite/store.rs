//! The SQLite store: two threads and their queues. The writer drains what waits into one transaction, a savepoint for
//! each commit, so a refusal concerns one command and all share one fsync.

use super::folder::{Folder, Lock};
use super::queue::{Queue, Refused};
use super::value::{fault, number, read_number, read_time, time, unavailable};
use super::{deadline, document, errand, key, node, presence, schema, session, social};
use crate::clock::Clock;
use crate::commit::{self, Mark, Tables};
use crate::limits;
use crate::row::{Deadline, Errand, Node, Row, RowKey, Writer};
use crate::store::{Answer, Commit, Found, Inbox, Outage, Read, Receipt, Store, StoreError, Ticket, Work};
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use tavern_domain::Time;

pub struct SqliteStore {
    inbox: Arc<dyn Inbox>,
    commits: Arc<Queue<(Ticket, Commit)>>,
    reads: Arc<Queue<(Ticket, Read)>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Scribe {
    connection: Connection,
    lock: Lock,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    pub fn open(
        folder: &Path,
        clock: Arc<dyn Clock>,
        inbox: Arc<dyn Inbox>,
    ) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_within(folder, clock, inbox, None)
    }

    /// With a bound on the size of the database, in pages of 4 KiB: beyond it commits are `Unavailable`.
    pub fn open_within(
        folder: &Path,
        clock: Arc<dyn Clock>,
        inbox: Arc<dyn Inbox>,
        most_pages: Option<u32>,
    ) -> Result<SqliteStore, StoreError> {
        let folder = Folder::open(folder)?;
        let (writing, reading) = (folder.lock()?, folder.lock()?);
        let held = writing.hold().map_err(unavailable)?;
        let mut writer = schema::connect(&folder.database())?;
        schema::migrate(&mut writer)?;
        if let Some(pages) = most_pages {
            writer.pragma_update(None, "max_page_count", pages).map_err(fault)?;
        }
        let reader = schema::connect(&folder.database())?;
        reader.pragma_update(None, "query_only", true).map_err(fault)?;
        // The first read joins the WAL, which must happen under the lock.
        read_mark(&reader)?;
        drop(held);

        let (commits, reads) = (Arc::new(Queue::new()), Arc::new(Queue::new()));
        let writer = Scribe { connection: writer, lock: writing, clock: clock.clone() };
        let reader = Scribe { connection: reader, lock: reading, clock };
        let store = SqliteStore {
            inbox: inbox.clone(),
            commits: commits.clone(),
            reads: reads.clone(),
            threads: Mutex::default(),
        };
        let answers = inbox.clone();
        store.start("tavern-store-w", move || writer.write_all(&commits, &*answers))?;
        store.start("tavern-store-r", move || reader.read_all(&reads, &*inbox))?;
        Ok(store)
    }

    fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let thread = thread::Builder::new().name(name.into()).spawn(run).map_err(unavailable)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }
}

impl Store for SqliteStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        let (mut commits, mut reads, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (ticket, work) in work {
            let bytes = work.bytes();
            match work {
                Work::Commit(commit) => match commit.check() {
                    Ok(()) => commits.push((bytes, (ticket, commit))),
                    Err(error) => failed.push((ticket, Answer::Failed(error))),
                },
                Work::Read(read) => reads.push((bytes, (ticket, read))),
            }
        }
        let refused = |(why, ticket)| match why {
            Refused::Full => (ticket, Answer::Failed(Outage::Full.into())),
            Refused::Closed => (ticket, Answer::Failed(Outage::Stopped.into())),
        };
        failed
            .extend(self.commits.push(commits).into_iter().map(|(why, (ticket, _))| refused((why, ticket))));
        failed.extend(self.reads.push(reads).into_iter().map(|(why, (ticket, _))| refused((why, ticket))));
        if !failed.is_empty() {
            self.inbox.answer(failed);
        }
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn stop(&self) {
        self.commits.close();
        self.reads.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended in a panic");
            }
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Scribe {
    fn write_all(mut self, queue: &Queue<(Ticket, Commit)>, inbox: &dyn Inbox) {
        while let Some(batch) = queue.take(limits::BATCH_COMMITS) {
            let answers = match self.write(&batch) {
                Ok(outcomes) => {
                    let answer =
                        |outcome: Result<_, _>| outcome.map_or_else(Answer::Failed, Answer::Committed);
                    batch
                        .iter()
                        .zip(outcomes)
                        .map(|((ticket, _), outcome)| (*ticket, answer(outcome)))
                        .collect()
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        commits = batch.len(),
                        "a batch failed"
                    );
                    batch.iter().map(|(ticket, _)| (*ticket, Answer::Failed(error.clone()))).collect()
                }
            };
            inbox.answer(answers);
        }
        self.close();
    }

    /// An error here means that nothing of the batch was written, or that COMMIT itself failed.
    fn write(&mut self, batch: &[(Ticket, Commit)]) -> Result<Vec<Result<Receipt, StoreError>>, StoreError> {
        let _held = self.lock.hold().map_err(unavailable)?;
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        let mut mark = read_mark(&transaction)?;
        let mut outcomes = Vec::with_capacity(batch.len());
        for (_, commit) in batch {
            run(&transaction, "SAVEPOINT one")?;
            let outcome = commit::apply(&mut SqliteTables(&transaction), &mut mark, self.clock.now(), commit);
            match &outcome {
                Ok(_) => {}
                Err(error) if error.is_refusal() => run(&transaction, "ROLLBACK TO one")?,
                Err(error) => return Err(error.clone()),
            }
            run(&transaction, "RELEASE one")?;
            outcomes.push(outcome);
        }
        if outcomes.iter().any(Result::is_ok) {
            write_mark(&transaction, mark)?;
            transaction.commit().map_err(fault)?;
        }
        Ok(outcomes)
    }

    fn read_all(self, queue: &Queue<(Ticket, Read)>, inbox: &dyn Inbox) {
        while let Some(batch) = queue.take(limits::BATCH_COMMITS) {
            for (ticket, read) in batch {
                let found = self.read(&read).map_or_else(Answer::Failed, Answer::Read);
                // One by one: pages can be large.
                inbox.answer(vec![(ticket, found)]);
            }
        }
        self.close();
    }

    fn read(&self, read: &Read) -> Result<Found, StoreError> {
        let from = &self.connection;
        Ok(match read {
            Read::Time => Found::Time(read_mark(from)?.time.max(self.clock.now())),
            Read::KeyByHash(hash) => Found::Key(key::by_hash(from, hash).map_err(fault)?),
            Read::Keys { after, limit } => {
                Found::Keys(key::page(from, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::Session(client) => Found::Session(session::get(from, *client).map_err(fault)?),
            Read::Sessions { node, after, limit } => {
                Found::Sessions(session::page(from, node.as_deref(), *after, *limit).map_err(fault)?)
            }
            Read::Nodes { after, limit } => {
                Found::Nodes(node::page(from, after.as_ref(), *limit).map_err(fault)?)
            }
            Read::DueDeadlines { by, after, limit } => {
                Found::Deadlines(deadline::due(from, *by, after.as_ref(), *limit).map_err(fault)?)
            }
            Read::DueErrands { by, after, limit } => {
                Found::Errands(errand::due(from, *by, after.as_ref(), *limit).map_err(fault)?)
            }
            Read::Document(key) => Found::Document(document::get(from, key).map_err(fault)?),
            Read::Presence(key) => Found::Presence(presence::get(from, key).map_err(fault)?),
            Read::Roster { channel, after, limit } => {
                Found::Roster(presence::roster(from, channel, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::ChannelsOf { user, after, limit } => {
                Found::Presences(presence::of_user(from, user, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::Users(users) => {
                let users = users.iter().take(limits::PAGE_ROWS as usize);
                Found::Users(
                    users.map(|user| social::user(from, user)).collect::<Result<_, _>>().map_err(fault)?,
                )
            }
            Read::Following { user, after, limit } => {
                Found::Edges(social::following(from, user, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::Followers { user, after, limit } => {
                Found::Edges(social::followers(from, user, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::PresencesAt { home, after, limit } => {
                Found::Presences(presence::at_home(from, home, after.as_ref(), *limit).map_err(fault)?)
            }
            Read::Strays { before, limit } => {
                Found::Strays(presence::strays(from, *before, *limit).map_err(fault)?)
            }
        })
    }

    /// Closing the last connection empties the WAL, which must not meet another process that opens.
    fn close(self) {
        let held = self.lock.hold();
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the database was not closed cleanly; nothing is lost");
        }
        drop(held);
    }
}

fn run(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map_err(fault)?;
    Ok(())
}

fn read_mark(connection: &Connection) -> Result<Mark, StoreError> {
    let mark = |row: &rusqlite::Row<'_>| Ok(Mark { time: read_time(row, 0)?, floor: read_number(row, 1)? });
    let sql = "SELECT time_ms, floor FROM store_clock";
    connection.prepare_cached(sql).and_then(|mut statement| statement.query_row([], mark)).map_err(fault)
}

fn write_mark(connection: &Connection, mark: Mark) -> Result<(), StoreError> {
    let sql = "UPDATE store_clock SET time_ms = ?1, floor = ?2";
    let values = (time(mark.time), number(mark.floor));
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(fault)?;
    Ok(())
}

/// The tables inside the writer's transaction.
struct SqliteTables<'a>(&'a Connection);

impl Tables for SqliteTables<'_> {
    fn version(&mut self, key: &RowKey) -> Result<u64, StoreError> {
        match key {
            RowKey::Key(id) => key::version(self.0, id),
            RowKey::Session(client) => session::version(self.0, *client),
            RowKey::Document(key) => document::version(self.0, key),
            RowKey::Presence(key) => presence::version(self.0, key),
            RowKey::User(user) => social::user_version(self.0, user),
            RowKey::Follow { follower, followee } => social::follow_version(self.0, follower, followee),
            RowKey::Deadline { kind, name } => deadline::version(self.0, kind, name),
            RowKey::Errand(id) => errand::version(self.0, id),
        }
        .map_err(fault)
    }

    fn put(&mut self, row: &Row, version: u64) -> Result<(), StoreError> {
        match row {
            Row::Key(key) => key::put(self.0, key, version),
            Row::Session(session) => session::put(self.0, session, version),
            Row::Document(document) => document::put(self.0, document, version),
            Row::Presence(presence) => presence::put(self.0, presence, version),
            Row::User(user) => social::put_user(self.0, user, version),
            Row::Follow(follow) => social::put_follow(self.0, follow, version),
        }
        .map_err(fault)
    }

    fn delete(&mut self, key: &RowKey) -> Result<(), StoreError> {
        match key {
            RowKey::Key(id) => key::delete(self.0, id),
            RowKey::Session(client) => session::delete(self.0, *client),
            RowKey::Document(key) => document::delete(self.0, key),
            RowKey::Presence(key) => presence::delete(self.0, key),
            RowKey::User(user) => social::delete_user(self.0, user),
            RowKey::Follow { follower, followee } => social::delete_follow(self.0, follower, followee),
            RowKey::Deadline { kind, name } => deadline::delete(self.0, kind, name),
            RowKey::Errand(id) => errand::delete(self.0, id),
        }
        .map_err(fault)
    }

    fn set_deadline(&mut self, deadline: &Deadline) -> Result<(), StoreError> {
        deadline::set(self.0, deadline).map_err(fault)
    }

    fn add_errand(&mut self, errand: &Errand) -> Result<(), StoreError> {
        errand::add(self.0, errand).map_err(fault)
    }

    fn node(&mut self, node: &Writer) -> Result<Option<Node>, StoreError> {
        node::get(self.0, node).map_err(fault)
    }

    fn epochs(&mut self, name: &str) -> Result<Vec<Node>, StoreError> {
        node::epochs(self.0, name).map_err(fault)
    }

    fn put_node(&mut self, node: &Node) -> Result<(), StoreError> {
        node::put(self.0, node).map_err(fault)
    }

    fn forget_node(&mut self, node: &Writer) -> Result<(), StoreError> {
        node::forget(self.0, node).map_err(fault)
    }

    fn channel(&mut self, name: &str) -> Result<(u64, u64), StoreError> {
        presence::channel(self.0, name).map_err(fault)
    }

    fn set_channel(&mut self, name: &Arc<str>, version: u64, now: Time) -> Result<(), StoreError> {
        presence::set_channel(self.0, name, version, now).map_err(fault)
    }

    fn forget_channel(&mut self, name: &str) -> Result<(), StoreError> {
        presence::forget_channel(self.0, name).map_err(fault)
    }
}
