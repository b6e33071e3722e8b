//! The SQLite database of a folder with the lock that serialises its writers and the shared version of its
//! subscriptions. Must hold: every write begins `IMMEDIATE` and under the write lock; no read transaction stays open
//! while a process waits; a commit that changes the subscriptions raises the shared version before it is confirmed.

mod counters;
mod dead;
mod log;

use crate::error::Error;
use crate::folder::{DATABASE, LOCK, LocalFolder, WAL};
use crate::limits;
use crate::locks::Locks;
use crate::version::SharedVersion;
use counters::transact;
pub use counters::{FolderCounters, now_ms};
pub use dead::{forget_process, is_sweep_due};
pub use log::{bound, trim};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SCHEMA_VERSION: i64 = 1;
/// Prepared statements cached per connection; more than there are.
const STATEMENTS: usize = 64;
/// After this many writes the size of the write-ahead log is checked.
const WRITES_PER_CHECK: u32 = 1024;

pub struct Database {
    pub folder: LocalFolder,
    pub locks: Locks,
    pub version: Arc<SharedVersion>,
    writer: Mutex<DatabaseWriter>,
}

struct DatabaseWriter {
    connection: Connection,
    writes: u32,
}

impl Database {
    /// Opens the database of a folder, creating it if it does not exist.
    pub fn open(folder: LocalFolder, timeout: Duration) -> Result<Database, Error> {
        let locks = Locks::new(folder.file(LOCK)?);
        let (version, connection) = {
            let _lock = locks.write_lock(&folder.path, timeout)?;
            let version = SharedVersion::map(locks.file())
                .map_err(|error| Error::io(&folder.path, "its lock file cannot be mapped", error))?;
            let connection = create(&folder)?;
            align_versions(&connection, &version).map_err(|error| sqlite_error(&folder, error))?;
            (version, connection)
        };
        let writer = Mutex::new(DatabaseWriter { connection, writes: 0 });
        Ok(Database { folder, locks, version: Arc::new(version), writer })
    }

    /// Runs one write transaction under the write lock. All of it or nothing.
    pub fn write<T>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&Connection, &mut FolderCounters) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let _lock = self.locks.write_lock(&self.folder.path, timeout)?;
        let result = transact(&writer.connection, work);
        if let Ok((_, counters)) = &result
            && counters.subscriptions_version > self.version.get()
        {
            self.version.raise(counters.subscriptions_version);
        }
        writer.writes = writer.writes.wrapping_add(1);
        if writer.writes.is_multiple_of(WRITES_PER_CHECK) && self.folder.size_of(WAL) > limits::WAL_BYTES {
            // Overlapping readers keep it from being reset: wait for a moment without any.
            let _ = checkpoint(&writer.connection);
        }
        result.map(|(done, _)| done).map_err(|error| self.error(error))
    }

    /// Opens one more connection, for reading.
    pub fn connect(&self) -> Result<Connection, Error> {
        connect(&self.folder)
    }

    pub fn error(&self, error: rusqlite::Error) -> Error {
        sqlite_error(&self.folder, error)
    }

    pub fn is_alive(&self, process: i64) -> bool {
        self.locks.is_alive(process)
    }
}

/// Opens the database, creating it if it does not exist. The caller holds the write lock.
fn create(folder: &LocalFolder) -> Result<Connection, Error> {
    // Created here and not by SQLite, for its permissions, which SQLite's own files inherit. Only if it is missing:
    // closing it would release the locks of other connections of this process.
    if !folder.has(DATABASE) {
        drop(folder.file(DATABASE)?);
    }
    let fault = |error| sqlite_error(folder, error);
    let database = connect(folder)?;
    database.pragma_update(None, "journal_mode", "WAL").map_err(fault)?;
    database.pragma_update(None, "journal_size_limit", limits::WAL_BYTES as i64).map_err(fault)?;
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(fault)?;
    match version {
        0 => {
            let schema = include_str!("schema.sql");
            let batch =
                format!("BEGIN IMMEDIATE;\n{schema}\nPRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;");
            database.execute_batch(&batch).map_err(fault)?;
        }
        SCHEMA_VERSION => {}
        found => return Err(Error::NewerVersion { path: folder.path.clone(), found }),
    }
    Ok(database)
}

fn connect(folder: &LocalFolder) -> Result<Connection, Error> {
    let fault = |error| sqlite_error(folder, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(folder.path.join(DATABASE), flags).map_err(fault)?;
    database.set_prepared_statement_cache_capacity(STATEMENTS);
    // Only for the moments when the last connection closes or a crash is recovered: writers have the write lock.
    database.busy_timeout(Duration::from_millis(limits::BUSY_MS)).map_err(fault)?;
    database.pragma_update(None, "synchronous", "NORMAL").map_err(fault)?;
    // Otherwise SQLite plans a statement again whenever a bound number differs from the last one.
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(fault)?;
    Ok(database)
}

/// Makes the version in the database and the shared one agree, upwards.
fn align_versions(database: &Connection, version: &SharedVersion) -> rusqlite::Result<()> {
    let stored = FolderCounters::read(database)?.subscriptions_version;
    // A process may have died after its commit and before it raised the shared version.
    version.raise(stored);
    let shared = version.get();
    if shared > stored {
        // The database was removed, or lost its last commits in a power failure: continue from the shared version.
        transact(database, |_, counters| {
            counters.subscriptions_version = shared;
            counters.patterns_version += 1;
            Ok(())
        })?;
    }
    Ok(())
}

/// The numbers of all registered processes, dead or alive.
fn processes(database: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut statement = database.prepare_cached("SELECT id FROM process ORDER BY id")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Moves the write-ahead log back into the database, if there is a moment without readers.
fn checkpoint(database: &Connection) -> rusqlite::Result<()> {
    database.busy_timeout(Duration::from_millis(limits::CHECKPOINT_MS))?;
    let result = database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    database.busy_timeout(Duration::from_millis(limits::BUSY_MS))?;
    result
}

/// Maps an error of SQLite to an error of the library.
fn sqlite_error(folder: &LocalFolder, error: rusqlite::Error) -> Error {
    let path = || folder.path.clone();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { path: path() },
        // SQLite has no other error for a full disk under its shared memory.
        Some(ErrorCode::SystemIoFailure) if folder.is_full() => Error::Full { path: path() },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            Error::ReadOnly { path: path(), source: None }
        }
        Some(ErrorCode::CannotOpen) if !folder.is_writable() => {
            Error::ReadOnly { path: path(), source: None }
        }
        Some(ErrorCode::CannotOpen) => {
            let reason = "its database cannot be opened; too many files may be open".into();
            Error::Folder { path: path(), reason, source: None }
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Corrupt { path: folder.path.join(DATABASE), source: error }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::Busy { path: path(), waited_ms: limits::BUSY_MS, holder: None }
        }
        _ => Error::Database(error),
    }
}
