//! Exponential backoff with full jitter: a random wait below a bound that doubles, so that clients do not reconnect all at once.
//! Must hold: the upper limit never exceeds `MAX_WAIT`; the wait is at least what the server asked for.

use ring::rand::{SecureRandom, SystemRandom};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// `chance` is a random number in 0…1.
    pub fn next(&mut self, chance: f64, at_least_ms: Option<u64>) -> Duration {
        let bound = FIRST.saturating_mul(1 << self.tries.min(16)).min(MAX_WAIT);
        self.tries = self.tries.saturating_add(1);
        bound.mul_f64(chance) + Duration::from_millis(at_least_ms.unwrap_or(0))
    }

    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

/// A random number in 0…1.
pub(crate) fn chance() -> f64 {
    f64::from(u32::from_le_bytes(random())) / f64::from(u32::MAX)
}

/// Cryptographically random bytes.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_most() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..9).map(|_| backoff.next(1.0, None).as_millis()).collect();
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000]);
        backoff.reset();
        assert_eq!(backoff.next(1.0, Some(1_000)).as_millis(), 1_250);
        assert_eq!(backoff.next(0.0, Some(1_500)).as_millis(), 1_500);
    }

    #[test]
    fn weeks_of_trying_do_not_overflow() {
        let mut backoff = Backoff { tries: u32::MAX };
        assert_eq!(backoff.next(1.0, None), MAX_WAIT);
    }

    #[test]
    fn chances_are_spread() {
        let mean = (0..2_000).map(|_| chance()).sum::<f64>() / 2_000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
