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
use crate::wake::{Bell, name_of};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub struct Process {
    pid: u32,
    pub folder: Folder,
    pub locks: Locks,
    pub page: Arc<Page>,
    bell: Mutex<Arc<Bell>>,
    program: String,
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
    // Closed before the folder may be opened again: a late close would free the locks of the next one.
    open.remove(&key);
    drop(process);
    if open.is_empty() {
        OPENER.store(0, Ordering::SeqCst);
    }
    left.and(gone)
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

    /// Whether the process of that number lives. This one does.
    pub fn is_alive(&self, process: i64) -> bool {
        process == self.number() || self.locks.is_alive(process)
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
            let fold = writer.database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            drop(fold);
        }
        outcome.map_err(|error| self.fault(error))
    }

    /// Gives this process its number, if it has none. From then on others can see it and wake it.
    pub fn join(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        if self.number() != 0 {
            return Ok(());
        }
        let bell = Arc::new(Bell::new(&self.folder)?);
        let (number, last_id) = self.write(patience, |database, head| {
            head.last_process += 1;
            let number = head.last_process;
            let held = self.locks.live(number).unwrap_or(false);
            assert!(held, "a number that was never given is held by nobody");
            let sql = "INSERT INTO process (id, pid, program, since) VALUES (?1, ?2, ?3, ?4)";
            database.execute(sql, params![number, self.pid, self.program, table::now_ms()])?;
            Ok((number, head.last_id))
        })?;
        // After the row: somebody who dies in between leaves nothing that the row does not name.
        if let Err(error) = bell.hang(number) {
            let _ = self.write(patience, |database, _| {
                database.execute("DELETE FROM process WHERE id = ?1", [number])
            });
            self.locks.leave(number);
            return Err(error);
        }
        *lock(&self.bell) = bell;
        (state.cursor, state.lost, state.unacked, state.unacked_bytes) = (last_id, 0, 0, 0);
        self.number.store(number, Ordering::SeqCst);
        Ok(())
    }

    /// Others took this process for dead: it joins again under a new number, and says that it may have missed something.
    pub fn rejoin(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        self.folder.remove(&name_of(self.number()));
        self.locks.leave(self.number());
        self.number.store(0, Ordering::SeqCst);
        self.join(state, patience)?;
        state.roster = Roster::default();
        let ids: Vec<u64> = state.subscribers.keys().copied().collect();
        for id in ids {
            let subscriber = state.subscribers.get_mut(&id).expect("it stands there");
            let interests = std::mem::take(&mut subscriber.interests);
            if !interests.is_empty() {
                subscriber.mailbox.lose(0);
                self.listen(state, id, interests, patience)?;
            }
        }
        Ok(())
    }

    fn remove_subscriber(&self, id: u64, patience: Duration) -> Result<(), Error> {
        let mut state = self.state();
        let interests = state.subscribers.get(&id).map(|subscriber| subscriber.interests.clone());
        let outcome = self.unlisten(&mut state, id, interests.unwrap_or_default(), patience);
        state.subscribers.remove(&id);
        outcome
    }

    /// Nothing of this process stays in the folder.
    fn leave(&self, patience: Duration) -> Result<(), Error> {
        let number = self.number();
        if number == 0 {
            return Ok(());
        }
        self.folder.remove(&name_of(number));
        let gone = self.write(patience, |database, head| crate::sweep::forget(database, head, number));
        self.locks.leave(number);
        self.number.store(0, Ordering::SeqCst);
        gone
    }
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
