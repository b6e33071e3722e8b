//! Removes messages from the log: those that every process has acknowledged, and the oldest when a limit is exceeded.
//! Must hold: the log never exceeds its limits; a process that loses a message finds that in its `lost` count.

use super::{FolderCounters, now_ms, processes};
use crate::limits;
use crate::options::Options;
use rusqlite::{Connection, OptionalExtension, params};

/// Removes messages that no queue refers to, the oldest first, a limited number at a time. Returns how many.
pub fn trim(database: &Connection, counters: &mut FolderCounters) -> rusqlite::Result<usize> {
    let sql = "SELECT min(first) FROM \
               (SELECT (SELECT min(id) FROM queue WHERE process = process.id) AS first FROM process)";
    let floor: Option<i64> = database.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
    remove_below(database, counters, floor.unwrap_or(counters.last_id + 1))
}

/// Keeps the log within its limits. Processes that had not read a removed message find it in their `lost` count.
pub fn bound(
    database: &Connection,
    counters: &mut FolderCounters,
    options: &Options,
) -> rusqlite::Result<()> {
    let bounds = LogLimits::new(options);
    loop {
        let full = counters.log_messages > bounds.messages || counters.log_bytes > bounds.bytes;
        let aged = !full && oldest(database)?.is_some_and(|(_, at)| at < bounds.oldest_at);
        if !full && !aged {
            return Ok(());
        }
        // The newest message is kept, however large it is.
        if trim(database, counters)? == 0 && drop_oldest(database, counters, &bounds, full)? == 0 {
            return Ok(());
        }
    }
}

/// The limits of the log at one moment.
struct LogLimits {
    messages: i64,
    bytes: i64,
    /// Messages published before this are too old, in ms since 1970.
    oldest_at: i64,
}

impl LogLimits {
    fn new(options: &Options) -> LogLimits {
        let number = |bound: u64| i64::try_from(bound).unwrap_or(i64::MAX);
        let age = i64::try_from(options.log_age.as_millis()).unwrap_or(i64::MAX);
        let (messages, bytes) = (number(options.log_messages), number(options.log_bytes));
        LogLimits { messages, bytes, oldest_at: now_ms().saturating_sub(age) }
    }
}

/// The id and the time of the oldest message.
fn oldest(database: &Connection) -> rusqlite::Result<Option<(i64, i64)>> {
    let sql = "SELECT id, at FROM log ORDER BY id LIMIT 1";
    database.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Removes messages with an id below `floor`, a limited number at a time. Returns how many.
fn remove_below(database: &Connection, counters: &mut FolderCounters, floor: i64) -> rusqlite::Result<usize> {
    let Some((first, _)) = oldest(database)? else { return Ok(0) };
    let floor = floor.min(first + limits::TRIM as i64);
    let mut statement = database.prepare_cached("DELETE FROM log WHERE id < ?1 RETURNING size")?;
    let mut rows = statement.query([floor])?;
    let mut removed = 0;
    while let Some(row) = rows.next()? {
        counters.log_messages -= 1;
        counters.log_bytes -= row.get::<_, i64>(0)?;
        removed += 1;
    }
    Ok(removed)
}

/// Drops the oldest messages although some processes have not read them. When the log is full it drops a tenth more
/// than needed, so that this is rare. Returns how many.
fn drop_oldest(
    database: &Connection,
    counters: &mut FolderCounters,
    bounds: &LogLimits,
    full: bool,
) -> rusqlite::Result<usize> {
    let last = last_to_drop(database, counters, bounds, full)?;
    if last == 0 {
        return Ok(0);
    }
    for process in processes(database)? {
        let sql = "DELETE FROM queue WHERE process = ?1 AND id <= ?2";
        let lost = database.prepare_cached(sql)?.execute(params![process, last])?;
        if lost > 0 {
            let sql = "UPDATE process SET lost = lost + ?2 WHERE id = ?1";
            database.prepare_cached(sql)?.execute(params![process, lost as i64])?;
        }
    }
    remove_below(database, counters, last + 1)
}

/// The newest message that must be dropped, or zero.
fn last_to_drop(
    database: &Connection,
    counters: &FolderCounters,
    bounds: &LogLimits,
    full: bool,
) -> rusqlite::Result<i64> {
    let spare = |bound: i64| if full { bound - bound / 10 } else { bound };
    let (messages, bytes) = (spare(bounds.messages), spare(bounds.bytes));
    let (mut left_messages, mut left_bytes) = (counters.log_messages, counters.log_bytes);
    let mut last = 0;
    let mut statement = database.prepare_cached("SELECT id, at, size FROM log ORDER BY id LIMIT ?1")?;
    let mut rows = statement.query([limits::TRIM as i64])?;
    while let Some(row) = rows.next()? {
        let (id, at, size): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let fits = left_messages <= messages && left_bytes <= bytes;
        if fits && at >= bounds.oldest_at || id >= counters.last_id {
            break;
        }
        (last, left_messages, left_bytes) = (id, left_messages - 1, left_bytes - size);
    }
    Ok(last)
}
