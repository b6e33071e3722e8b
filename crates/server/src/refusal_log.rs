//! Log lines about what is refused: at most one per reason and interval, with the number of refusals since the last one.
//! Must hold: a client that causes refusals cannot fill the log or the memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Decides which refusals are logged.
#[derive(Default)]
pub struct RefusalLog {
    logged_at: Option<Instant>,
    refused: u64,
}

impl RefusalLog {
    /// Counts refusals. Returns their number since the last line when it is time for the next one.
    pub fn count(&mut self, refused: u64, now: Instant) -> Option<u64> {
        self.refused += refused;
        if self.logged_at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.refused))
    }
}

/// The same by reason, for refusals on any thread. Reasons are fixed texts, so there are few.
#[derive(Default)]
pub struct RefusalLogs {
    by_reason: Mutex<BTreeMap<&'static str, RefusalLog>>,
}

impl RefusalLogs {
    /// Counts one refusal. Some: a line is due.
    pub fn count(&self, reason: &'static str) -> Option<u64> {
        let mut logs = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        logs.entry(reason).or_default().count(1, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_once_per_interval_with_their_number() {
        let (mut log, start) = (RefusalLog::default(), Instant::now());
        assert_eq!(log.count(1, start), Some(1));
        assert_eq!(log.count(1, start + Duration::from_secs(1)), None);
        assert_eq!(log.count(4, start + Duration::from_secs(9)), None);
        assert_eq!(log.count(1, start + LOG_INTERVAL), Some(6));
    }

    #[test]
    fn each_reason_has_its_own_line() {
        let logs = RefusalLogs::default();
        assert_eq!((logs.count("a"), logs.count("a"), logs.count("b")), (Some(1), None, Some(1)));
    }
}
