//! The SQLite store: two threads and their queues. The writer drains what waits into one transaction, so all share one
//! fsync. Must hold: a commit that is refused has changed nothing by then, so its neighbours need no savepoint.

use super::folder::{Folder, Lock};
use super::tables::SqliteTables;
use super::value::{fault, number, read_number, read_time, time, unavailable};
use super::{deadline, document, hold, inbox, key, lease, log, node, presence, schema, session, social};
use crate::intake::Intake;
use crate::queue::Queue;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use tavern_store::clock::Clock;
use tavern_store::commit::{self, VersionClock};
use tavern_store::commit::{Commit, Receipt};
use tavern_store::error::StoreError;
use tavern_store::limits;
use tavern_store::page::{Page, Versioned};
use tavern_store::read::{Found, Read};
use tavern_store::row::{Row, RowKey, RowKind};
use tavern_store::store::{Answer, AnswerReceiver, Store, Ticket, Work};

pub struct SqliteStore {
    intake: Intake,
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
        inbox: Arc<dyn AnswerReceiver>,
    ) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_within(folder, clock, inbox, None)
    }

    /// With a bound on the size of the database, in pages of 4 KiB: beyond it commits are `Unavailable`.
    pub fn open_within(
        folder: &Path,
        clock: Arc<dyn Clock>,
        inbox: Arc<dyn AnswerReceiver>,
        most_pages: Option<u32>,
    ) -> Result<SqliteStore, StoreError> {
        let folder = Folder::open(folder)?;
        let (writing, reading) = (folder.lock()?, folder.lock()?);
        let held = writing.hold().map_err(unavailable)?;
        let mut writer = schema::connect(&folder.database())?;
        schema::create(&mut writer)?;
        if let Some(pages) = most_pages {
            writer.pragma_update(None, "max_page_count", pages).map_err(fault)?;
        }
        let reader = schema::connect(&folder.database())?;
        reader.pragma_update(None, "query_only", true).map_err(fault)?;
        // The first read joins the WAL, which must happen under the lock.
        read_mark(&reader)?;
        drop(held);

        let store = SqliteStore { intake: Intake::new(inbox.clone()) };
        let (commits, reads) = (store.intake.commits.clone(), store.intake.reads.clone());
        let writer = Scribe { connection: writer, lock: writing, clock: clock.clone() };
        let reader = Scribe { connection: reader, lock: reading, clock };
        let answers = inbox.clone();
        store.start("tavern-store-w", move || writer.write_all(&commits, &*answers))?;
        store.start("tavern-store-r", move || reader.read_all(&reads, &*inbox))?;
        Ok(store)
    }

    fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let thread = thread::Builder::new().name(name.into()).spawn(run).map_err(unavailable)?;
        self.intake.keep(thread);
        Ok(())
    }
}

impl Store for SqliteStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.intake.submit(work);
    }

    fn has_shared_clock(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn stop(&self) {
        self.intake.stop();
    }
}

impl Scribe {
    fn write_all(mut self, queue: &Queue<(Ticket, Commit)>, inbox: &dyn AnswerReceiver) {
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
        let mut tables = SqliteTables::new(&transaction);
        let mut outcomes = Vec::with_capacity(batch.len());
        for (_, commit) in batch {
            // A refusal comes before the first change; anything else undoes the whole batch.
            match commit::apply(&mut tables, &mut mark, self.clock.now(), commit) {
                Err(error) if !error.is_refusal() => return Err(error),
                outcome => outcomes.push(outcome),
            }
        }
        if outcomes.iter().any(Result::is_ok) {
            tables.write_counts().map_err(fault)?;
            write_mark(&transaction, mark)?;
            transaction.commit().map_err(fault)?;
        }
        Ok(outcomes)
    }

    fn read_all(self, queue: &Queue<(Ticket, Read)>, inbox: &dyn AnswerReceiver) {
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
            Read::Document(key) => Found::Document(document::get(from, key).map_err(fault)?),
            Read::Presence(key) => Found::Presence(presence::get(from, key).map_err(fault)?),
            Read::Roster { channel, after, limit } => {
                Found::Roster(presence::roster(from, channel, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::ChannelsOf { user, after, limit } => {
                Found::Presences(presence::of_user(from, user, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::People { users, viewer } => {
                let users = users.iter().take(limits::PAGE_ROWS as usize);
                let people = users.map(|user| social::person(from, user, viewer.as_deref()));
                Found::People(people.collect::<Result<_, _>>().map_err(fault)?)
            }
            Read::Hold(key) => Found::Hold(hold::get(from, key).map_err(fault)?),
            Read::Following { user, after, limit } => {
                Found::Edges(social::following(from, user, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::Followers { user, after, limit } => {
                Found::Edges(social::followers(from, user, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::PresencesAt { home, after, limit } => {
                Found::Presences(presence::at_home(from, home, after.as_ref(), *limit).map_err(fault)?)
            }
            Read::StalePresences { before, limit } => {
                Found::StalePresences(presence::strays(from, *before, *limit).map_err(fault)?)
            }
            Read::Rows { kind, after, limit } => {
                Found::Rows(rows(from, *kind, after.as_ref(), *limit).map_err(fault)?)
            }
            Read::Lease(name) => Found::Lease(lease::get(from, name).map_err(fault)?),
            Read::Log { topics, after, limit } => {
                Found::Log(log::stretch(from, topics, *after, *limit).map_err(fault)?)
            }
            Read::Topics { names, after, limit } => {
                Found::Topics(log::topics(from, names, after.as_deref(), *limit).map_err(fault)?)
            }
            Read::Inbox { user, after, limit } => {
                Found::Inbox(inbox::page(from, user, *after, *limit).map_err(fault)?)
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

fn read_mark(connection: &Connection) -> Result<VersionClock, StoreError> {
    let mark =
        |row: &rusqlite::Row<'_>| Ok(VersionClock { time: read_time(row, 0)?, floor: read_number(row, 1)? });
    let sql = "SELECT time_ms, floor FROM store_clock";
    connection.prepare_cached(sql).and_then(|mut statement| statement.query_row([], mark)).map_err(fault)
}

fn write_mark(connection: &Connection, mark: VersionClock) -> Result<(), StoreError> {
    let sql = "UPDATE store_clock SET time_ms = ?1, floor = ?2";
    let values = (time(mark.time), number(mark.floor));
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(fault)?;
    Ok(())
}

fn rows(
    from: &Connection,
    kind: RowKind,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<Row>>, rusqlite::Error> {
    match kind {
        RowKind::Document => document::rows(from, after, limit),
        RowKind::Presence => presence::rows(from, after, limit),
        RowKind::Hold => hold::rows(from, after, limit),
        RowKind::User => social::user_rows(from, after, limit),
        RowKind::Follow => social::follow_rows(from, after, limit),
    }
}
