//! The database: how it is opened, and its one row of counts.
//! Must hold: every write begins `IMMEDIATE` and in its turn; nobody keeps a read open while it waits.

use crate::error::Error;
use crate::folder::{DATABASE, Folder};
use crate::limits;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Row, params};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const VERSION: i64 = 1;
/// Prepared statements kept by a connection; more than there are.
const STATEMENTS: usize = 64;

/// The counts that all writers share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub last_id: i64,
    pub last_process: i64,
    pub roster: u64,
    pub patterns: u64,
    pub subscriptions: i64,
    pub log_messages: i64,
    pub log_bytes: i64,
    pub swept_at: i64,
}

impl Head {
    pub fn read(database: &Connection) -> rusqlite::Result<Head> {
        let columns =
            "last_id, last_process, roster, patterns, subscriptions, log_messages, log_bytes, swept_at";
        let mut statement = database.prepare_cached(&format!("SELECT {columns} FROM head"))?;
        statement.query_row([], |row: &Row<'_>| {
            Ok(Head {
                last_id: row.get(0)?,
                last_process: row.get(1)?,
                roster: row.get::<_, i64>(2)? as u64,
                patterns: row.get::<_, i64>(3)? as u64,
                subscriptions: row.get(4)?,
                log_messages: row.get(5)?,
                log_bytes: row.get(6)?,
                swept_at: row.get(7)?,
            })
        })
    }

    pub fn write(&self, database: &Connection) -> rusqlite::Result<()> {
        let sql = "UPDATE head SET last_id = ?1, last_process = ?2, roster = ?3, patterns = ?4, subscriptions = ?5, \
                   log_messages = ?6, log_bytes = ?7, swept_at = ?8";
        database.prepare_cached(sql)?.execute(params![
            self.last_id,
            self.last_process,
            self.roster as i64,
            self.patterns as i64,
            self.subscriptions,
            self.log_messages,
            self.log_bytes,
            self.swept_at,
        ])?;
        Ok(())
    }
}

/// Opens the database, making it when it is new. The caller has its turn to write.
pub fn open(folder: &Folder) -> Result<Connection, Error> {
    // Made here and not by SQLite, for its rights; the files beside it inherit them. Only when it is new: closing it
    // would free the locks of whoever in this process has it open.
    if !folder.has(DATABASE) {
        drop(folder.file(DATABASE)?);
    }
    let fault = |error| Error::of(&folder.path, error);
    let database = connect(folder)?;
    database.pragma_update(None, "journal_mode", "WAL").map_err(fault)?;
    database.pragma_update(None, "journal_size_limit", limits::WAL_BYTES as i64).map_err(fault)?;
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(fault)?;
    match version {
        0 => {
            let schema = include_str!("schema.sql");
            let made = format!("BEGIN IMMEDIATE;\n{schema}\nPRAGMA user_version = {VERSION};\nCOMMIT;");
            database.execute_batch(&made).map_err(fault)?;
        }
        VERSION => {}
        found => return Err(Error::Newer { path: folder.path.clone(), found }),
    }
    Ok(database)
}

/// One more connection to a database that is there.
pub fn connect(folder: &Folder) -> Result<Connection, Error> {
    let fault = |error| Error::of(&folder.path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(folder.path.join(DATABASE), flags).map_err(fault)?;
    database.set_prepared_statement_cache_capacity(STATEMENTS);
    // Only for the moments in which the last one closes or a crash is repaired: writers have their turns.
    database.busy_timeout(Duration::from_millis(limits::BUSY_MS)).map_err(fault)?;
    database.pragma_update(None, "synchronous", "NORMAL").map_err(fault)?;
    // Else every statement is planned anew whenever a bound number differs from the last one.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fault)?;
    Ok(database)
}

/// Folds the write-ahead log back into the database, if nobody reads for a moment.
pub fn fold(database: &Connection) -> rusqlite::Result<()> {
    database.busy_timeout(Duration::from_millis(limits::FOLD_MS))?;
    let folded = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    database.busy_timeout(Duration::from_millis(limits::BUSY_MS))?;
    folded
}

pub fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
