//! What is going on in a folder, for people who ask.

use crate::error::Error;
use crate::folder::{DATABASE, WAL};
use crate::message::{Kind, Space};
use crate::process::Process;
use crate::table::Head;
use rusqlite::{Connection, params};
use tavern_domain::pattern;

/// A folder at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub processes: Vec<ProcessStat>,
    /// Messages kept because somebody has not read them, or not yet said so.
    pub log_messages: u64,
    pub log_bytes: u64,
    /// The age of the oldest of them.
    pub oldest_ms: Option<u64>,
    /// The number of the last message.
    pub last_id: u64,
    pub database_bytes: u64,
    pub wal_bytes: u64,
}

/// A process that listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    pub id: u64,
    pub pid: u32,
    pub program: String,
    /// When it began to listen, in ms since 1970.
    pub since: u64,
    pub alive: bool,
    pub subscribers: u64,
    pub channels: u64,
    pub patterns: u64,
    /// It hears everything until somebody else publishes: a server that is alone.
    pub everything: bool,
    /// Messages in its queue: not read, or not yet marked as read.
    pub queued: u64,
    pub queued_bytes: u64,
    /// Messages it lost because it was too slow.
    pub lost: u64,
}

impl Process {
    pub fn stat(&self) -> Result<Stat, Error> {
        self.check()?;
        let mut state = self.state();
        let (stat, mut processes) = self.ask(&mut state, |database| {
            let head = Head::read(database)?;
            let oldest: Option<i64> = database.query_row("SELECT min(at) FROM log", [], |row| row.get(0))?;
            Ok(((head, oldest), read_processes(database)?))
        })?;
        processes.iter_mut().for_each(|process| process.alive = self.locks.is_alive(process.id as i64));
        let (head, oldest) = stat;
        Ok(Stat {
            processes,
            log_messages: head.log_messages.max(0) as u64,
            log_bytes: head.log_bytes.max(0) as u64,
            oldest_ms: oldest.map(|at| (crate::table::now_ms() - at).max(0) as u64),
            last_id: head.last_id as u64,
            database_bytes: self.folder.size_of(DATABASE),
            wal_bytes: self.folder.size_of(WAL),
        })
    }

    /// The version of the roster, if it holds nothing but the subscriptions of one subscriber.
    pub fn look_around(&self, subscriber: u64) -> Result<Option<u64>, Error> {
        let mut state = self.state();
        let own = state.subscribers.get(&subscriber).map_or(0, |own| own.interests.len() as i64);
        let head = self.ask(&mut state, Head::read)?;
        Ok((head.subscriptions <= own).then_some(head.roster))
    }

    /// Public channels that somebody alive listens to, in order.
    pub fn channels(&self, glob: Option<&[u8]>) -> Result<Vec<Vec<u8>>, Error> {
        let rows = self.listened(Kind::Channel)?;
        let mut names: Vec<Vec<u8>> = rows.into_iter().map(|(name, _)| name).collect();
        names.dedup();
        names.retain(|name| glob.is_none_or(|glob| pattern::matches(glob, name)));
        Ok(names)
    }

    /// How many different patterns are listened to.
    pub fn numpat(&self) -> Result<u64, Error> {
        let mut names: Vec<Vec<u8>> =
            self.listened(Kind::Pattern)?.into_iter().map(|(name, _)| name).collect();
        names.dedup();
        Ok(names.len() as u64)
    }

    pub fn numsub(&self, channel: &[u8]) -> Result<u64, Error> {
        self.check()?;
        let mut state = self.state();
        let rows: Vec<(i64, i64)> = self.ask(&mut state, |database| {
            let sql = "SELECT process, count(*) FROM subscription \
                       WHERE space = 0 AND kind = 0 AND name = ?1 GROUP BY process";
            let mut statement = database.prepare_cached(sql)?;
            statement.query_map([channel], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        let living = rows.into_iter().filter(|(process, _)| self.locks.is_alive(*process));
        Ok(living.map(|(_, count)| count as u64).sum())
    }

    /// Names of one kind with the living processes that listen to them, in order of the names.
    fn listened(&self, kind: Kind) -> Result<Vec<(Vec<u8>, i64)>, Error> {
        self.check()?;
        let mut state = self.state();
        let mut rows: Vec<(Vec<u8>, i64)> = self.ask(&mut state, |database| {
            let sql = "SELECT DISTINCT name, process FROM subscription WHERE space = ?1 AND kind = ?2 ORDER BY name";
            let mut statement = database.prepare_cached(sql)?;
            let found = statement.query_map(params![Space::Public as i64, kind as i64], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            found.collect()
        })?;
        rows.retain(|(_, process)| self.locks.is_alive(*process));
        Ok(rows)
    }

    fn ask<T>(
        &self,
        state: &mut crate::process::State,
        question: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        question(self.reader(state)?).map_err(|error| self.fault(error))
    }
}

fn read_processes(database: &Connection) -> rusqlite::Result<Vec<ProcessStat>> {
    let sql = "SELECT id, pid, program, since, lost, \
               (SELECT count(DISTINCT subscriber) FROM subscription WHERE process = p.id), \
               (SELECT count(*) FROM subscription WHERE process = p.id AND kind = 0), \
               (SELECT count(*) FROM subscription WHERE process = p.id AND kind = 1), \
               (SELECT count(*) FROM subscription WHERE process = p.id AND kind = 2), \
               (SELECT count(*) FROM queue WHERE process = p.id), \
               (SELECT coalesce(sum(size), 0) FROM queue JOIN log USING (id) WHERE queue.process = p.id) \
               FROM process p ORDER BY id";
    let mut statement = database.prepare(sql)?;
    let number = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, i64>(at).map(|n| n.max(0) as u64);
    let rows = statement.query_map([], |row| {
        Ok(ProcessStat {
            id: number(row, 0)?,
            pid: row.get(1)?,
            program: row.get(2)?,
            since: number(row, 3)?,
            lost: number(row, 4)?,
            alive: true,
            subscribers: number(row, 5)?,
            channels: number(row, 6)?,
            patterns: number(row, 7)?,
            everything: number(row, 8)? > 0,
            queued: number(row, 9)?,
            queued_bytes: number(row, 10)?,
        })
    })?;
    rows.collect()
}
