//! The only source of randomness in a run: a seed gives the same numbers on every machine.

use tavern_hub::RandomSource;

/// SplitMix64: small, uniform, and good enough to choose the next action.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0);
        (self.number() % n as u64) as usize
    }

    /// True with a probability of `percent`.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub fn fork(&mut self) -> Rng {
        Rng(self.number())
    }
}

impl RandomSource for Rng {
    fn next(&mut self) -> u128 {
        u128::from(self.number()) << 64 | u128::from(self.number())
    }
}
