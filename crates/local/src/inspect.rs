//! Queries about a folder: who subscribes to what, and how much is queued.

use crate::database::{FolderCounters, now_ms};
use crate::error::Error;
use crate::folder::{DATABASE, WAL};
use crate::message::{ChannelNamespace, InterestKind};
use crate::open_folder::OpenFolder;
use rusqlite::{Connection, params};
use tavern_domain::pattern;

/// The state of a folder at one moment, from [`Local::stat`](crate::Local::stat).
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let local = tavern_local::open(folder)?;
/// local.subscribe(["news"])?;
/// local.publish("news", "hello")?;
/// let stat = local.stat()?;
/// assert_eq!((stat.log_messages, stat.processes[0].queued), (1, 1));
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The processes with subscriptions.
    pub processes: Vec<ProcessStat>,
    /// Messages that some process has not read, or not yet acknowledged.
    pub log_messages: u64,
    /// Bytes of those messages.
    pub log_bytes: u64,
    /// The age of the oldest of them.
    pub oldest_ms: Option<u64>,
    /// The id of the last message.
    pub last_id: u64,
    /// The size of the database.
    pub database_bytes: u64,
    /// The size of its write-ahead log.
    pub wal_bytes: u64,
}

/// A process with subscriptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Its number in the folder; never reused.
    pub id: u64,
    /// Its process id.
    pub pid: u32,
    /// Its name, from [`Options::program`](crate::Options::program).
    pub program: String,
    /// When it registered, in ms since 1970.
    pub since: u64,
    /// False: it died, and nothing has cleaned up after it yet.
    pub alive: bool,
    /// Its handles with subscriptions.
    pub subscribers: u64,
    /// Its subscriptions to channels.
    pub channels: u64,
    /// Its subscriptions to patterns.
    pub patterns: u64,
    /// It subscribes to everything until another process publishes: a server that is alone does.
    pub everything: bool,
    /// Messages in its queue: not read, or not yet acknowledged.
    pub queued: u64,
    /// Bytes of those messages.
    pub queued_bytes: u64,
    /// Messages it lost because it was too slow.
    pub lost: u64,
}

/// Answers questions about an open folder.
#[derive(Clone, Copy)]
pub struct Inspector<'a>(pub &'a OpenFolder);

impl Inspector<'_> {
    pub fn stat(self) -> Result<Stat, Error> {
        let (counters, oldest, mut processes) = self.read(|database| {
            let oldest: Option<i64> = database.query_row("SELECT min(at) FROM log", [], |row| row.get(0))?;
            Ok((FolderCounters::read(database)?, oldest, read_processes(database)?))
        })?;
        let database = &self.0.process.database;
        processes.iter_mut().for_each(|process| process.alive = database.is_alive(process.id as i64));
        Ok(Stat {
            processes,
            log_messages: counters.log_messages.max(0) as u64,
            log_bytes: counters.log_bytes.max(0) as u64,
            oldest_ms: oldest.map(|at| (now_ms() - at).max(0) as u64),
            last_id: counters.last_id as u64,
            database_bytes: database.folder.size_of(DATABASE),
            wal_bytes: database.folder.size_of(WAL),
        })
    }

    /// The version of the subscriptions, if there are none but those of one subscriber.
    pub fn version_if_alone(self, subscriber: u64) -> Result<Option<u64>, Error> {
        self.0.process.check()?;
        let mut receiver = self.0.receiver();
        let own = receiver.subscribers.count_of(subscriber) as i64;
        let counters = receiver.read(&self.0.process, FolderCounters::read)?;
        Ok((counters.subscriptions <= own).then_some(counters.subscriptions_version))
    }

    /// Public channels that living processes subscribe to, sorted.
    pub fn channels(self, glob: Option<&[u8]>) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = self.names(InterestKind::Channel)?;
        names.retain(|name| glob.is_none_or(|glob| pattern::matches(glob, name)));
        Ok(names)
    }

    /// How many different public patterns living processes subscribe to.
    pub fn numpat(self) -> Result<u64, Error> {
        Ok(self.names(InterestKind::Pattern)?.len() as u64)
    }

    /// How many subscriptions of living processes a public channel has.
    pub fn numsub(self, channel: &[u8]) -> Result<u64, Error> {
        let rows: Vec<(i64, i64)> = self.read(|database| {
            let sql = "SELECT process, count(*) FROM subscription \
                       WHERE namespace = 0 AND kind = 0 AND name = ?1 GROUP BY process";
            let mut statement = database.prepare_cached(sql)?;
            statement.query_map([channel], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
        let living = rows.into_iter().filter(|(process, _)| self.0.process.database.is_alive(*process));
        Ok(living.map(|(_, count)| count as u64).sum())
    }

    /// The public names of one kind that living processes subscribe to, sorted, each once.
    fn names(self, kind: InterestKind) -> Result<Vec<Vec<u8>>, Error> {
        let rows: Vec<(Vec<u8>, i64)> = self.read(|database| {
            let sql = "SELECT DISTINCT name, process FROM subscription \
                       WHERE namespace = ?1 AND kind = ?2 ORDER BY name";
            let mut statement = database.prepare_cached(sql)?;
            let found = statement
                .query_map(params![ChannelNamespace::Public as i64, kind as i64], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
            found.collect()
        })?;
        let living = rows.into_iter().filter(|(_, process)| self.0.process.database.is_alive(*process));
        let mut names: Vec<Vec<u8>> = living.map(|(name, _)| name).collect();
        names.dedup();
        Ok(names)
    }

    fn read<T>(self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.0.process.check()?;
        self.0.receiver().read(&self.0.process, query)
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
