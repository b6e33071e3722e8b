//! Opening a connection, and the tables: one schema, whose version is in `user_version`.
//! Must hold: a database of another version, or of another program, is refused and left as it is.

use super::value::fault;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;
use std::time::Duration;
use tavern_store::StoreError;

const SCHEMA: &str = include_str!("schema.sql");
/// Grows with every change of `schema.sql`.
const VERSION: u64 = 1;

/// Older ones can corrupt a WAL with several writers.
const OLDEST_SQLITE: i32 = 3_051_003;

/// Pages in the WAL after which they are copied into the database: 16 MiB. A page that many batches change is copied once,
/// and the WAL stays small enough to be read quickly at the next start.
const CHECKPOINT_PAGES: u32 = 4096;

/// A fallback only: the folder's lock already keeps writers apart.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// The caller holds the folder's lock.
pub(super) fn connect(database: &Path) -> Result<Connection, StoreError> {
    let version = rusqlite::version_number();
    if version < OLDEST_SQLITE {
        let what = format!("SQLite {version} is too old, {OLDEST_SQLITE} is needed");
        return Err(StoreError::Corrupt { what, source: None });
    }
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(database, flags).map_err(fault)?;
    connection.busy_timeout(BUSY).map_err(fault)?;
    // Otherwise SQLite plans a statement again whenever a bound number differs from the last one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fault)?;
    // Checked before WAL is switched on: a file that is refused must not change.
    has_schema(&connection)?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(fault)?;
    if mode != "wal" {
        let what = format!("the file system does not support WAL, only {mode}");
        return Err(StoreError::Corrupt { what, source: None });
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA mmap_size = 0;").map_err(fault)?;
    // What is deleted is overwritten: measured, it costs nothing that can be seen beside the fsync.
    connection.execute_batch("PRAGMA secure_delete = ON").map_err(fault)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Creates the tables in an empty database. The caller holds the folder's lock.
pub(super) fn create(connection: &mut Connection) -> Result<(), StoreError> {
    if has_schema(connection)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    transaction.execute_batch(SCHEMA).map_err(fault)?;
    transaction.pragma_update(None, "user_version", VERSION as i64).map_err(fault)?;
    transaction.commit().map_err(fault)
}

/// False: the database is empty.
fn has_schema(connection: &Connection) -> Result<bool, StoreError> {
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fault)?;
    match found.unsigned_abs() {
        VERSION => Ok(true),
        0 if has_tables(connection)? => {
            let what = "tavern.db belongs to another program".to_string();
            Err(StoreError::Corrupt { what, source: None })
        }
        0 => Ok(false),
        found => Err(StoreError::SchemaVersion { found, known: VERSION }),
    }
}

fn has_tables(connection: &Connection) -> Result<bool, StoreError> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0)).map_err(fault)
}
