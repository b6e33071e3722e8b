//! Opening a connection, and the migrations: one file each, applied in order, counted in `user_version`.
//! Must hold: a migration that was released never changes; a database of a newer version is left as it is.

use super::value::fault;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;
use std::time::Duration;
use tavern_store::store::StoreError;

const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first_rows.sql"),
    include_str!("migrations/0002_presence.sql"),
    include_str!("migrations/0003_people.sql"),
    include_str!("migrations/0004_holds.sql"),
    include_str!("migrations/0005_where_a_user_is.sql"),
    include_str!("migrations/0006_log_letters_leases.sql"),
    include_str!("migrations/0007_parties_as_tables.sql"),
    include_str!("migrations/0008_inboxes_are_counted.sql"),
];

/// Older ones can corrupt a WAL with several writers.
const OLDEST_SQLITE: i32 = 3_051_003;

/// Pages in the WAL after which they are copied into the database: 16 MiB. A page that many batches change is copied once,
/// and the WAL stays small enough to be read at the next start in a moment.
const CHECKPOINT_PAGES: u32 = 4096;

/// A fallback only: the folder's lock already keeps writers apart.
const BUSY: Duration = Duration::from_secs(5);

/// The caller holds the folder's lock.
pub(super) fn connect(database: &Path) -> Result<Connection, StoreError> {
    let version = rusqlite::version_number();
    if version < OLDEST_SQLITE {
        let what = format!("SQLite {version} is too old, {OLDEST_SQLITE} is needed");
        return Err(StoreError::Corrupt { what, source: None });
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).map_err(fault)?;
    connection.busy_timeout(BUSY).map_err(fault)?;
    // Else every statement is planned anew whenever a bound number differs from the last one.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fault)?;
    // Looked at before WAL is switched on: a foreign or newer file must not change.
    let found = schema_version(&connection)?;
    if found == 0 && has_tables(&connection)? {
        let what = "tavern.db was made by another program".to_string();
        return Err(StoreError::Corrupt { what, source: None });
    }
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(fault)?;
    if mode != "wal" {
        let what = format!("the file system cannot do WAL, only {mode}");
        return Err(StoreError::Corrupt { what, source: None });
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA mmap_size = 0;").map_err(fault)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// The caller holds the folder's lock.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let found = schema_version(connection)?;
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(found) {
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
        transaction.execute_batch(migration).map_err(fault)?;
        transaction.pragma_update(None, "user_version", at as i64 + 1).map_err(fault)?;
        transaction.commit().map_err(fault)?;
    }
    Ok(())
}

fn schema_version(connection: &Connection) -> Result<usize, StoreError> {
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fault)?;
    match usize::try_from(found) {
        Ok(found) if found <= MIGRATIONS.len() => Ok(found),
        _ => Err(StoreError::Newer { found: found.unsigned_abs(), known: MIGRATIONS.len() as u64 }),
    }
}

fn has_tables(connection: &Connection) -> Result<bool, StoreError> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0)).map_err(fault)
}
