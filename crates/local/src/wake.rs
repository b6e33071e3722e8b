//! Waking a process that waits: one datagram socket each, a file in the folder. A datagram says that something is in
//! the database, never what. A full socket has been told already.

use crate::error::Error;
use crate::folder::Folder;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// What a process can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    /// Look into the queue.
    Look = b'l',
    /// Somebody has come: say exactly what you listen to.
    Narrow = b'n',
}

#[derive(Debug)]
pub struct Bell {
    socket: OwnedFd,
    /// For threads of this process: it needs no file and cannot be refused.
    home: OwnedFd,
    /// How the folder is reached within the 108 bytes that a socket's address has.
    prefix: PathBuf,
}

/// What was heard since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    pub narrow: bool,
}

pub fn name_of(process: i64) -> String {
    format!("bus.db-wake-{process}")
}

impl Bell {
    /// Not yet reachable: `hang` it first. It can ring others at once.
    pub fn new(folder: &Folder) -> Result<Bell, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        let socket = socket.map_err(|error| fault("no socket", error.into()))?;
        let home = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| fault("no event descriptor", error.into()))?;
        // By the descriptor of the folder the address is short, however long the path is.
        let short = PathBuf::from(format!("/proc/self/fd/{}", folder.directory.as_raw_fd()));
        let prefix = if short.exists() { short } else { folder.path.clone() };
        Ok(Bell { socket, home, prefix })
    }

    /// From now on others can ring it.
    pub fn hang(&self, folder: &Folder, process: i64) -> Result<(), Error> {
        // Left behind when the database was removed and its numbers began anew. Whoever holds the number owns the name.
        folder.remove(&name_of(process));
        let address = self.address(process).map_err(|error| {
            fault("the folder's path is too long for a socket, and there is no /proc to shorten it", error)
        })?;
        rustix::net::bind(&self.socket, &address)
            .map_err(|error| fault("the socket cannot be put into the folder", error.into()))
    }

    /// Rings another process. Nobody there is no error: its lock tells whether it lives.
    pub fn ring(&self, process: i64, signal: Signal) {
        if let Ok(address) = self.address(process) {
            let _ = rustix::net::sendto(&self.socket, &[signal as u8], SendFlags::DONTWAIT, &address);
        }
    }

    /// Rings at home: a thread of this process that sleeps here looks up.
    pub fn ring_home(&self) {
        // Refused only when it has rung as often as a number can count.
        let _ = rustix::io::write(&self.home, &1u64.to_ne_bytes());
    }

    /// Takes everything that others said so far.
    pub fn hear(&self) -> Heard {
        let mut heard = Heard::default();
        let mut byte = [0u8; 1];
        loop {
            match rustix::net::recv(&self.socket, &mut byte, RecvFlags::DONTWAIT) {
                Ok(_) => heard.narrow |= byte[0] == Signal::Narrow as u8,
                Err(Errno::INTR) => {}
                Err(_) => return heard,
            }
        }
    }

    /// Sleeps until somebody rings, at most this long.
    pub fn sleep(&self, longest: Duration) {
        let timeout =
            Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        let mut bells = [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.home, PollFlags::IN)];
        // Woken for whatever reason: the caller looks and sleeps again.
        let _ = rustix::event::poll(&mut bells, Some(&timeout));
        // Only here: taken by a thread that does not sleep, it would not wake the one that does.
        let _ = rustix::io::read(&self.home, &mut [0u8; 8]);
    }

    fn address(&self, process: i64) -> io::Result<SocketAddrUnix> {
        Ok(SocketAddrUnix::new(self.prefix.join(name_of(process)))?)
    }
}

fn fault(reason: &str, source: io::Error) -> Error {
    Error::Wake { reason: format!("{reason}: {source}"), source }
}
