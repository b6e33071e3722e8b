//! Locks that the operating system frees when a process dies: one file, one byte for each process and one for whose
//! turn it is to write. Record locks, because a forked child does not inherit them and asking takes none.
//! Must hold: a process opens the file once and closes it last; closing any copy would free all its locks.

use crate::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The byte of whoever writes. Processes have theirs further on.
const TURN: i64 = 0;
const FIRST_PROCESS: i64 = 16;

/// Naps of somebody who waits for its turn.
const NAP_MIN: Duration = Duration::from_micros(20);
const NAP_MAX: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub struct Locks {
    file: File,
    /// The number under which this process lives, or zero: about itself it cannot ask the operating system.
    own: AtomicI64,
}

/// Until dropped, no other process writes.
pub struct Turn<'a>(&'a Locks);

impl Locks {
    pub fn new(file: OwnedFd) -> Locks {
        Locks { file: file.into(), own: AtomicI64::new(0) }
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Waits for its turn to write. The caller makes sure that only one thread of this process asks.
    pub fn turn(&self, folder: &Path, patience: Duration) -> Result<Turn<'_>, Error> {
        let fault = |error| Error::io(folder, "its lock failed", error);
        if self.try_hold(TURN).map_err(fault)? {
            return Ok(Turn(self));
        }
        let began = Instant::now();
        let mut nap = NAP_MIN;
        loop {
            std::thread::sleep(nap);
            if self.try_hold(TURN).map_err(fault)? {
                return Ok(Turn(self));
            }
            if began.elapsed() >= patience {
                let waited_ms = began.elapsed().as_millis() as u64;
                let holder = self.holder(TURN).ok().flatten();
                return Err(Error::Busy { path: folder.into(), waited_ms, holder });
            }
            nap = (nap * 2).min(NAP_MAX);
        }
    }

    /// Says that this process lives under that number. Again is the same as once. False: another one does.
    pub fn live(&self, process: i64) -> io::Result<bool> {
        let held = self.try_hold(FIRST_PROCESS + process)?;
        if held {
            self.own.store(process, Ordering::SeqCst);
        }
        Ok(held)
    }

    pub fn leave(&self, process: i64) {
        let _ = self.own.compare_exchange(process, 0, Ordering::SeqCst, Ordering::SeqCst);
        // Closing the file frees it as well.
        let _ = self.control(libc::F_SETLK, libc::F_UNLCK, FIRST_PROCESS + process);
    }

    /// Whether a process lives under that number, this one included.
    pub fn is_alive(&self, process: i64) -> bool {
        // An error is no proof of death.
        process == self.own.load(Ordering::SeqCst)
            || !matches!(self.holder(FIRST_PROCESS + process), Ok(None))
    }

    fn try_hold(&self, byte: i64) -> io::Result<bool> {
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

    /// Who else holds a byte. A holder in another container has no number here: zero.
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
        let outcome = unsafe { libc::fcntl(self.file.as_raw_fd(), command, &mut lock) };
        if outcome == -1 { Err(io::Error::last_os_error()) } else { Ok(lock) }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.0.control(libc::F_SETLK, libc::F_UNLCK, TURN);
    }
}
