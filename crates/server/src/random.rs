//! Random bytes for ids and secrets, from the operating system, through the crypto library.

use ring::rand::SecureRandom;
use tavern_hub::RandomSource;

/// Lower case, safe in URLs, headers and shells, without the look-alikes i, l, o and u.
const DIGITS: &[u8; 32] = b"0123456789bcdfghjkmnpqrstvwxyzae";

/// Text of five random bits a character.
pub fn random_text(chars: usize) -> String {
    let mut bytes = vec![0u8; chars];
    fill_random(&mut bytes);
    bytes.iter().map(|byte| char::from(DIGITS[usize::from(byte & 31)])).collect()
}

/// Bits for the ids of the domain.
pub fn random_bits() -> u128 {
    let mut bytes = [0u8; 16];
    fill_random(&mut bytes);
    u128::from_le_bytes(bytes)
}

pub fn fill_random(bytes: &mut [u8]) {
    // Without randomness secrets would be guessable: exit instead.
    ring::rand::SystemRandom::new().fill(bytes).expect("the operating system gives random bytes");
}

/// The system's random source, buffered: each call to it costs a microsecond.
pub struct SystemRandom {
    pool: [u8; 1024],
    used: usize,
}

impl Default for SystemRandom {
    fn default() -> SystemRandom {
        SystemRandom { pool: [0; 1024], used: 1024 }
    }
}

impl RandomSource for SystemRandom {
    fn next(&mut self) -> u128 {
        if self.used == self.pool.len() {
            fill_random(&mut self.pool);
            self.used = 0;
        }
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.pool[self.used..self.used + 16]);
        // Used bytes are cleared: no secret stays in memory.
        self.pool[self.used..self.used + 16].fill(0);
        self.used += 16;
        u128::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_differ_and_have_their_length() {
        assert_eq!(random_text(40).len(), 40);
        assert_ne!(random_text(40), random_text(40));
        assert_ne!(random_bits(), random_bits());
        let mut random = SystemRandom::default();
        let rolls: std::collections::BTreeSet<u128> = (0..200).map(|_| random.next()).collect();
        assert_eq!(rolls.len(), 200, "no bytes are used twice");
    }
}
