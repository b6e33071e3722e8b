//! Cleaning up: behind processes that died, behind messages that everybody has read, and behind those who do not read.
//! Must hold: only the dead lose their subscriptions; the log never grows beyond its bounds; a loss is written down.

use crate::error::Error;
use crate::handle::Options;
use crate::limits;
use crate::process::Process;
use crate::table::{Head, now_ms};
use crate::wake::name_of;
use rusqlite::{Connection, OptionalExtension, params};
use std::time::Duration;

impl Process {
    /// Removes everything of those among `suspects` that are dead. Each goes in a transaction of its own.
    pub fn bury(&self, suspects: &[i64], patience: Duration) -> Result<usize, Error> {
        let mut buried = 0;
        for &process in suspects {
            if self.locks.is_alive(process) {
                continue;
            }
            // Numbers are never given again, so it cannot come back to life. The file goes first: the row names it.
            self.folder.remove(&name_of(process));
            let was_there = self.write(patience, |database, head| {
                let known = "SELECT 1 FROM process WHERE id = ?1";
                let known = database.prepare_cached(known)?.exists([process])?;
                if known {
                    forget(database, head, process)?;
                }
                Ok((known, head.roster))
            })?;
            self.page.raise(was_there.1);
            buried += usize::from(was_there.0);
        }
        if buried > 0 {
            self.trim_all(patience)?;
        }
        Ok(buried)
    }

    /// Removes every message that stands in nobody's queue any more, in turns that hold nobody up for long.
    pub fn trim_all(&self, patience: Duration) -> Result<(), Error> {
        while self.write(patience, trim)? >= limits::TRIM {}
        Ok(())
    }

    /// Looks at every process of the folder.
    pub fn sweep(&self, patience: Duration) -> Result<usize, Error> {
        let suspects = self.write(patience, |database, head| {
            head.swept_at = now_ms();
            processes(database)
        })?;
        let suspects: Vec<i64> =
            suspects.into_iter().filter(|&process| !self.locks.is_alive(process)).collect();
        self.bury(&suspects, patience)
    }
}

/// Whether nobody has looked for the dead for a while.
pub fn is_due(head: &Head) -> bool {
    let since = now_ms() - head.swept_at;
    // A clock that was put back is no reason to wait.
    !(0..limits::SWEEP_MS as i64).contains(&since)
}

pub fn processes(database: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut statement = database.prepare_cached("SELECT id FROM process ORDER BY id")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// Removes everything of one process.
pub fn forget(database: &Connection, head: &mut Head, process: i64) -> rusqlite::Result<()> {
    let run = |sql: &str| database.prepare_cached(sql)?.execute([process]);
    let ended = run("DELETE FROM subscription WHERE process = ?1")?;
    run("DELETE FROM queue WHERE process = ?1")?;
    run("DELETE FROM process WHERE id = ?1")?;
    if ended > 0 {
        head.subscriptions -= ended as i64;
        head.roster += 1;
        head.patterns += 1;
    }
    trim(database, head).map(drop)
}

/// Removes messages that stand in nobody's queue any more, the oldest first, a part of them at a time. Tells how many.
pub fn trim(database: &Connection, head: &mut Head) -> rusqlite::Result<usize> {
    let floor = "SELECT min(first) FROM \
                 (SELECT (SELECT min(id) FROM queue WHERE process = process.id) AS first FROM process)";
    let floor: Option<i64> = database.prepare_cached(floor)?.query_row([], |row| row.get(0))?;
    cut_to(database, head, floor.unwrap_or(head.last_id + 1))
}

fn oldest(database: &Connection) -> rusqlite::Result<Option<(i64, i64)>> {
    let sql = "SELECT id, at FROM log ORDER BY id LIMIT 1";
    database.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Removes messages below `floor` from the log.
fn cut_to(database: &Connection, head: &mut Head, floor: i64) -> rusqlite::Result<usize> {
    let Some((first, _)) = oldest(database)? else { return Ok(0) };
    let floor = floor.min(first + limits::TRIM as i64);
    let mut statement = database.prepare_cached("DELETE FROM log WHERE id < ?1 RETURNING size")?;
    let mut rows = statement.query([floor])?;
    let mut cut = 0;
    while let Some(row) = rows.next()? {
        head.log_messages -= 1;
        head.log_bytes -= row.get::<_, i64>(0)?;
        cut += 1;
    }
    Ok(cut)
}

/// Keeps the log within its bounds. Whoever had not read what goes is told how much it lost.
pub fn bound(database: &Connection, head: &mut Head, options: &Options) -> rusqlite::Result<()> {
    let most = Most::of(options);
    loop {
        let full = head.log_messages > most.messages || head.log_bytes > most.bytes;
        let aged = !full && oldest(database)?.is_some_and(|(_, at)| at < most.old);
        if !full && !aged {
            return Ok(());
        }
        // The newest message stays, however large it is.
        if trim(database, head)? == 0 && drop_oldest(database, head, &most, full)? == 0 {
            return Ok(());
        }
    }
}

/// The bounds of the log, at one moment.
struct Most {
    messages: i64,
    bytes: i64,
    /// What was said before this is too old.
    old: i64,
}

impl Most {
    fn of(options: &Options) -> Most {
        let number = |bound: u64| i64::try_from(bound).unwrap_or(i64::MAX);
        let age = i64::try_from(options.log_age.as_millis()).unwrap_or(i64::MAX);
        let (messages, bytes) = (number(options.log_messages), number(options.log_bytes));
        Most { messages, bytes, old: now_ms().saturating_sub(age) }
    }
}

/// Drops the oldest messages although somebody has not read them. If there are too many, a tenth more than needed, so
/// that it is rare. Tells how many.
fn drop_oldest(database: &Connection, head: &mut Head, most: &Most, full: bool) -> rusqlite::Result<usize> {
    let spare = |bound: i64| if full { bound - bound / 10 } else { bound };
    let (messages, bytes) = (spare(most.messages), spare(most.bytes));
    let (mut left_messages, mut left_bytes) = (head.log_messages, head.log_bytes);
    let mut to = 0;
    {
        let mut statement = database.prepare_cached("SELECT id, at, size FROM log ORDER BY id LIMIT ?1")?;
        let mut rows = statement.query([limits::TRIM as i64])?;
        while let Some(row) = rows.next()? {
            let (id, at, size): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let fits = left_messages <= messages && left_bytes <= bytes;
            if fits && at >= most.old || id >= head.last_id {
                break;
            }
            (to, left_messages, left_bytes) = (id, left_messages - 1, left_bytes - size);
        }
    }
    if to == 0 {
        return Ok(0);
    }
    for process in processes(database)? {
        let sql = "DELETE FROM queue WHERE process = ?1 AND id <= ?2";
        let lost = database.prepare_cached(sql)?.execute(params![process, to])?;
        if lost > 0 {
            let sql = "UPDATE process SET lost = lost + ?2 WHERE id = ?1";
            database.prepare_cached(sql)?.execute(params![process, lost as i64])?;
        }
    }
    cut_to(database, head, to + 1)
}
