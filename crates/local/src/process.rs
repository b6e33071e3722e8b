//! This process at a folder: its database, its number and the socket that wakes it. It registers with its first
//! subscription and unregisters with its last handle. Must hold: a number is used once; a process that dies between
//! two steps leaves nothing that its row does not name.

use crate::database::{Database, FolderCounters, forget_process, now_ms};
use crate::error::Error;
use crate::folder::{LocalFolder, wake_file};
use crate::options::Options;
use crate::waker::Waker;
use rusqlite::params;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

pub struct Process {
    pid: u32,
    program: String,
    pub database: Database,
    /// Its number in the folder; zero while it is not registered.
    number: AtomicI64,
    waker: Mutex<Arc<Waker>>,
    /// Notified when a mailbox received something, and when the thread that sleeps at the waker returns.
    pub woken: Condvar,
}

impl Process {
    pub fn open(folder: LocalFolder, options: &Options) -> Result<Process, Error> {
        let waker = Waker::new(&folder)?;
        let database = Database::open(folder, options.busy_timeout)?;
        Ok(Process {
            pid: std::process::id(),
            program: options.program.clone(),
            database,
            number: AtomicI64::new(0),
            waker: Mutex::new(Arc::new(waker)),
            woken: Condvar::new(),
        })
    }

    /// Refuses to work in a forked child.
    pub fn check(&self) -> Result<(), Error> {
        if std::process::id() == self.pid { Ok(()) } else { Err(Error::Forked) }
    }

    /// Zero: it is not registered.
    pub fn number(&self) -> i64 {
        self.number.load(Ordering::SeqCst)
    }

    pub fn waker(&self) -> Arc<Waker> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wakes the threads of this process that wait. `sleeping`: one of them sleeps at the waker.
    pub fn notify(&self, sleeping: bool) {
        self.woken.notify_all();
        if sleeping {
            self.waker().wake_own();
        }
    }

    /// Gives this process a new number, by which others see it and wake it. Returns the id of the last message before.
    pub fn register(&self, timeout: Duration) -> Result<i64, Error> {
        let waker = Arc::new(Waker::new(&self.database.folder)?);
        let (number, last_id) = self.insert_row(timeout)?;
        // After the row: a process that dies in between leaves nothing that the row does not name.
        if let Err(error) = waker.bind(&self.database.folder, number) {
            self.delete_row(number, timeout);
            return Err(error);
        }
        self.number.store(number, Ordering::SeqCst);
        let mut current = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        // A thread that sleeps at the old socket moves to the new one.
        std::mem::replace(&mut *current, waker).wake_own();
        Ok(last_id)
    }

    /// Removes everything of this process from the folder.
    pub fn unregister(&self, timeout: Duration) -> Result<(), Error> {
        let number = self.number();
        if number == 0 {
            return Ok(());
        }
        self.database.folder.remove(&wake_file(number));
        let removed =
            self.database.write(timeout, |database, counters| forget_process(database, counters, number));
        self.database.locks.release(number);
        self.number.store(0, Ordering::SeqCst);
        removed?;
        self.database.trim_all(timeout)
    }

    /// Stores a new number. Returns it and the id of the last message before.
    fn insert_row(&self, timeout: Duration) -> Result<(i64, i64), Error> {
        let mut claimed = 0;
        let inserted = self.database.write(timeout, |database, counters| {
            claimed = match self.claim_number(counters) {
                Ok(number) => number,
                Err(error) => return Ok(Err(error)),
            };
            let sql = "INSERT INTO process (id, pid, program, since) VALUES (?1, ?2, ?3, ?4)";
            database.execute(sql, params![claimed, self.pid, self.program, now_ms()])?;
            Ok(Ok((claimed, counters.last_id)))
        });
        let inserted = inserted.inspect_err(|_| self.database.locks.release(claimed))?;
        inserted.map_err(|error| Error::io(&self.database.folder.path, "its lock failed", error))
    }

    /// Locks the next free number. A number can be locked without a row when its holder failed to store it.
    fn claim_number(&self, counters: &mut FolderCounters) -> io::Result<i64> {
        loop {
            counters.last_process += 1;
            if self.database.locks.claim(counters.last_process)? {
                return Ok(counters.last_process);
            }
        }
    }

    fn delete_row(&self, number: i64, timeout: Duration) {
        let sql = "DELETE FROM process WHERE id = ?1";
        // If this fails too, the next sweep finds it dead as soon as its lock is free.
        let _ = self.database.write(timeout, |database, _| database.execute(sql, [number]));
        self.database.locks.release(number);
    }
}
