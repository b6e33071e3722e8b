//! Times in milliseconds since the Unix epoch. They are inputs; nothing here reads a clock.

use core::ops::{Add, Sub};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    pub fn ms(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was, in milliseconds; zero if it is in the future.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Time {
    type Output = Time;
    fn add(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms))
    }
}

impl Sub<u64> for Time {
    type Output = Time;
    fn sub(self, ms: u64) -> Time {
        Time(self.0.saturating_sub(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::NEVER + 1, Time::NEVER);
        assert_eq!(Time(3).since(Time(5)), 0);
        assert_eq!(Time(5).since(Time(3)), 2);
    }
}
