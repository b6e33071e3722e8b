//! Random numbers from the system.

use ring::rand::{SecureRandom, SystemRandom};

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
    fn chances_are_spread() {
        let mean = (0..2_000).map(|_| chance()).sum::<f64>() / 2_000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
