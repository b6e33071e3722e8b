//! Swarm testing: each seed has a random part of the faults and of the clients' actions. A run with everything rarely
//! reaches what needs many of one thing and none of another.

use crate::rng::Rng;
use crate::workload::Trouble;

/// The probability of each kind of action to be left out, in percent.
const LEFT_OUT: usize = 25;

/// The actions of clients that a run leaves out.
#[derive(Clone, Copy, Debug)]
pub struct Swarm {
    seed: u64,
}

impl Swarm {
    /// Chooses by the seed, and takes faults away.
    pub fn choose(seed: u64, trouble: &mut Trouble) -> Swarm {
        let mut rng = Rng::new(seed ^ 0x0005_7a12_0b1e);
        for kind in [&mut trouble.crash, &mut trouble.stop, &mut trouble.sleep, &mut trouble.cut] {
            // None, as usual, or much more often than the others.
            *kind *= [0, 0, 1, 4][rng.below(4)];
        }
        if trouble.crash + trouble.stop + trouble.sleep + trouble.cut == 0 {
            trouble.nodes = 0;
        }
        trouble.level *= rng.below(3);
        trouble.skew_ms *= rng.below(2) as u64;
        Swarm { seed: rng.number() }
    }

    /// Whether clients do this. They always connect and subscribe: without that nothing happens.
    pub fn allows(&self, action: &str) -> bool {
        let mut words = action.split(' ');
        let kind = match (words.next(), words.nth(1)) {
            (Some("client"), Some(verb)) => verb,
            (first, _) => first.unwrap_or_default(),
        };
        let mixed =
            kind.bytes().fold(self.seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        matches!(kind, "connect" | "subscribe") || !Rng::new(mixed).chance(LEFT_OUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Name;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_differ_in_faults_and_actions() {
        let mut rng = Rng::new(1);
        let trouble = Name::Presence.begin(&[], &mut rng).profile().trouble;
        let (mut faults, mut actions) = (BTreeSet::new(), BTreeSet::new());
        for seed in 0..200 {
            let mut own = trouble;
            let swarm = Swarm::choose(seed, &mut own);
            faults.insert([own.crash, own.stop, own.sleep, own.cut].map(|kind| kind > 0));
            actions
                .insert(["join", "leave", "watch"].map(|verb| swarm.allows(&format!("client 3 {verb} 0"))));
            assert!(swarm.allows("client 3 connect 0 0"));
            assert_eq!(swarm.allows("client 3 join 0 1"), swarm.allows("client 7 join 2 5"));
        }
        assert_eq!((faults.len(), actions.len()), (16, 8));
    }
}
