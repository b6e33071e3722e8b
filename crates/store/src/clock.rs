//! The clock as an input. `commit` derives the store's own time from it: it never goes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tavern_domain::Time;

/// Where an engine reads the time.
pub trait Clock: Send + Sync {
    fn now(&self) -> Time;

    /// The latest time that an engine may take from the clock of its server: a later one is not trusted yet.
    fn latest(&self) -> Time {
        Time::NEVER
    }

    /// An engine has read the clock of its server for `Read::Time`.
    fn observe_server(&self, _wall: Time) {}
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        // A clock before 1970 counts as 1970: the store's time then does not advance, which is safe.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The clock of tools: it does not advance the store's time, because only servers check whether a clock can be
/// trusted.
#[derive(Clone, Copy, Debug, Default)]
pub struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn latest(&self) -> Time {
        Time::ZERO
    }
}

/// A clock set by hand, for the simulator and the conformance suite.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that shows this time.
    ///
    /// ```
    /// use tavern_domain::Time;
    /// use tavern_store::{Clock, ManualClock};
    ///
    /// let clock = ManualClock::at(Time(1_000));
    /// clock.advance(5);
    /// assert_eq!(clock.now(), Time(1_005));
    /// ```
    pub fn at(time: Time) -> ManualClock {
        ManualClock(AtomicU64::new(time.0))
    }

    /// Sets the time, also backwards: wrong clocks exist.
    pub fn set(&self, time: Time) {
        self.0.store(time.0, Ordering::SeqCst);
    }

    /// Moves the clock forward.
    pub fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }
}
