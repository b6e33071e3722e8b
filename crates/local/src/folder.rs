//! The folder: found once, made private, refused on network file systems. Its files carry the name of the database.
//! Must hold: the folder is the same whatever path led to it, and stays the same when the directory changes.

use crate::error::Error;
use crate::limits;
use rustix::fs::{Mode, OFlags};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub const DATABASE: &str = "bus.db";
pub const LOCK: &str = "bus.db-lock";
pub const WAL: &str = "bus.db-wal";

/// What a folder is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
}

#[derive(Debug)]
pub struct Folder {
    pub path: PathBuf,
    pub directory: OwnedFd,
    pub identity: Identity,
}

impl Folder {
    pub fn open(path: &Path) -> Result<Folder, Error> {
        let fault = |doing: &str, error: io::Error| Error::io(path, doing, error);
        check_length(path, &std::path::absolute(path).map_err(|error| fault("it cannot be found", error))?)?;
        if !path.is_dir() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| fault("it cannot be made", error))?;
        }
        let absolute = path.canonicalize().map_err(|error| fault("it cannot be found", error))?;
        check_length(path, &absolute)?;
        if let Some(network) =
            network_file_system(&absolute).map_err(|error| fault("it cannot be read", error))?
        {
            let reason = format!("it is on a network file system ({network}), where locks cannot be trusted");
            return Err(Error::Folder { path: path.into(), reason, source: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&absolute, flags, Mode::empty())
            .map_err(|error| fault("it cannot be opened", error.into()))?;
        let stat = rustix::fs::fstat(&directory).map_err(|error| fault("it cannot be read", error.into()))?;
        let identity = Identity { device: stat.st_dev as u64, inode: stat.st_ino as u64 };
        Ok(Folder { path: absolute, directory, identity })
    }

    /// Opens or makes one of our files, for its owner only.
    pub fn file(&self, name: &str) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let made = rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR);
        made.map_err(|error| Error::io(&self.path, &format!("{name} cannot be opened"), error.into()))
    }

    pub fn remove(&self, name: &str) {
        // Gone already is as good.
        let _ = rustix::fs::unlinkat(&self.directory, name, rustix::fs::AtFlags::empty());
    }

    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.directory, name, rustix::fs::AtFlags::empty()).is_ok()
    }

    pub fn size_of(&self, name: &str) -> u64 {
        rustix::fs::statat(&self.directory, name, rustix::fs::AtFlags::empty())
            .map_or(0, |stat| stat.st_size as u64)
    }
}

fn check_length(path: &Path, absolute: &Path) -> Result<(), Error> {
    let bytes = absolute.as_os_str().len();
    if bytes <= limits::PATH_BYTES {
        return Ok(());
    }
    let reason = format!("its path is too long, {bytes} bytes; at most {} are allowed", limits::PATH_BYTES);
    Err(Error::Folder { path: path.into(), reason, source: None })
}

/// Only those that are a network by nature. FUSE may be local; where it is not, WAL's shared memory already fails.
#[cfg(target_os = "linux")]
const NETWORKS: [(u32, &str); 11] = [
    (0x6969, "nfs"),
    (0x517B, "smb"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x564C, "ncp"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "ceph"),
    (0x0BD0_0BD0, "lustre"),
];

/// The name of the network file system that a folder is on, if it is on one.
#[cfg(target_os = "linux")]
pub fn network_file_system(folder: &Path) -> io::Result<Option<&'static str>> {
    let magic = rustix::fs::statfs(folder)?.f_type as u32;
    Ok(network_name(magic))
}

#[cfg(target_os = "linux")]
fn network_name(magic: u32) -> Option<&'static str> {
    NETWORKS.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
pub fn network_file_system(_folder: &Path) -> io::Result<Option<&'static str>> {
    Ok(None)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn networks_are_known_by_their_number() {
        for (magic, name) in [(0x6969, Some("nfs")), (0xFF53_4D42, Some("cifs")), (0xEF53, None)] {
            assert_eq!(network_name(magic), name);
        }
    }
}
