//! How much the log of a folder keeps.

use tavern_local::Options;

/// How much the folder keeps for those who have not read it.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    pub messages: u64,
    pub bytes: u64,
    pub age_ms: u64,
    /// The largest message that nodes carry; users of the library have a bound of their own.
    pub message_bytes: usize,
}

impl Default for LogBounds {
    fn default() -> LogBounds {
        let options = Options::default();
        let age_ms = options.log_age.as_millis() as u64;
        let message_bytes = options.message_bytes;
        LogBounds { messages: options.log_messages, bytes: options.log_bytes, age_ms, message_bytes }
    }
}
