//! What goes wrong between the nodes and their engines: delays, failures with and without an effect, losses, copies,
//! nodes that are cut off. In calm weather everything works, with small delays.

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_engine::memory::{Faults, Outcome, ParcelFate, WorkFate};
use tavern_engine::{Parcel, Work};

#[derive(Clone)]
pub struct Weather(Arc<Mutex<Sky>>);

pub struct Sky {
    rng: Rng,
    /// In percent: how often something goes wrong.
    pub rough: usize,
    /// What a node cannot reach.
    pub cut: BTreeMap<String, Cut>,
    /// The bus loses this many of a hundred parcels besides.
    pub deaf: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    pub store: bool,
    /// The store does not refuse: it is silent for this long.
    pub silent_ms: u64,
    pub bus: bool,
}

impl Weather {
    pub fn new(rng: Rng) -> Weather {
        Weather(Arc::new(Mutex::new(Sky { rng, rough: 0, cut: BTreeMap::new(), deaf: 0 })))
    }

    pub fn sky(&self) -> MutexGuard<'_, Sky> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sky {
    fn delay(&mut self) -> u64 {
        match self.rng.below(100) {
            0..60 => self.rng.below(3) as u64,
            60..95 => self.rng.below(20) as u64,
            _ if self.rough > 0 => self.rng.below(1_500) as u64,
            _ => self.rng.below(60) as u64,
        }
    }
}

impl Faults for Weather {
    fn work(&mut self, node: &str, _work: &Work) -> WorkFate {
        let mut sky = self.sky();
        let (before_ms, after_ms) = (sky.delay(), sky.delay());
        let cut = sky.cut.get(node).copied().unwrap_or_default();
        if cut.store {
            let outcome = if cut.silent_ms > 0 { Outcome::Perform } else { Outcome::FailBefore };
            return WorkFate { before_ms: before_ms + cut.silent_ms, outcome, after_ms };
        }
        let rough = sky.rough;
        let outcome = match sky.rng.below(200) {
            n if n < rough => Outcome::FailBefore,
            n if n < rough * 2 => Outcome::FailAfter,
            _ => Outcome::Perform,
        };
        WorkFate { before_ms, outcome, after_ms }
    }

    fn parcel(&mut self, from: &str, to: &str, _parcel: &Parcel) -> ParcelFate {
        let mut sky = self.sky();
        let cut = [from, to].iter().any(|name| sky.cut.get(*name).is_some_and(|cut| cut.bus));
        let rough = sky.rough;
        let lossy = rough + sky.deaf;
        if cut || sky.rng.below(100) < lossy {
            return ParcelFate::lost();
        }
        let mut copies = vec![sky.delay()];
        if sky.rng.below(100) < rough {
            copies.push(sky.rng.below(8_000) as u64);
        }
        ParcelFate { copies, told: false }
    }

    fn subscribe(&mut self, node: &str) -> Option<u64> {
        let mut sky = self.sky();
        let refused = sky.cut.get(node).is_some_and(|cut| cut.bus) || sky.rng.below(100) < sky.rough;
        (!refused).then(|| sky.delay())
    }
}
