//! Whether this node looks for sessions that stopped nodes left in the store. Any session may be among them: until the
//! check ends, no node may conclude that a session does not exist.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub struct AdoptionCheck(AtomicBool);

impl AdoptionCheck {
    /// Before the nodes are read.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// The sessions that were found are on their shards.
    pub fn end(&self) {
        self.0.store(false, Ordering::Release);
    }

    pub fn is_in_progress(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
