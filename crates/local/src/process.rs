//! This process at a folder: its connection, its locks, its bell, and the subscribers that live in it. All handles that
//! a process has on one folder share it, so a thousand subscribers need no descriptor each.
//! Must hold: the lock file is open once; opening and closing happen one after the other; a forked child touches nothing.

use crate::error::Error;
use crate::folder::{Folder, Identity, LOCK, WAL};
use crate::handle::Options;
use crate::limits;
use crate::lock::Locks;
use crate::mailbox::Mailbox;
use crate::message::Interest;
use crate::page::Page;
use crate::reach::Reach;
use crate::roster::Roster;
use crate::table::{self, Head};
use crate::wake::Bell;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub struct Process {
    pub pid: u32,
    pub folder: Folder,
    pub locks: Locks,
    pub page: Arc<Page>,
    bell: Mutex<Arc<Bell>>,
    pub program: String,
    /// Its number in the folder; zero until something in it subscribes.
    number: AtomicI64,
    writer: Mutex<Writer>,
    pub reach: Mutex<Reach>,
    state: Mutex<State>,
    /// Something was put into a mailbox, or the one who sleeps at the bell has left it.
    pub stirred: Condvar,
}

struct Writer {
    database: Connection,
    writes: u32,
}

/// What the threads of this process share. Taken before the writer, never after.
pub struct State {
    pub roster: Roster,
    pub subscribers: HashMap<u64, Subscriber>,
    last_subscriber: u64,
    pub reader: Option<Connection>,
    /// Everything up to this message was taken from the queue.
    pub cursor: i64,
    /// Of those, how many still stand in the database.
    pub unacked: usize,
    pub unacked_bytes: usize,
    /// What `process.lost` said when it was last looked at.
    pub lost: i64,
    /// Others took this process for dead, and it has not joined again yet.
    pub displaced: bool,
    /// Subscribers that are gone while their subscriptions could not be ended.
    pub departed: Vec<u64>,
    /// A thread sleeps at the bell; the others wait for it.
    pub attended: bool,
    pub looked_at: Instant,
    /// How often somebody asked what exactly is listened to.
    pub narrow: u64,
}

pub struct Subscriber {
    pub mailbox: Mailbox,
    pub interests: BTreeSet<Interest>,
    /// False: it does not hear what it says itself.
    pub echo: bool,
    pub interrupted: bool,
    /// The last of the questions what exactly it listens to that it has been told of.
    pub narrowed: u64,
}

/// The folders that this process has open, and by how many handles.
static OPEN: Mutex<BTreeMap<u64, Opened>> = Mutex::new(BTreeMap::new());
/// Who opened them. A child that was forked meanwhile must not even take the lock above.
static OPENER: AtomicU32 = AtomicU32::new(0);

struct Opened {
    identity: Identity,
    process: Arc<Process>,
    handles: usize,
}

/// Opens a folder, or finds it open. Gives the process and the number of a new subscriber.
pub fn enter(path: &Path, options: &Options) -> Result<(Arc<Process>, u64), Error> {
    let pid = std::process::id();
    let opener = OPENER.load(Ordering::SeqCst);
    if opener != 0 && opener != pid {
        return Err(Error::Forked);
    }
    let folder = Folder::open(path)?;
    let mut open = lock(&OPEN);
    OPENER.store(pid, Ordering::SeqCst);
    if let Some(opened) = open.values_mut().find(|opened| opened.identity == folder.identity) {
        opened.handles += 1;
        let process = opened.process.clone();
        let subscriber = process.add_subscriber(options);
        return Ok((process, subscriber));
    }
    let made = Process::open(pid, folder, options);
    if made.is_err() && open.is_empty() {
        OPENER.store(0, Ordering::SeqCst);
    }
    let process = Arc::new(made?);
    let subscriber = process.add_subscriber(options);
    let key = open.last_key_value().map_or(0, |(key, _)| key + 1);
    open.insert(key, Opened { identity: process.folder.identity, process: process.clone(), handles: 1 });
    Ok((process, subscriber))
}

/// One handle less. The last one cleans up behind this process.
pub fn exit(process: Arc<Process>, subscriber: u64, patience: Duration) -> Result<(), Error> {
    if process.check().is_err() {
        // A forked child: whatever it would close or free belongs to its parent.
        std::mem::forget(process);
        return Ok(());
    }
    let left = process.remove_subscriber(subscriber, patience);
    let mut open = lock(&OPEN);
    let key = open.iter().find(|(_, opened)| Arc::ptr_eq(&opened.process, &process)).map(|(key, _)| *key);
    let Some(key) = key else { return left };
    let opened = open.get_mut(&key).expect("it was found");
    opened.handles -= 1;
    if opened.handles > 0 {
        return left;
    }
    let gone = process.leave(patience);
    open.remove(&key);
    close(process);
    if open.is_empty() {
        OPENER.store(0, Ordering::SeqCst);
    }
    left.and(gone)
}

