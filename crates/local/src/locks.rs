//! Record locks that the operating system releases when a process dies: one file, one byte per registered process and
//! one byte for the write lock. Record locks, because a forked child does not inherit them and testing one takes none.
//! Must hold: a process opens the file once and closes it last; closing any copy would release all its locks.

use crate::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The byte of the write lock. Those of the processes follow further on.
const WRITE: i64 = 0;
const FIRST_PROCESS: i64 = 16;

/// Backoff between two attempts to get the write lock.
const BACKOFF_MIN: Duration = Duration::from_micros(20);
const BACKOFF_MAX: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub struct Locks {
    file: File,
    /// The number of this process, or zero: a process cannot test its own record locks.
    own: AtomicI64,
}

/// Until dropped, no other process writes.
pub struct WriteLock<'a>(&'a Locks);

impl Locks {
    pub fn new(file: OwnedFd) -> Locks {
        Locks { file: file.into(), own: AtomicI64::new(0) }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Waits for the write lock. The caller makes sure that only one thread of this process asks.
    pub fn write_lock(&self, folder: &Path, timeout: Duration) -> Result<WriteLock<'_>, Error> {
        let fault = |error| Error::io(folder, "its lock failed", error);
        if self.try_lock(WRITE).map_err(fault)? {
            return Ok(WriteLock(self));
        }
        let began = Instant::now();
        let mut backoff = BACKOFF_MIN;
        loop {
            std::thread::sleep(backoff);
            if self.try_lock(WRITE).map_err(fault)? {
                return Ok(WriteLock(self));
            }
            if began.elapsed() >= timeout {
                let waited_ms = began.elapsed().as_millis() as u64;
                let holder = self.holder(WRITE).ok().flatten();
                return Err(Error::Busy { path: folder.into(), waited_ms, holder });
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Locks a process number for this process. Idempotent. False: another process holds it.
    pub fn claim(&self, process: i64) -> io::Result<bool> {
        let held = self.try_lock(FIRST_PROCESS + process)?;
        if held {
            self.own.store(process, Ordering::SeqCst);
        }
        Ok(held)
    }

    pub fn release(&self, process: i64) {
        let _ = self.own.compare_exchange(process, 0, Ordering::SeqCst, Ordering::SeqCst);
        // Closing the file releases it as well.
        let _ = self.control(libc::F_SETLK, libc::F_UNLCK, FIRST_PROCESS + process);
    }

    /// Whether the process with that number is alive, this one included.
    pub fn is_alive(&self, process: i64) -> bool {
        // An error does not prove that it is dead.
        process == self.own.load(Ordering::SeqCst)
            || !matches!(self.holder(FIRST_PROCESS + process), Ok(None))
    }

    fn try_lock(&self, byte: i64) -> io::Result<bool> {
        loop {
            match self.control(libc::F_SETLK, libc::F_WRLCK, byte) {
                Ok(_) => return Ok(true),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
                    Some(libc::EINTR) => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Which other process holds a byte. A holder in another container has no process id here: zero.
    fn holder(&self, byte: i64) -> io::Result<Option<u32>> {
        let found = self.control(libc::F_GETLK, libc::F_WRLCK, byte)?;
        Ok((i32::from(found.l_type) != libc::F_UNLCK).then_some(found.l_pid.max(0) as u32))
    }

    fn control(&self, command: libc::c_int, kind: libc::c_int, byte: i64) -> io::Result<libc::flock> {
        // SAFETY: `flock` is plain numbers, for which zero is a value.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = byte;
        lock.l_len = 1;
        // SAFETY: the descriptor is open as long as `self`, and `lock` outlives the call.
        let result = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &mut lock) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(lock) }
    }
}

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        let _ = self.0.control(libc::F_SETLK, libc::F_UNLCK, WRITE);
    }
}
