//! Removes what dead processes left. Must hold: only a process whose lock is free loses its subscriptions.

use super::log::trim;
use super::{Database, FolderCounters, now_ms, processes};
use crate::error::Error;
use crate::folder::wake_file;
use crate::limits;
use rusqlite::Connection;
use std::time::Duration;

impl Database {
    /// Looks for dead processes in the whole folder and removes what they left. Returns how many there were.
    pub fn sweep(&self, timeout: Duration) -> Result<usize, Error> {
        let suspects = self.write(timeout, |database, counters| {
            counters.swept_at = now_ms();
            processes(database)
        })?;
        self.remove_dead(&suspects, timeout)
    }

    /// Removes everything of those among `suspects` that are dead, each in a transaction of its own.
    pub fn remove_dead(&self, suspects: &[i64], timeout: Duration) -> Result<usize, Error> {
        let mut removed = 0;
        for &process in suspects.iter().filter(|&&process| !self.is_alive(process)) {
            // Numbers are never reused, so it stays dead. Remove the file first: only the row names it.
            self.folder.remove(&wake_file(process));
            let was_there = self.write(timeout, |database, counters| {
                let sql = "SELECT 1 FROM process WHERE id = ?1";
                let is_known = database.prepare_cached(sql)?.exists([process])?;
                if is_known {
                    forget_process(database, counters, process)?;
                }
                Ok(is_known)
            })?;
            removed += usize::from(was_there);
        }
        if removed > 0 {
            self.trim_all(timeout)?;
        }
        Ok(removed)
    }

    /// Removes every message that no queue refers to, in transactions that block other writers only briefly.
    pub fn trim_all(&self, timeout: Duration) -> Result<(), Error> {
        while self.write(timeout, trim)? >= limits::TRIM {}
        Ok(())
    }
}

/// Whether the last sweep was long ago.
pub fn is_sweep_due(counters: &FolderCounters) -> bool {
    let since = now_ms() - counters.swept_at;
    // A negative age: the clock was set back, so sweep now rather than wait.
    !(0..limits::SWEEP_MS as i64).contains(&since)
}

/// Removes everything of one process.
pub fn forget_process(
    database: &Connection,
    counters: &mut FolderCounters,
    process: i64,
) -> rusqlite::Result<()> {
    let run = |sql: &str| database.prepare_cached(sql)?.execute([process]);
    let ended = run("DELETE FROM subscription WHERE process = ?1")?;
    run("DELETE FROM queue WHERE process = ?1")?;
    run("DELETE FROM process WHERE id = ?1")?;
    if ended > 0 {
        counters.subscriptions -= ended as i64;
        counters.subscriptions_version += 1;
        counters.patterns_version += 1;
    }
    trim(database, counters).map(drop)
}
