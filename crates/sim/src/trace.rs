//! The trace of a run: a hash that two equal runs share, and optionally a printed log.

use tavern_domain::Time;

/// The start of the clock of every run.
pub const BEGINS: Time = Time(1_700_000_000_000);

#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    print: bool,
}

impl Trace {
    pub fn new(seed: u64, print: bool) -> Trace {
        Trace { hash: seed, print }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Mixes a fact of the run into its hash.
    pub fn note(&mut self, fact: u64) {
        self.hash = (self.hash ^ fact).wrapping_mul(0x100_0000_01b3).rotate_left(7);
    }

    /// Prints a line if the run is traced.
    pub fn say(&self, now: Time, line: impl FnOnce() -> String) {
        if self.print {
            println!("{:>7} {}", now.since(BEGINS), line());
        }
    }
}
