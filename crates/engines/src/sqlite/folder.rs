//! The data folder: created with private permissions, refused on network file systems, and its lock file, which also remembers
//! that the folder has a database. Must hold: a database that was emptied or removed is not begun anew silently; no symbolic link is followed to the files in it; each user of the lock has its own open file; two that share one would not exclude each other.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tavern_store::StoreError;

/// In the lock file of a folder that has a database; for people who read it.
const MADE: &[u8] = b"tavern.db was made\n";

#[derive(Clone, Debug)]
pub(super) struct SqliteFolder(PathBuf);

/// One user of the folder's lock file.
pub(super) struct Lock(File);

/// Until it is dropped, no other process or thread writes to the folder.
pub(super) struct WriteGuard<'a>(&'a File);

impl SqliteFolder {
    /// Makes the path absolute, so that a later change of directory has no effect.
    pub fn open(path: &Path) -> Result<SqliteFolder, StoreError> {
        let fault = |reason: &str, error| fault(path, reason, error);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| fault("it cannot be created", error))?;
        let folder = path.canonicalize().map_err(|error| fault("it cannot be found", error))?;
        if let Some(network) =
            tavern_local::network_file_system(&folder).map_err(|error| fault("it cannot be read", error))?
        {
            let reason = format!("it is on a network file system ({network}), where locks are not reliable");
            return Err(StoreError::Folder { path: path.into(), reason, source: None });
        }
        let folder = SqliteFolder(folder);
        // Created here and not by SQLite, for its permissions, which SQLite's own files inherit.
        folder.file("tavern.db")?;
        Ok(folder)
    }

    pub fn database(&self) -> PathBuf {
        self.0.join("tavern.db")
    }

    /// Refuses a folder whose database was emptied or removed. The caller holds the lock.
    pub fn check_database(&self, lock: &Lock) -> Result<(), StoreError> {
        let is_empty = |path: &Path| path.metadata().is_ok_and(|found| found.len() == 0);
        let had_one = lock.0.metadata().is_ok_and(|found| found.len() > 0);
        if had_one && is_empty(&self.database()) {
            let reason = "tavern.db is empty, and was not when the folder was used last: restore it from a backup, \
                or remove the whole folder to begin anew";
            return Err(StoreError::Folder { path: self.0.clone(), reason: reason.into(), source: None });
        }
        Ok(())
    }

    /// Remembers that the folder has a database. The caller holds the lock.
    pub fn remember_database(&self, lock: &Lock) -> Result<(), StoreError> {
        let mut file = &lock.0;
        if file.metadata().is_ok_and(|found| found.len() > 0) {
            return Ok(());
        }
        file.write_all(MADE).map_err(|error| fault(&self.0, "tavern.lock cannot be written", error))
    }

    pub fn lock(&self) -> Result<Lock, StoreError> {
        self.file("tavern.lock").map(Lock)
    }

    fn file(&self, name: &str) -> Result<File, StoreError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let reason = |error: &io::Error| match rustix::io::Errno::from_io_error(error) {
            Some(rustix::io::Errno::LOOP) => {
                format!("{name} in it is a symbolic link, which is not followed")
            }
            _ => "it cannot be written".to_owned(),
        };
        options.open(self.0.join(name)).map_err(|error| fault(&self.0, &reason(&error), error))
    }
}

impl Lock {
    /// Waits for its turn. The operating system frees the lock of a process that dies.
    pub fn hold(&self) -> io::Result<WriteGuard<'_>> {
        loop {
            match self.0.lock() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return outcome.map(|()| WriteGuard(&self.0)),
            }
        }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::error!(%error, "cannot release the folder lock");
        }
    }
}

fn fault(path: &Path, reason: &str, error: io::Error) -> StoreError {
    let reason = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "there is no space left".to_string(),
        io::ErrorKind::ReadOnlyFilesystem => "it is on a read-only file system".to_string(),
        _ => format!("{reason}: {error}"),
    };
    StoreError::Folder { path: path.into(), reason, source: Some(Arc::new(error)) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_folder_is_private() {
        let home = tempfile::tempdir().unwrap();
        let folder = SqliteFolder::open(&home.path().join("a b").join("c")).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.0), 0o700);
        assert_eq!(mode(&folder.database()), 0o600);
    }

    #[test]
    fn a_link_to_a_database_is_not_followed() {
        let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["tavern.db", "tavern.lock"] {
            let (link, target) = (home.path().join(name), elsewhere.path().join(name));
            std::os::unix::fs::symlink(&target, &link).unwrap();
            let opened = SqliteFolder::open(home.path()).and_then(|folder| folder.lock().map(|_| ()));
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("symbolic link"), "{error}");
            assert!(!target.exists(), "nothing was created behind the link");
            std::fs::remove_file(&link).unwrap();
        }
    }

    #[test]
    fn two_users_of_the_lock_exclude_each_other() {
        let home = tempfile::tempdir().unwrap();
        let folder = SqliteFolder::open(home.path()).unwrap();
        let (one, two) = (folder.lock().unwrap(), folder.lock().unwrap());
        let held = one.hold().unwrap();
        assert!(two.0.try_lock().is_err());
        drop(held);
        assert!(two.hold().is_ok());
    }
}
