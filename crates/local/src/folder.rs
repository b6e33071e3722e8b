//! The folder and the names of its files: resolved once, private to its owner, refused on network file systems.
//! Must hold: every path to a folder gives the same identity, and it stays valid when the working directory changes.

use crate::error::Error;
use crate::limits;
use rustix::fs::{Mode, OFlags};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The SQLite database.
pub const DATABASE: &str = "bus.db";
/// The record locks and the shared version number.
pub const LOCK: &str = "bus.db-lock";
/// SQLite's write-ahead log.
pub const WAL: &str = "bus.db-wal";

/// The socket that wakes a process.
pub fn wake_file(process: i64) -> String {
    format!("bus.db-wake-{process}")
}

/// Identifies a folder, whatever path led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FolderIdentity {
    device: u64,
    inode: u64,
}

#[derive(Debug)]
pub struct LocalFolder {
    pub path: PathBuf,
    pub directory: OwnedFd,
    pub identity: FolderIdentity,
}

impl LocalFolder {
    /// Finds the folder, creating it if it does not exist.
    pub fn open(path: &Path) -> Result<LocalFolder, Error> {
        let fault = |doing: &str, error: io::Error| Error::io(path, doing, error);
        check_length(path, &std::path::absolute(path).map_err(|error| fault("it cannot be found", error))?)?;
        if !path.is_dir() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| fault("it cannot be created", error))?;
        }
        let absolute = path.canonicalize().map_err(|error| fault("it cannot be found", error))?;
        check_length(path, &absolute)?;
        if let Some(network) =
            network_file_system(&absolute).map_err(|error| fault("it cannot be read", error))?
        {
            let reason = format!("it is on a network file system ({network}), where locks are not reliable");
            return Err(Error::Folder { path: path.into(), reason, source: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&absolute, flags, Mode::empty())
            .map_err(|error| fault("it cannot be opened", error.into()))?;
        let stat = rustix::fs::fstat(&directory).map_err(|error| fault("it cannot be read", error.into()))?;
        let identity = FolderIdentity { device: stat.st_dev as u64, inode: stat.st_ino as u64 };
        Ok(LocalFolder { path: absolute, directory, identity })
    }

    /// Opens one of our files, creating it with access for its owner only.
    pub fn file(&self, name: &str) -> Result<OwnedFd, Error> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let made = rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR);
        made.map_err(|error| Error::io(&self.path, &format!("{name} cannot be opened"), error.into()))
    }

    /// Removes a file; a missing one is fine.
    pub fn remove(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.directory, name, rustix::fs::AtFlags::empty());
    }

    pub fn has(&self, name: &str) -> bool {
        rustix::fs::statat(&self.directory, name, rustix::fs::AtFlags::empty()).is_ok()
    }

    /// The size of a file; zero for a missing one.
    pub fn size_of(&self, name: &str) -> u64 {
        rustix::fs::statat(&self.directory, name, rustix::fs::AtFlags::empty())
            .map_or(0, |stat| stat.st_size as u64)
    }

    pub fn is_writable(&self) -> bool {
        rustix::fs::access(&self.path, rustix::fs::Access::WRITE_OK).is_ok()
    }

    /// Whether the disk has no room for the block that SQLite allocates at once.
    pub fn is_full(&self) -> bool {
        const BLOCK: u64 = 64 << 10;
        rustix::fs::statvfs(&self.path).is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) < BLOCK)
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

/// File systems that are always remote. FUSE may be local; where it is not, SQLite's shared memory already fails.
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

/// The name of the network file system that a folder is on; `None` for a local one.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// if let Some(name) = tavern_local::network_file_system(folder)? {
///     eprintln!("locks are not reliable on {name}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
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
    fn network_file_systems_are_recognised_by_their_magic_number() {
        for (magic, name) in [(0x6969, Some("nfs")), (0xFF53_4D42, Some("cifs")), (0xEF53, None)] {
            assert_eq!(network_name(magic), name);
        }
    }
}
