//! Wakes a process that waits: one datagram socket per process, a file in the folder. A datagram means that something
//! changed in the database, never what. A full socket already has a signal, so nothing more needs to be sent.

use crate::error::Error;
use crate::folder::{LocalFolder, wake_file};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// What a datagram asks a process to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WakeSignal {
    /// Read the queue.
    Read = b'l',
    /// Replace a subscription to everything by the names that are really wanted.
    Narrow = b'n',
}

#[derive(Debug)]
pub struct Waker {
    socket: OwnedFd,
    /// Wakes a thread of this process: it needs no file and cannot fail.
    event: OwnedFd,
    /// The folder as a path short enough for the 108 bytes of a socket address.
    prefix: PathBuf,
}

impl Waker {
    /// Can wake others at once; others can wake it after `bind`.
    pub fn new(folder: &LocalFolder) -> Result<Waker, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        let socket = socket.map_err(|error| fault("cannot create a socket", error.into()))?;
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| fault("cannot create an event descriptor", error.into()))?;
        // Through the folder's descriptor the address is short, however long the path is.
        let short = PathBuf::from(format!("/proc/self/fd/{}", folder.directory.as_raw_fd()));
        let prefix = if short.exists() { short } else { folder.path.clone() };
        Ok(Waker { socket, event, prefix })
    }

    /// From now on other processes can wake this one by its number.
    pub fn bind(&self, folder: &LocalFolder, process: i64) -> Result<(), Error> {
        // A file left over from before the database was removed and its numbers began again. We hold the number's lock.
        folder.remove(&wake_file(process));
        let address = self.address(process).map_err(|error| {
            fault("the folder's path is too long for a socket, and there is no /proc to shorten it", error)
        })?;
        rustix::net::bind(&self.socket, &address)
            .map_err(|error| fault("the socket cannot be created in the folder", error.into()))
    }

    /// Wakes another process. A missing socket is no error: the lock shows whether the process is alive.
    pub fn wake(&self, process: i64, signal: WakeSignal) {
        if let Ok(address) = self.address(process) {
            let _ = rustix::net::sendto(&self.socket, &[signal as u8], SendFlags::DONTWAIT, &address);
        }
    }

    /// Wakes the thread of this process that sleeps here.
    pub fn wake_own(&self) {
        // Fails only when the counter is at its maximum, and then it is readable anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Consumes all signals so far. True: one of them was [`Signal::Narrow`].
    pub fn drain(&self) -> bool {
        let mut narrow = false;
        let mut byte = [0u8; 1];
        loop {
            match rustix::net::recv(&self.socket, &mut byte, RecvFlags::DONTWAIT) {
                Ok(_) => narrow |= byte[0] == WakeSignal::Narrow as u8,
                Err(Errno::INTR) => {}
                Err(_) => return narrow,
            }
        }
    }

    /// Sleeps until a signal arrives, at most this long. May return early.
    pub fn sleep(&self, longest: Duration) {
        let timeout =
            Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        let mut sources = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.event, PollFlags::IN)];
        // Whatever the result, the caller re-checks and sleeps again.
        let _ = rustix::event::poll(&mut sources, Some(&timeout));
        // Reset only here: another thread that reset it would take the wake-up from the one that sleeps.
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    fn address(&self, process: i64) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(self.prefix.join(wake_file(process)))?)
    }
}

fn fault(reason: &str, source: io::Error) -> Error {
    Error::Wake { reason: format!("{reason}: {source}"), source }
}
