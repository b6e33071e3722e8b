//! The errors of the library. Each variant says what is wrong and, where the caller can do something, what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why an operation on a folder failed.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// use tavern_local::{Error, MESSAGE_BYTES, open};
///
/// let local = open(folder)?;
/// match local.publish("news", vec![0; MESSAGE_BYTES + 1]) {
///     Err(Error::TooLarge { what, limit, .. }) => assert_eq!((what, limit), ("payload", MESSAGE_BYTES)),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be used at all: fix the path or the file system.
    #[error("the folder {} cannot be used: {reason}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The error of the operating system, if there was one.
        source: Option<io::Error>,
    },
    /// Publishing and subscribing both need write permission.
    #[error("the folder {} cannot be written to; publishing and subscribing need write permission", path.display())]
    ReadOnly {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system, if there was one.
        source: Option<io::Error>,
    },
    /// The disk is full. Nothing was written; retry when there is space.
    #[error("no space is left for the folder {}; nothing was written", path.display())]
    Full {
        /// The folder.
        path: PathBuf,
    },
    /// Another process held the write lock for too long. Retry, or end that process.
    #[error(
        "the folder {} has been busy for {waited_ms} ms{}",
        path.display(),
        holder.map_or(String::new(), |pid| format!("; process {pid} holds its write lock and may be stopped"))
    )]
    Busy {
        /// The folder.
        path: PathBuf,
        /// How long this process waited.
        waited_ms: u64,
        /// The process id of the lock's holder, where the operating system reports it.
        holder: Option<u32>,
    },
    /// A name, a payload or a header exceeds its limit.
    #[error("the {what} has {bytes} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Which part: `name`, `channel`, `payload` or `header`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// The handle belongs to the parent of this forked process. Open the folder in the child instead of the parent.
    #[error("this handle was opened by another process: after a fork, open the folder in the child only")]
    Forked,
    /// A newer version of this library wrote the database.
    #[error("the folder {} was written by a newer version ({found}); upgrade this program", path.display())]
    NewerVersion {
        /// The folder.
        path: PathBuf,
        /// The version found in the database.
        found: i64,
    },
    /// The database is corrupt. It holds only messages in flight, so it can be removed once nothing uses it.
    #[error("{} is corrupt; stop the processes that use it and remove it: it holds only messages in flight", path.display())]
    Corrupt {
        /// The database file.
        path: PathBuf,
        /// What SQLite found.
        source: rusqlite::Error,
    },
    /// Any other failure of the database.
    #[error("the folder's database failed")]
    Database(#[source] rusqlite::Error),
    /// The socket by which other processes wake this one cannot be used.
    #[error("the wake-up socket failed: {reason}")]
    Wake {
        /// What was attempted.
        reason: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    /// Whether the same call may succeed later: the folder is busy or the disk is full. Reading can continue.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Error::Busy { .. } | Error::Full { .. })
    }

    /// Maps a failed system call on the folder.
    pub(crate) fn io(folder: &Path, doing: &str, error: io::Error) -> Error {
        let path = folder.to_path_buf();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path },
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Error::ReadOnly { path, source: Some(error) }
            }
            _ => Error::Folder { path, reason: format!("{doing}: {error}"), source: Some(error) },
        }
    }
}
