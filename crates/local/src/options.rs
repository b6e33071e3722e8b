//! How a handle uses its folder.

use crate::limits;
use std::path::Path;
use std::time::Duration;

/// How a handle uses its folder. The log limits are for the whole folder; the publisher's own options apply when it
/// publishes.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// use tavern_local::{Local, Options};
///
/// let options = Options { log_messages: 1_000, echo: false, ..Options::default() };
/// let local = Local::open_with(folder, options)?;
/// local.subscribe(["news"])?;
/// assert_eq!(local.publish("news", "its own messages are not echoed")?, 0);
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Messages kept for subscribers that have not read them.
    pub log_messages: u64,
    /// Bytes of those messages.
    pub log_bytes: u64,
    /// Age of those messages.
    pub log_age: Duration,
    /// The largest name, payload and header that this handle publishes, in bytes.
    pub message_bytes: usize,
    /// How long to wait for the write lock. A write is short; only a stopped process holds the lock this long.
    pub busy_timeout: Duration,
    /// False: this handle does not receive what it publishes itself, and is not counted as a recipient of it.
    pub echo: bool,
    /// False: opening does not clean up after dead processes, so that [`Local::stat`](crate::Local::stat) shows them.
    pub sweep_on_open: bool,
    /// The name of this process in [`Local::stat`](crate::Local::stat).
    pub program: String,
}

impl Default for Options {
    fn default() -> Options {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default();
        Options {
            log_messages: 100_000,
            log_bytes: 64 << 20,
            log_age: Duration::from_secs(3600),
            message_bytes: limits::MESSAGE_BYTES,
            busy_timeout: Duration::from_millis(limits::BUSY_MS),
            echo: true,
            sweep_on_open: true,
            program: program.to_string_lossy().into_owned(),
        }
    }
}
