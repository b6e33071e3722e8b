//! Commits: a batch in one transaction, which shares one fsync. Must hold: a refused commit has changed nothing, so the other
//! commits of its batch need no savepoint.

use super::folder::Lock;
use super::tables::SqliteTables;
use super::value::{fault, read_clock, write_clock};
use rusqlite::{Connection, TransactionBehavior};
use std::time::Duration;
use tavern_store::{Clock, Commit, Receipt, StoreError, Ticket, commit};

/// How long commits wait for readers when the WAL is emptied.
const EMPTY_WITHIN: Duration = Duration::from_millis(200);

pub(super) type WriteResults = Vec<Result<Receipt, StoreError>>;

/// An error means that nothing of the batch was written, or that COMMIT itself failed.
pub(super) fn write(
    connection: &mut Connection,
    lock: &Lock,
    wall: &dyn Clock,
    batch: &[(Ticket, Commit)],
) -> Result<WriteResults, StoreError> {
    let _held = lock.hold().map_err(StoreError::unavailable)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    let mut clock = read_clock(&transaction).map_err(fault)?;
    let mut tables = SqliteTables::new(&transaction);
    let mut outcomes = Vec::with_capacity(batch.len());
    for (_, commit) in batch {
        // A refusal happens before the first change; anything else rolls the whole batch back.
        match commit::apply(&mut tables, &mut clock, wall.now(), commit) {
            Err(error) if !error.is_refusal() => return Err(error),
            outcome => outcomes.push(outcome),
        }
    }
    if outcomes.iter().any(Result::is_ok) {
        tables.write_counts().map_err(fault)?;
        write_clock(&transaction, clock).map_err(fault)?;
        transaction.commit().map_err(fault)?;
    }
    Ok(outcomes)
}

/// Copies everything into the database, where deleted rows are overwritten, and empties the WAL. False: a reader was in the
/// way; try again later.
pub(super) fn empty_wal(connection: &Connection, lock: &Lock) -> bool {
    let emptied = || -> Result<bool, rusqlite::Error> {
        let _held = lock.hold().map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        connection.busy_timeout(EMPTY_WITHIN)?;
        let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        connection.busy_timeout(super::schema::BUSY)?;
        Ok(busy == 0)
    };
    emptied().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot empty tavern.db-wal after an erase; trying again with the next commit");
        false
    })
}
