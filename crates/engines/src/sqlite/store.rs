//! The SQLite store: a thread that writes and a thread that reads, and their queues. The writer drains its queue into one
//! transaction. Must hold: every work is answered once.

use super::folder::{Lock, SqliteFolder};
use super::value::{fault, read_clock};
use super::{reader, schema, writer};
use crate::queue::WorkQueue;
use crate::worker::Workers;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tavern_store::{
    AnswerReceiver, Clock, Commit, Read, Store, StoreAnswer, StoreError, Ticket, Work, limits,
};

pub struct SqliteStore {
    workers: Workers,
}

/// The state of one thread.
struct SqliteWorker {
    connection: Connection,
    lock: Lock,
    clock: Arc<dyn Clock>,
}

impl SqliteStore {
    pub fn open(
        folder: &Path,
        clock: Arc<dyn Clock>,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Result<SqliteStore, StoreError> {
        SqliteStore::open_within(folder, clock, receiver, None)
    }

    /// With a limit on the size of the database, in pages of 4 KiB: above it commits are `Unavailable`.
    pub fn open_within(
        folder: &Path,
        clock: Arc<dyn Clock>,
        receiver: Arc<dyn AnswerReceiver>,
        max_pages: Option<u32>,
    ) -> Result<SqliteStore, StoreError> {
        let folder = SqliteFolder::open(folder)?;
        let (writing, reading) = (folder.lock()?, folder.lock()?);
        let held = writing.hold().map_err(StoreError::unavailable)?;
        folder.check_database(&writing)?;
        let mut writer = schema::connect(&folder.database())?;
        schema::create(&mut writer)?;
        folder.remember_database(&writing)?;
        if let Some(pages) = max_pages {
            writer.pragma_update(None, "max_page_count", pages).map_err(fault)?;
        }
        let reader = schema::connect(&folder.database())?;
        reader.pragma_update(None, "query_only", true).map_err(fault)?;
        // The first read joins the WAL, which must happen under the lock.
        read_clock(&reader).map_err(fault)?;
        drop(held);

        let store = SqliteStore { workers: Workers::new(receiver.clone()) };
        let (commits, reads) = (store.workers.commits.clone(), store.workers.reads.clone());
        let writer = SqliteWorker { connection: writer, lock: writing, clock: clock.clone() };
        let reader = SqliteWorker { connection: reader, lock: reading, clock };
        let answers = receiver.clone();
        store.workers.spawn("tavern-store-w", move || writer.write_all(&commits, &*answers))?;
        store.workers.spawn("tavern-store-r", move || reader.read_all(&reads, &*receiver))?;
        Ok(store)
    }
}

impl Store for SqliteStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.workers.submit(work);
    }

    fn has_shared_clock(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn stop(&self) {
        self.workers.stop();
    }
}

impl SqliteWorker {
    fn write_all(mut self, queue: &WorkQueue<(Ticket, Commit)>, receiver: &dyn AnswerReceiver) {
        // Deleted rows are still in the WAL.
        let mut keeps_erased = false;
        while let Some(batch) = queue.take(limits::BATCH_COMMITS) {
            let tickets = batch.iter().map(|(ticket, _)| *ticket);
            keeps_erased |= batch.iter().any(|(_, commit)| commit.erases);
            let answers = match writer::write(&mut self.connection, &self.lock, &*self.clock, &batch) {
                Ok(outcomes) => {
                    let answer = |outcome: Result<_, _>| {
                        outcome.map_or_else(StoreAnswer::Failed, StoreAnswer::Committed)
                    };
                    tickets.zip(outcomes.into_iter().map(answer)).collect()
                }
                Err(error) => tickets.map(|ticket| (ticket, StoreAnswer::Failed(error.clone()))).collect(),
            };
            if keeps_erased {
                keeps_erased = !writer::empty_wal(&self.connection, &self.lock);
            }
            receiver.answer(answers);
        }
        self.close();
    }

    fn read_all(self, queue: &WorkQueue<(Ticket, Read)>, receiver: &dyn AnswerReceiver) {
        while let Some(batch) = queue.take(limits::BATCH_COMMITS) {
            for (ticket, read) in batch {
                let wall = self.clock.now().min(self.clock.latest());
                let found = reader::read(&self.connection, wall, &read);
                // One by one: pages can be large.
                receiver.answer(vec![(ticket, found.map_or_else(StoreAnswer::Failed, StoreAnswer::Read))]);
            }
        }
        self.close();
    }

    /// Closing the last connection truncates the WAL, which must not race with another process that opens.
    fn close(self) {
        let held = self.lock.hold();
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "cannot close the sqlite database; no data is lost");
        }
        drop(held);
    }
}
