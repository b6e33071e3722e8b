//! How long to wait after an attempt in vain. Belongs to the subscription, not to a batch: an endpoint is broken as a whole.
//! Must hold: the first retry is quick; no wait is longer than `backoff_max_ms`, or an hour if the endpoint asks for it; two
//! attempts in vain never follow each other at once.

use crate::time::Time;

/// The longest `Retry-After` that is honoured: a slip of an endpoint's pen must not hold a queue for a year.
pub const RETRY_AFTER_MAX_MS: u64 = 3_600_000;
/// A quick retry waits between half of this and this, and never longer than `backoff_min_ms`.
pub const QUICK_MS: u64 = 200;

/// What the server grants every endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    pub backoff_min_ms: u64,
    pub backoff_max_ms: u64,
    /// After so long of nothing but failures a subscription is disabled; 0: never.
    pub disable_after_ms: u64,
}

/// What is known of an endpoint that did not take the last attempt. While there is any, the oldest batch is probed alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// Since when there is nothing but failures. None: it only asks for patience.
    pub failing_since: Option<Time>,
    /// Attempts in vain in a row, as far as the backoff counts them.
    pub failures: u32,
    pub retry_at: Time,
}

impl Patience {
    /// The wait before a retry that must not be slow.
    pub(super) fn quick_ms(&self, roll: u64) -> u64 {
        within(self.least_ms(), QUICK_MS.min(self.backoff_min_ms), roll)
    }

    /// The wait after so many failures: full jitter under a ceiling that doubles.
    pub(super) fn backoff_ms(&self, failures: u32, roll: u64) -> u64 {
        let Some(doublings) = failures.checked_sub(2) else { return self.quick_ms(roll) };
        let ceiling = self.backoff_min_ms.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX));
        within(self.least_ms(), ceiling.min(self.backoff_max_ms), roll)
    }

    /// As long as the endpoint asks for.
    pub(super) fn throttle_ms(&self, after_ms: u64) -> u64 {
        after_ms.min(RETRY_AFTER_MAX_MS).max(self.least_ms())
    }

    pub(super) fn gives_up(&self, now: Time, failing_since: Time) -> bool {
        self.disable_after_ms > 0 && now.since(failing_since) >= self.disable_after_ms
    }

    /// The latest retry that can have been meant: a clock that was ahead must not stop a queue.
    pub(super) fn latest(&self, now: Time) -> Time {
        now + self.backoff_max_ms.max(RETRY_AFTER_MAX_MS)
    }

    fn least_ms(&self) -> u64 {
        QUICK_MS.min(self.backoff_min_ms).div_ceil(2)
    }
}

fn within(least: u64, most: u64, roll: u64) -> u64 {
    least + roll % most.saturating_sub(least).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Patience = Patience { backoff_min_ms: 1_000, backoff_max_ms: 600_000, disable_after_ms: 5 };

    #[test]
    fn the_first_retry_is_quick_and_the_ceiling_doubles_up_to_the_longest() {
        for (failures, least, most) in [
            (0, 100, 200),
            (1, 100, 200),
            (2, 100, 1_000),
            (3, 100, 2_000),
            (6, 100, 16_000),
            (12, 100, 600_000),
        ] {
            let waits = |roll| USUAL.backoff_ms(failures, roll);
            assert_eq!((waits(0), waits(most - least)), (least, most), "{failures}");
            assert_eq!(waits(most - least + 1), least, "{failures}");
        }
        assert!((64..200).all(|failures| USUAL.backoff_ms(failures, u64::MAX) <= 600_000));
        let hasty = Patience { backoff_min_ms: 10, backoff_max_ms: 20, disable_after_ms: 0 };
        assert_eq!((hasty.quick_ms(5), hasty.backoff_ms(9, 15)), (10, 20));
        let rash = Patience { backoff_min_ms: 0, backoff_max_ms: 0, disable_after_ms: 0 };
        assert_eq!(rash.backoff_ms(9, 15), 0);
    }

    #[test]
    fn an_endpoint_is_given_the_time_it_asks_for_within_reason() {
        assert_eq!([0, 7_000, u64::MAX].map(|ms| USUAL.throttle_ms(ms)), [100, 7_000, RETRY_AFTER_MAX_MS]);
    }

    #[test]
    fn patience_ends_when_it_should_and_not_if_it_never_does() {
        assert_eq!([14, 15].map(|now| USUAL.gives_up(Time(now), Time(10))), [false, true]);
        assert!(!Patience { disable_after_ms: 0, ..USUAL }.gives_up(Time::NEVER, Time(10)));
    }
}
