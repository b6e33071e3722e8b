//! How long to wait after a failed attempt. The backoff belongs to the subscription, not to a batch: an endpoint fails as a
//! whole. Must hold: the first retry is quick; no wait exceeds `backoff_max_ms`, or an hour if the endpoint asks for it; there
//! is always a wait between two failed attempts.

use crate::time::Time;

/// The longest `Retry-After` that is honoured: a mistake of an endpoint must not stop a queue for a year.
pub const RETRY_AFTER_MAX_MS: u64 = 3_600_000;
/// A quick retry waits between half of this and this, and never longer than `backoff_min_ms`.
pub const QUICK_MS: u64 = 200;

/// The retry policy of the server, the same for every endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub backoff_min_ms: u64,
    pub backoff_max_ms: u64,
    /// A subscription is disabled after this long with nothing but failures; 0: never.
    pub disable_after_ms: u64,
}

/// The state of an endpoint whose last attempt failed. Until it recovers, only the oldest batch is sent, as a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointFailure {
    /// Since when every attempt has failed. `None`: the endpoint is throttling.
    pub failing_since: Option<Time>,
    /// Failed attempts in a row, as the backoff counts them.
    pub failures: u32,
    pub retry_at: Time,
    /// Single events that became dead letters since the endpoint accepted something.
    pub refused_in_row: u32,
}

/// Single events in a row that are refused before the endpoint counts as broken: then events wait, and no more of them become
/// dead letters.
pub const REFUSED_IN_ROW: u32 = 10;

/// How soon to retry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Backoff,
    /// The search for a bad event takes a dozen refused attempts, which say nothing about the endpoint.
    Quick,
}

impl EndpointFailure {
    /// It refuses whatever it gets, so the fault is not in the events.
    pub fn refuses_everything(&self) -> bool {
        self.refused_in_row >= REFUSED_IN_ROW
    }

    /// An attempt failed. Returns since when every attempt has failed.
    pub(super) fn fail(&mut self, now: Time, policy: &RetryPolicy, pace: Pace, random: u64) -> Time {
        let wait_ms = match pace {
            Pace::Quick => policy.quick_ms(random),
            Pace::Backoff => {
                self.failures = self.failures.saturating_add(1);
                policy.backoff_ms(self.failures, random)
            }
        };
        self.retry_at = now + wait_ms;
        *self.failing_since.get_or_insert(now)
    }

    /// The endpoint asked for a pause, with or without a time. It answered, so not every attempt has failed.
    pub(super) fn throttle(
        &mut self,
        now: Time,
        policy: &RetryPolicy,
        after_ms: Option<u64>,
        fresh: bool,
        random: u64,
    ) {
        self.failing_since = None;
        let asked = after_ms.map(|ms| now + policy.throttle_ms(ms));
        if !fresh {
            self.retry_at = self.retry_at.max(asked.unwrap_or(Time::ZERO));
            return;
        }
        self.retry_at = asked.unwrap_or_else(|| {
            self.failures = self.failures.saturating_add(1);
            now + policy.backoff_ms(self.failures, random)
        });
    }
}

impl RetryPolicy {
    /// The wait before a quick retry.
    pub(super) fn quick_ms(&self, random: u64) -> u64 {
        within(self.least_ms(), QUICK_MS.min(self.backoff_min_ms), random)
    }

    /// The wait after this many failures: full jitter below a ceiling that doubles.
    pub(super) fn backoff_ms(&self, failures: u32, random: u64) -> u64 {
        let Some(doublings) = failures.checked_sub(2) else { return self.quick_ms(random) };
        let ceiling = self.backoff_min_ms.saturating_mul(1u64.checked_shl(doublings).unwrap_or(u64::MAX));
        within(self.least_ms(), ceiling.min(self.backoff_max_ms), random)
    }

    /// The wait that an endpoint asked for, within limits.
    pub(super) fn throttle_ms(&self, after_ms: u64) -> u64 {
        after_ms.min(RETRY_AFTER_MAX_MS).max(self.least_ms())
    }

    pub(super) fn gives_up(&self, now: Time, failing_since: Time) -> bool {
        self.disable_after_ms > 0 && now.since(failing_since) >= self.disable_after_ms
    }

    /// The latest allowed time of a retry: a stored time from a clock that was ahead must not stop a queue.
    pub(super) fn latest(&self, now: Time) -> Time {
        now + self.backoff_max_ms.max(RETRY_AFTER_MAX_MS)
    }

    fn least_ms(&self) -> u64 {
        QUICK_MS.min(self.backoff_min_ms).div_ceil(2)
    }
}

fn within(least: u64, max: u64, random: u64) -> u64 {
    least + random % max.saturating_sub(least).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy =
        RetryPolicy { backoff_min_ms: 1_000, backoff_max_ms: 600_000, disable_after_ms: 5 };

    #[test]
    fn the_first_retry_is_quick_and_the_ceiling_doubles_up_to_the_maximum() {
        for (failures, least, max) in [
            (0, 100, 200),
            (1, 100, 200),
            (2, 100, 1_000),
            (3, 100, 2_000),
            (6, 100, 16_000),
            (12, 100, 600_000),
        ] {
            let waits = |random| POLICY.backoff_ms(failures, random);
            assert_eq!((waits(0), waits(max - least)), (least, max), "{failures}");
            assert_eq!(waits(max - least + 1), least, "{failures}");
        }
        assert!((64..200).all(|failures| POLICY.backoff_ms(failures, u64::MAX) <= 600_000));
        let hasty = RetryPolicy { backoff_min_ms: 10, backoff_max_ms: 20, disable_after_ms: 0 };
        assert_eq!((hasty.quick_ms(5), hasty.backoff_ms(9, 15)), (10, 20));
        let rash = RetryPolicy { backoff_min_ms: 0, backoff_max_ms: 0, disable_after_ms: 0 };
        assert_eq!(rash.backoff_ms(9, 15), 0);
    }

    #[test]
    fn a_retry_after_is_honoured_within_limits() {
        assert_eq!([0, 7_000, u64::MAX].map(|ms| POLICY.throttle_ms(ms)), [100, 7_000, RETRY_AFTER_MAX_MS]);
    }

    #[test]
    fn a_subscription_is_given_up_after_the_configured_time_or_never() {
        assert_eq!([14, 15].map(|now| POLICY.gives_up(Time(now), Time(10))), [false, true]);
        assert!(!RetryPolicy { disable_after_ms: 0, ..POLICY }.gives_up(Time::NEVER, Time(10)));
    }
}
