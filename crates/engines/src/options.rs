//! The options of a bus.

use std::path::Path;
use tavern_local::Options;

pub struct BusOptions<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The prefix of every subject, so that two clusters can share a server.
    pub prefix: &'a str,
    /// The data folder of this machine.
    pub folder: &'a Path,
    pub bounds: LogBounds,
}

/// How much the log of the local bus keeps for processes that have not read it.
#[derive(Clone, Copy, Debug)]
pub struct LogBounds {
    pub messages: u64,
    pub bytes: u64,
    pub age_ms: u64,
    /// The largest message between nodes; other users of the library have their own limit.
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
