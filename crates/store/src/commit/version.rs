//! The store's time, the versions derived from it, and the totals. Must hold: time never goes back; one key never gets
//! the same version twice, even after deletion.

use crate::totals::StoreTotals;
use tavern_domain::Time;

/// The store's time, and the highest version of any deleted row. A row that is created again starts above it, even if
/// the clock did not advance, so deleted rows need not be kept for their versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionClock {
    pub time: Time,
    pub floor: u64,
    /// How much there is, or by how much it has changed, as the engine keeps it.
    pub totals: StoreTotals,
}

impl VersionClock {
    /// Time is the maximum of the last stored time and the wall clock.
    pub fn advance(&mut self, wall: Time) -> Time {
        self.time = self.time.max(wall);
        self.time
    }

    /// The version after `last`; 0: the row is new.
    pub(super) fn next(&self, last: u64) -> u64 {
        if last > 0 { last + 1 } else { self.begin(0) }
    }

    /// Versions start at the time in microseconds and then count by one.
    pub(super) fn begin(&self, last: u64) -> u64 {
        self.time.0.saturating_mul(1000).min(i64::MAX as u64).max(self.floor + 1).max(last + 1)
    }

    /// A row of this version was deleted.
    pub(super) fn retire(&mut self, version: u64) {
        self.floor = self.floor.max(version);
    }
}
