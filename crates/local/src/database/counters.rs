//! The one row of counters that all writers share, and the transaction that reads and writes it.

use rusqlite::{Connection, Row, params};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderCounters {
    pub last_id: i64,
    pub last_process: i64,
    pub subscriptions_version: u64,
    pub patterns_version: u64,
    pub subscriptions: i64,
    pub log_messages: i64,
    pub log_bytes: i64,
    pub swept_at: i64,
}

impl FolderCounters {
    pub fn read(database: &Connection) -> rusqlite::Result<FolderCounters> {
        let sql = "SELECT last_id, last_process, subscriptions_version, patterns_version, subscriptions, \
                   log_messages, log_bytes, swept_at FROM counters";
        database.prepare_cached(sql)?.query_row([], |row: &Row<'_>| {
            Ok(FolderCounters {
                last_id: row.get(0)?,
                last_process: row.get(1)?,
                subscriptions_version: row.get::<_, i64>(2)? as u64,
                patterns_version: row.get::<_, i64>(3)? as u64,
                subscriptions: row.get(4)?,
                log_messages: row.get(5)?,
                log_bytes: row.get(6)?,
                swept_at: row.get(7)?,
            })
        })
    }

    fn write(&self, database: &Connection) -> rusqlite::Result<()> {
        let sql = "UPDATE counters SET last_id = ?1, last_process = ?2, subscriptions_version = ?3, \
                   patterns_version = ?4, subscriptions = ?5, log_messages = ?6, log_bytes = ?7, swept_at = ?8";
        database.prepare_cached(sql)?.execute(params![
            self.last_id,
            self.last_process,
            self.subscriptions_version as i64,
            self.patterns_version as i64,
            self.subscriptions,
            self.log_messages,
            self.log_bytes,
            self.swept_at,
        ])?;
        Ok(())
    }
}

/// Runs one write transaction with the counters. All of it or nothing. Returns the counters it left.
pub fn transact<T>(
    database: &Connection,
    work: impl FnOnce(&Connection, &mut FolderCounters) -> rusqlite::Result<T>,
) -> rusqlite::Result<(T, FolderCounters)> {
    let run = |sql: &str| database.prepare_cached(sql)?.execute([]);
    // A read transaction that becomes a write transaction fails at once when another process writes.
    run("BEGIN IMMEDIATE")?;
    let result = (|| {
        let before = FolderCounters::read(database)?;
        let mut counters = before;
        let done = work(database, &mut counters)?;
        if counters != before {
            counters.write(database)?;
        }
        run("COMMIT")?;
        Ok((done, counters))
    })();
    if result.is_err() && !database.is_autocommit() {
        let _ = run("ROLLBACK");
    }
    result
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
