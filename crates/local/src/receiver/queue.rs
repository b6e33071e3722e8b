//! Reads this process's queue from the database. Must hold: no message is fetched twice and none is skipped; messages
//! removed by others are counted before what follows them.

use crate::database::{Database, trim};
use crate::error::Error;
use crate::limits;
use crate::message::{ChannelNamespace, Publication};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
pub struct ProcessQueue {
    connection: Option<Connection>,
    /// Every message up to this id was fetched.
    cursor: i64,
    /// Fetched messages that are still in the database, by count and by bytes.
    unacknowledged: usize,
    unacknowledged_bytes: usize,
    /// The value of `process.lost` when it was last read.
    lost: i64,
}

/// One part of the queue.
pub struct Fetched {
    /// Messages lost before these.
    pub missed: u64,
    pub publications: Vec<Arc<Publication>>,
    /// There may be more.
    pub more: bool,
}

/// What one read transaction found.
struct QueuePart {
    publications: Vec<Arc<Publication>>,
    /// `process.lost`. `None`: the row was deleted because another process took this one for dead.
    lost: Option<i64>,
    more: bool,
}

impl ProcessQueue {
    /// Begins again after this message, under a new process number.
    pub fn restart(&mut self, last_id: i64) {
        let connection = self.connection.take();
        *self = ProcessQueue { connection, cursor: last_id, ..ProcessQueue::default() };
    }

    /// The connection for reading, opened on first use.
    pub fn connection(&mut self, database: &Database) -> Result<&Connection, Error> {
        if self.connection.is_none() {
            self.connection = Some(database.connect()?);
        }
        Ok(self.connection.as_ref().expect("it was set above"))
    }

    /// Fetches the next messages. `None`: another process took this one for dead.
    pub fn fetch(&mut self, database: &Database, process: i64) -> Result<Option<Fetched>, Error> {
        let cursor = self.cursor;
        let part =
            read(self.connection(database)?, process, cursor).map_err(|error| database.error(error))?;
        let Some(lost) = part.lost else { return Ok(None) };
        let missed = self.count_missed(lost);
        for publication in &part.publications {
            self.cursor = publication.id;
            self.unacknowledged += 1;
            self.unacknowledged_bytes += publication.size();
        }
        Ok(Some(Fetched { missed, publications: part.publications, more: part.more }))
    }

    /// Whether so much was fetched that it should be acknowledged now.
    pub fn is_acknowledgement_due(&self) -> bool {
        self.unacknowledged >= limits::UNACKNOWLEDGED
            || self.unacknowledged_bytes >= limits::UNACKNOWLEDGED_BYTES
    }

    /// Removes from the database what was fetched. Returns how many messages were lost in the meantime.
    pub fn acknowledge(
        &mut self,
        database: &Database,
        process: i64,
        timeout: Duration,
    ) -> Result<u64, Error> {
        if self.unacknowledged == 0 {
            return Ok(0);
        }
        let cursor = self.cursor;
        let lost = database.write(timeout, |database, counters| {
            let sql = "DELETE FROM queue WHERE process = ?1 AND id <= ?2";
            database.prepare_cached(sql)?.execute([process, cursor])?;
            trim(database, counters)?;
            lost_of(database, process)
        })?;
        // Counted against what was unacknowledged until now, so before that is reset.
        let missed = lost.map_or(0, |lost| self.count_missed(lost));
        (self.unacknowledged, self.unacknowledged_bytes) = (0, 0);
        Ok(missed)
    }

    /// How many unread messages others removed from the queue. Those fetched but not acknowledged are no loss.
    fn count_missed(&mut self, lost: i64) -> u64 {
        let removed = (lost - self.lost).max(0) as usize;
        let read = removed.min(self.unacknowledged);
        self.lost = lost;
        self.unacknowledged -= read;
        (removed - read) as u64
    }
}

fn lost_of(database: &Connection, process: i64) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT lost FROM process WHERE id = ?1";
    database.prepare_cached(sql)?.query_row([process], |row| row.get(0)).optional()
}

/// Reads the loss count and the next messages in one short transaction.
fn read(database: &Connection, process: i64, cursor: i64) -> rusqlite::Result<QueuePart> {
    let run = |sql: &str| database.prepare_cached(sql)?.execute([]);
    run("BEGIN")?;
    let part = read_part(database, process, cursor);
    run("COMMIT")?;
    part
}

fn read_part(database: &Connection, process: i64, cursor: i64) -> rusqlite::Result<QueuePart> {
    let lost = lost_of(database, process)?;
    let mut publications = Vec::new();
    let mut bytes = 0;
    let sql = "SELECT log.id, log.process, subscriber, namespace, channel, header, payload \
               FROM queue JOIN log ON log.id = queue.id \
               WHERE queue.process = ?1 AND queue.id > ?2 ORDER BY queue.id LIMIT ?3";
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query(params![process, cursor, limits::FETCH as i64])?;
    while let Some(row) = rows.next()? {
        let blob = |at: usize| row.get_ref(at)?.as_blob().map(Box::from).map_err(rusqlite::Error::from);
        let publication = Publication {
            id: row.get(0)?,
            process: row.get(1)?,
            subscriber: row.get::<_, i64>(2)? as u64,
            namespace: ChannelNamespace::from_column(row.get(3)?),
            channel: blob(4)?,
            header: blob(5)?,
            payload: blob(6)?,
        };
        bytes += publication.size();
        publications.push(Arc::new(publication));
        if bytes >= limits::FETCH_BYTES {
            break;
        }
    }
    let more = publications.len() >= limits::FETCH || bytes >= limits::FETCH_BYTES;
    Ok(QueuePart { publications, lost, more })
}
