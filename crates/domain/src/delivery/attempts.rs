//! The attempts in flight. A replay may have removed the batch of one; then its outcome is ignored.

use super::BatchReason;
use crate::time::Time;
use alloc::vec::Vec;

/// An attempt that takes longer shows a slow endpoint: nothing is read ahead for it.
pub const SLOW_MS: u64 = 1_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Attempts(Vec<Attempt>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    batch: u64,
    pub reason: BatchReason,
    since: Time,
    /// Another attempt failed since this one started: one fault of the endpoint is counted once.
    pub stale: bool,
}

impl Attempts {
    pub fn begin(&mut self, now: Time, batch: u64, reason: BatchReason) {
        self.0.push(Attempt { batch, reason, since: now, stale: false });
    }

    /// Ends the attempt to send a batch. `None`: there is none.
    pub fn end(&mut self, batch: u64) -> Option<Attempt> {
        let at = self.0.iter().position(|attempt| attempt.batch == batch)?;
        Some(self.0.remove(at))
    }

    /// An attempt failed: the outcomes of those in flight say nothing new about the endpoint.
    pub fn mark_stale(&mut self) {
        self.0.iter_mut().for_each(|attempt| attempt.stale = true);
    }

    pub fn has(&self, batch: u64) -> bool {
        self.0.iter().any(|attempt| attempt.batch == batch)
    }

    pub fn has_slow(&self, now: Time) -> bool {
        self.0.iter().any(|attempt| now.since(attempt.since) >= SLOW_MS)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
