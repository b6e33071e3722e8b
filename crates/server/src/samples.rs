//! The metrics of the last two minutes, for the overview: one sample a second, the oldest dropped.
//! Must hold: values equal those of the metrics; the number of samples is bounded.

use crate::connections::Connections;
use crate::topics::TopicCounters;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tavern_hub::Node;
use tavern_hub::node::stats::Stats;
use tokio::time::MissedTickBehavior;

/// The time between two samples.
pub const STEP: Duration = Duration::from_secs(1);
/// Points of a line: two minutes. One sample more is kept, as a rate needs two.
const POINTS: usize = 120;

/// The sampled series. The first `RATES` are counters and shown per second, the others are gauges.
pub const NAMES: [&str; 9] = [
    "published",
    "delivered",
    "dropped",
    "commands",
    "events_accepted",
    "events_delivered",
    "attempts_failed",
    "connections",
    "sessions",
];
const RATES: usize = 7;

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    numbers: [u64; NAMES.len()],
}

#[derive(Default)]
pub struct Samples(Mutex<VecDeque<Sample>>);

impl Samples {
    fn add(&self, sample: Sample) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while samples.len() > POINTS {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Each name with its points, the oldest first.
    pub fn lines(&self) -> Vec<(&'static str, Vec<u64>)> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pairs = || samples.iter().zip(samples.iter().skip(1));
        let line = |at: usize| match at < RATES {
            true => pairs().map(|(before, now)| rate(before, now, at)).collect(),
            false => pairs().map(|(_, now)| now.numbers[at]).collect(),
        };
        NAMES.iter().enumerate().map(|(at, name)| (*name, line(at))).collect()
    }
}

/// The rate per second, rounded.
fn rate(before: &Sample, now: &Sample, at: usize) -> u64 {
    let ms = (now.at.duration_since(before.at).as_millis() as u64).max(1);
    let more = now.numbers[at].saturating_sub(before.numbers[at]);
    more.saturating_mul(1000).saturating_add(ms / 2) / ms
}

/// The sources of the samples.
pub struct Sampler {
    pub node: Arc<Node>,
    pub connections: Arc<Connections>,
    pub counters: Arc<TopicCounters>,
    pub samples: Arc<Samples>,
}

impl Sampler {
    /// Takes samples for as long as the server runs.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.samples.add(Sample { at: Instant::now(), numbers: self.numbers() });
        }
    }

    fn numbers(&self) -> [u64; NAMES.len()] {
        let sum = |pick: fn(&Stats) -> u64| self.node.stats.iter().map(|stats| pick(stats)).sum::<u64>();
        let events = self.counters.sums();
        [
            sum(|stats| stats.published.get()),
            sum(|stats| stats.delivered.get()),
            sum(|stats| stats.dropped_full.get() + stats.dropped_budget.get()),
            sum(|stats| stats.commands.get()),
            events.accepted,
            events.delivered,
            events.failed,
            self.connections.open() as u64,
            sum(|stats| stats.sessions.get()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(start: Instant, ms: u64, published: u64, sessions: u64) -> Sample {
        let mut numbers = [0; NAMES.len()];
        (numbers[0], numbers[NAMES.len() - 1]) = (published, sessions);
        Sample { at: start + Duration::from_millis(ms), numbers }
    }

    fn line(samples: &Samples, name: &str) -> Vec<u64> {
        samples.lines().into_iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn counters_become_rates_and_gauges_stay() {
        let (samples, start) = (Samples::default(), Instant::now());
        assert_eq!(line(&samples, "published"), [0; 0]);
        for (ms, published, sessions) in [(0, 5, 1), (1000, 15, 2), (3000, 35, 3), (4000, 35, 1)] {
            samples.add(sample(start, ms, published, sessions));
        }
        assert_eq!(line(&samples, "published"), [10, 10, 0]);
        assert_eq!(line(&samples, "sessions"), [2, 3, 1]);
    }

    #[test]
    fn two_minutes_are_kept() {
        let (samples, start) = (Samples::default(), Instant::now());
        for second in 0..500 {
            samples.add(sample(start, second * 1000, second, second));
        }
        let sessions = line(&samples, "sessions");
        assert_eq!((sessions.len(), sessions[0], sessions[119]), (120, 380, 499));
        assert_eq!(line(&samples, "published"), [1; 120]);
    }
}
