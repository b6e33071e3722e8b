//! What can go wrong with a folder, each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the folder {} cannot be used: {reason}", path.display())]
    Folder { path: PathBuf, reason: String, source: Option<io::Error> },
    #[error("the folder {} cannot be written to; publishing and subscribing need that", path.display())]
    ReadOnly { path: PathBuf, source: Option<io::Error> },
    #[error("no space is left for the folder {}; nothing was written", path.display())]
    Full { path: PathBuf },
    #[error(
        "the folder {} has been busy for {waited_ms} ms{}",
        path.display(),
        holder.map_or(String::new(), |pid| format!("; process {pid} holds it and may be stopped"))
    )]
    Busy { path: PathBuf, waited_ms: u64, holder: Option<u32> },
    #[error("the {what} has {bytes} bytes, at most {most} are allowed")]
    TooLarge { what: &'static str, bytes: usize, most: usize },
    #[error("this handle was opened by another process: after a fork, open the folder in the child only")]
    Forked,
    #[error("the folder {} was written by a newer version ({found}); upgrade this program", path.display())]
    Newer { path: PathBuf, found: i64 },
    #[error("{} is damaged; stop its users and remove it: it holds only messages under way", path.display())]
    Damaged { path: PathBuf, source: rusqlite::Error },
    #[error("the folder's database failed")]
    Database(#[source] rusqlite::Error),
    #[error("waking other processes is not possible: {reason}")]
    Wake { reason: String, source: io::Error },
}

impl Error {
    /// Gives a fault of the database its meaning.
    pub(crate) fn of(folder: &Path, error: rusqlite::Error) -> Error {
        use rusqlite::ErrorCode as Code;
        let path = || folder.to_path_buf();
        match error.sqlite_error_code() {
            Some(Code::DiskFull) => Error::Full { path: path() },
            // The memory that its readers share has no other word for it.
            Some(Code::SystemIoFailure) if is_full(folder) => Error::Full { path: path() },
            Some(Code::ReadOnly | Code::PermissionDenied) => Error::ReadOnly { path: path(), source: None },
            Some(Code::CannotOpen) if !is_writable(folder) => Error::ReadOnly { path: path(), source: None },
            Some(Code::CannotOpen) => {
                let reason = "its database cannot be opened; too many files may be open".into();
                Error::Folder { path: path(), reason, source: None }
            }
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => {
                Error::Damaged { path: folder.join(crate::folder::DATABASE), source: error }
            }
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
                Error::Busy { path: path(), waited_ms: crate::limits::BUSY_MS, holder: None }
            }
            _ => Error::Database(error),
        }
    }

    /// It may be gone the next time: somebody else writes, or there is no space now. Whoever only reads can go on.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Error::Busy { .. } | Error::Full { .. })
    }

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

fn is_writable(folder: &Path) -> bool {
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Whether there is no space for what SQLite asks for at once.
fn is_full(folder: &Path) -> bool {
    const BLOCK: u64 = 64 << 10;
    rustix::fs::statvfs(folder).is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) < BLOCK)
}
