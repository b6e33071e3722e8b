//! A token bucket for rate limits. Time is an input.
//! Must hold: within any t ms at most `burst + t * per_second / 1000` takes succeed.

use crate::time::Time;

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    pub per_second: u32,
    pub burst: u32,
}

/// The state of one bucket. It counts thousandths of a token, so that slow rates refill evenly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    spent_milli: u64,
    at: Time,
}

impl Allowance {
    /// A rate with bursts of twice as many.
    pub fn with_burst(per_second: u32) -> Allowance {
        Allowance { per_second, burst: per_second.saturating_mul(2) }
    }
}

impl Bucket {
    /// Returns a token that was taken for something that need not count.
    pub fn give_back(&mut self) {
        self.spent_milli = self.spent_milli.saturating_sub(1000);
    }

    /// When a token was last taken.
    pub fn used_at(&self) -> Time {
        self.at
    }

    /// Takes one token. The error is the number of milliseconds until there is one.
    pub fn take(&mut self, now: Time, allowance: Allowance) -> Result<(), u64> {
        let rate = u64::from(allowance.per_second.max(1));
        let refill = now.since(self.at).saturating_mul(rate);
        self.spent_milli = self.spent_milli.saturating_sub(refill);
        self.at = self.at.max(now);
        let room = u64::from(allowance.burst.max(1)) * 1000;
        if self.spent_milli + 1000 > room {
            let missing = self.spent_milli + 1000 - room;
            return Err(missing.div_ceil(rate).max(1));
        }
        self.spent_milli += 1000;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Allowance = Allowance { per_second: 10, burst: 3 };

    #[test]
    fn a_burst_passes_and_the_next_gets_a_retry_time() {
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.take(Time(1_000_000), FEW), Ok(()));
        }
        let wait = bucket.take(Time(1_000_000), FEW).unwrap_err();
        assert_eq!(wait, 100);
        assert!(bucket.take(Time(1_000_099), FEW).is_err());
        assert_eq!(bucket.take(Time(1_000_100), FEW), Ok(()));
    }

    #[test]
    fn a_token_that_is_given_back_can_be_taken_again() {
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            bucket.take(Time(5_000), FEW).unwrap();
        }
        bucket.give_back();
        assert_eq!(bucket.take(Time(5_000), FEW), Ok(()));
        assert!(bucket.take(Time(5_000), FEW).is_err());
    }

    #[test]
    fn clock_that_goes_back_adds_no_tokens() {
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            bucket.take(Time(5_000), FEW).unwrap();
        }
        assert!(bucket.take(Time(1_000), FEW).is_err());
        assert!(bucket.take(Time(5_000), FEW).is_err());
    }
}