/// Closes everything before the folder may be opened again: a late close would free the locks of the next one.
fn close(mut process: Arc<Process>) {
    // Somebody may be about to interrupt a wait that is over. It holds on to nothing meanwhile.
    while let Err(held) = Arc::try_unwrap(process) {
        process = held;
        std::thread::yield_now();
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked while it held one of these left valid values: nothing is changed in two steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    fn open(pid: u32, folder: Folder, options: &Options) -> Result<Process, Error> {
        let locks = Locks::new(folder.file(LOCK)?);
        let bell = Bell::new(&folder)?;
        let turn = locks.turn(&folder.path, options.patience)?;
        let page = Page::map(locks.file())
            .map_err(|error| Error::io(&folder.path, "its lock file cannot be mapped", error))?;
        let database = table::open(&folder)?;
        let head = Head::read(&database).map_err(|error| Error::of(&folder.path, error))?;
        // Somebody may have died between writing the database and the page.
        page.raise(head.roster);
        if page.version() > head.roster {
            // The database was removed, or lost its last moments with the power: its count goes on from the page's.
            catch_up(&database, page.version()).map_err(|error| Error::of(&folder.path, error))?;
        }
        drop(turn);
        let state = State {
            roster: Roster::default(),
            subscribers: HashMap::new(),
            last_subscriber: 0,
            reader: None,
            cursor: 0,
            unacked: 0,
            unacked_bytes: 0,
            lost: 0,
            displaced: false,
            departed: Vec::new(),
            attended: false,
            looked_at: Instant::now(),
            narrow: 0,
        };
        Ok(Process {
            pid,
            folder,
            locks,
            page: Arc::new(page),
            bell: Mutex::new(Arc::new(bell)),
            program: options.program.clone(),
            number: AtomicI64::new(0),
            writer: Mutex::new(Writer { database, writes: 0 }),
            reach: Mutex::default(),
            state: Mutex::new(state),
            stirred: Condvar::new(),
        })
    }

    /// Refuses to work in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        if std::process::id() == self.pid { Ok(()) } else { Err(Error::Forked) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Without waiting for another thread that has it.
    pub fn try_state(&self) -> Result<MutexGuard<'_, State>, TryLockError<MutexGuard<'_, State>>> {
        self.state.try_lock()
    }

    pub fn bell(&self) -> Arc<Bell> {
        lock(&self.bell).clone()
    }

    /// Zero: nothing here listens yet.
    pub fn number(&self) -> i64 {
        self.number.load(Ordering::SeqCst)
    }

    pub fn fault(&self, error: rusqlite::Error) -> Error {
        Error::of(&self.folder.path, error)
    }

    fn add_subscriber(&self, options: &Options) -> u64 {
        let mut state = self.state();
        state.last_subscriber += 1;
        let id = state.last_subscriber;
        let mailbox = Mailbox::new(options.log_messages, options.log_bytes);
        let subscriber = Subscriber {
            mailbox,
            interests: BTreeSet::new(),
            echo: options.echo,
            interrupted: false,
            narrowed: 0,
        };
        state.subscribers.insert(id, subscriber);
        id
    }

    /// Runs one transaction, in its turn. All of it or nothing.
    pub fn write<T>(
        &self,
        patience: Duration,
        work: impl FnOnce(&Connection, &mut Head) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let mut writer = lock(&self.writer);
        let _turn = self.locks.turn(&self.folder.path, patience)?;
        let outcome = transact(&writer.database, work);
        writer.writes += 1;
        if writer.writes.is_multiple_of(1024) && self.folder.size_of(WAL) > limits::WAL_BYTES {
            // Readers that overlap all the time keep it from being used again: wait for a moment without any.
            let _ = table::fold(&writer.database);
        }
        outcome.map_err(|error| self.fault(error))
    }

    /// Moves to a bell under its number. Whoever sleeps at the old one comes along.
    pub fn hang(&self, bell: Arc<Bell>) {
        std::mem::replace(&mut *lock(&self.bell), bell).ring_home();
    }

    pub fn rename(&self, number: i64) {
        self.number.store(number, Ordering::SeqCst);
    }
}

fn catch_up(database: &Connection, version: u64) -> rusqlite::Result<()> {
    transact(database, |_, head| {
        (head.roster, head.patterns) = (version, head.patterns + 1);
        Ok(())
    })
}

fn transact<T>(
    database: &Connection,
    work: impl FnOnce(&Connection, &mut Head) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let run = |sql: &str| database.prepare_cached(sql)?.execute([]);
    run("BEGIN IMMEDIATE")?;
    let outcome = (|| {
        let before = Head::read(database)?;
        let mut head = before;
        let done = work(database, &mut head)?;
        if head != before {
            head.write(database)?;
        }
        run("COMMIT")?;
        Ok(done)
    })();
    if outcome.is_err() && !database.is_autocommit() {
        let _ = run("ROLLBACK");
    }
    outcome
}
