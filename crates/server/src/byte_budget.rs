//! Memory that clients make the server hold, counted for the whole node against a limit of the configuration.
//! Must hold: what is added is subtracted; above the limit connections are closed and new requests are refused.

use crate::refusal_log::RefusalLog;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub struct ByteBudget {
    /// The configuration key of the limit.
    key: &'static str,
    held: AtomicUsize,
    max: usize,
    log: Mutex<RefusalLog>,
}

/// Memory of one request; released when it is dropped.
pub struct ReservedBytes {
    bytes: usize,
    of: Arc<ByteBudget>,
}

impl ByteBudget {
    pub fn new(key: &'static str, max: usize) -> Arc<ByteBudget> {
        Arc::new(ByteBudget { key, held: AtomicUsize::new(0), max, log: Mutex::default() })
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Replaces a counted size `before` by `after`.
    pub fn change(&self, before: usize, after: usize) {
        if after > before {
            self.held.fetch_add(after - before, Ordering::Relaxed);
        } else if before > after {
            self.held.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    pub fn is_exceeded(&self) -> bool {
        self.held() > self.max
    }

    /// There is some room again: connections are closed in groups, not one for each new one.
    pub fn is_relieved(&self) -> bool {
        self.held() <= self.relieved_at()
    }

    pub fn relieved_at(&self) -> usize {
        self.max / 4 * 3
    }

    /// Memory for a request, unless there is too little left.
    pub fn reserve(self: &Arc<ByteBudget>, bytes: usize) -> Option<ReservedBytes> {
        self.change(0, bytes);
        let reserved = ReservedBytes { bytes, of: self.clone() };
        if !self.is_exceeded() {
            return Some(reserved);
        }
        drop(reserved);
        self.log(1);
        None
    }

    /// Logs that some were closed or refused.
    pub fn log(&self, closed: u64) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if closed > 0
            && let Some(closed) = log.count(closed, Instant::now())
        {
            tracing::warn!(limit = self.key, closed, "connections closed: limit reached");
        }
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.of.change(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_refused_above_the_limit_and_give_their_memory_back() {
        let bytes = ByteBudget::new("limits.test", 100);
        let first = bytes.reserve(60).unwrap();
        assert!(bytes.reserve(60).is_none());
        assert_eq!(bytes.held(), 60);
        drop(first);
        assert!(bytes.reserve(60).is_some());
        assert_eq!(bytes.held(), 0);
    }

    #[test]
    fn connections_are_closed_until_a_quarter_is_free() {
        let bytes = ByteBudget::new("limits.test", 100);
        bytes.change(0, 101);
        assert!(bytes.is_exceeded());
        bytes.change(101, 80);
        assert!(!bytes.is_exceeded() && !bytes.is_relieved());
        bytes.change(80, 75);
        assert!(bytes.is_relieved());
    }
}
