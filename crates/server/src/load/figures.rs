//! The figures of a node's load: their names, how they are made of two readings, and how those of several nodes become one of
//! the cluster.

use std::time::Instant;
use tavern_hub::node::histogram::{BOUNDS_US, LatencyCounts};

/// What the cluster has of a figure, when each node has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    Sum,
    Largest,
    Smallest,
}

/// Counters, shown per second.
pub const RATES: usize = 7;
const CPU: usize = RATES;
const LATENCIES: usize = CPU + 1;
const LEVELS: usize = LATENCIES + 4;
pub const FIGURES: usize = LEVELS + LEVEL_NAMES;
/// Figures that are what they are at a moment.
pub const LEVEL_NAMES: usize = 13;

pub const USERS_ONLINE: usize = LEVELS;
const OLDEST_EVENT: usize = LEVELS + 9;

pub const NAMES: [(&str, Combine); FIGURES] = [
    ("published", Combine::Sum),
    ("delivered", Combine::Sum),
    ("dropped", Combine::Sum),
    ("commands", Combine::Sum),
    ("events_accepted", Combine::Sum),
    ("events_delivered", Combine::Sum),
    ("attempts_failed", Combine::Sum),
    ("cpu_percent", Combine::Largest),
    ("delivery_p50_ms", Combine::Largest),
    ("delivery_p99_ms", Combine::Largest),
    ("store_p99_ms", Combine::Largest),
    ("bus_p99_ms", Combine::Largest),
    // The store has counted them for the whole cluster.
    ("users_online", Combine::Largest),
    ("users", Combine::Sum),
    ("sessions", Combine::Sum),
    ("websocket", Combine::Sum),
    ("sse", Combine::Sum),
    ("poll", Combine::Sum),
    ("redis", Combine::Sum),
    ("channels", Combine::Sum),
    ("events_queued", Combine::Sum),
    ("oldest_event_ms", Combine::Largest),
    ("memory_bytes", Combine::Largest),
    ("disk_free_bytes", Combine::Smallest),
    ("clock_offset_ms", Combine::Largest),
];

/// The figures of one step; not a number: not known.
pub type Point = [f32; FIGURES];

pub const UNKNOWN: Point = [f32::NAN; FIGURES];

/// What the node has counted until a moment.
#[derive(Clone, Debug)]
pub struct LoadReading {
    pub at: Instant,
    pub counters: [u64; RATES],
    /// None: the system does not tell.
    pub cpu_ms: Option<u64>,
    /// Publish to delivery, store, bus.
    pub latencies: [LatencyCounts; 3],
    /// In the order of the names.
    pub levels: [f32; LEVEL_NAMES],
}

impl LoadReading {
    /// The figures of the time since an earlier reading.
    pub fn since(&self, before: &LoadReading) -> Point {
        let mut point = UNKNOWN;
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
        let more = |now: u64, before: u64| now.saturating_sub(before) as f64;
        for (at, figure) in point[..RATES].iter_mut().enumerate() {
            *figure = (more(self.counters[at], before.counters[at]) / seconds) as f32;
        }
        if let (Some(now), Some(before)) = (self.cpu_ms, before.cpu_ms) {
            point[CPU] = (more(now, before) / 10.0 / seconds) as f32;
        }
        let [delivery, store, bus] =
            std::array::from_fn(|at| Increase::new(&before.latencies[at], &self.latencies[at]));
        point[LATENCIES] = delivery.quantile_ms(0.5);
        point[LATENCIES + 1] = delivery.quantile_ms(0.99);
        point[LATENCIES + 2] = store.quantile_ms(0.99);
        point[LATENCIES + 3] = bus.quantile_ms(0.99);
        point[LEVELS..].copy_from_slice(&self.levels);
        point
    }

    /// The age of the oldest event: its largest value of a step is kept.
    pub fn oldest_event_ms(&self) -> f32 {
        self.levels[OLDEST_EVENT - LEVELS]
    }
}

pub fn set_oldest_event(point: &mut Point, ms: f32) {
    point[OLDEST_EVENT] = ms;
}

/// The latencies between two readings.
struct Increase([u64; BOUNDS_US.len() + 1]);

impl Increase {
    fn new(before: &LatencyCounts, now: &LatencyCounts) -> Increase {
        Increase(std::array::from_fn(|at| now.buckets[at].saturating_sub(before.buckets[at])))
    }

    /// Between the bounds of its bucket, as Prometheus does. Not a number: there was no latency.
    fn quantile_ms(&self, quantile: f64) -> f32 {
        let total: u64 = self.0.iter().sum();
        if total == 0 {
            return f32::NAN;
        }
        let rank = quantile * total as f64;
        let mut below = 0.0;
        for (at, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= rank {
                let lower = if at == 0 { 0 } else { BOUNDS_US[at - 1] } as f64;
                let upper = *BOUNDS_US.get(at).unwrap_or(&BOUNDS_US[BOUNDS_US.len() - 1]) as f64;
                return ((lower + (upper - lower) * (rank - below) / count) / 1e3) as f32;
            }
            below += count;
        }
        BOUNDS_US[BOUNDS_US.len() - 1] as f32 / 1e3
    }
}

/// The figure of the cluster; not a number: no node knows it.
pub fn combine(how: Combine, figures: impl Iterator<Item = f32>) -> f32 {
    let known = figures.filter(|figure| !figure.is_nan());
    let merge = |one: f32, other: f32| match how {
        Combine::Sum => one + other,
        Combine::Largest => one.max(other),
        Combine::Smallest => one.min(other),
    };
    known.reduce(merge).unwrap_or(f32::NAN)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::time::Duration;

    /// A reading with equal counters and levels.
    pub fn reading(start: Instant, ms: u64, counter: u64, level: f32) -> LoadReading {
        LoadReading {
            at: start + Duration::from_millis(ms),
            counters: [counter; RATES],
            cpu_ms: Some(counter),
            latencies: Default::default(),
            levels: [level; LEVEL_NAMES],
        }
    }

    #[test]
    fn counters_become_rates_and_levels_stay() {
        let start = Instant::now();
        let point = reading(start, 2_000, 30, 7.0).since(&reading(start, 0, 10, 3.0));
        assert_eq!((point[0], point[CPU], point[USERS_ONLINE]), (10.0, 1.0, 7.0));
        assert!(point[LATENCIES].is_nan(), "there was no latency");
        assert_eq!(NAMES[OLDEST_EVENT].0, "oldest_event_ms");
    }

    #[test]
    fn a_quantile_lies_between_the_bounds_of_its_bucket() {
        let mut now = LatencyCounts::default();
        // 98 within 0.1 ms, two between 5 and 10 ms.
        (now.buckets[0], now.buckets[6]) = (98, 2);
        let increase = Increase::new(&LatencyCounts::default(), &now);
        assert!(increase.quantile_ms(0.5) <= 0.1);
        assert_eq!(increase.quantile_ms(0.99), 7.5);
        now.buckets[16] = 1_000;
        assert_eq!(Increase::new(&LatencyCounts::default(), &now).quantile_ms(0.99), 10_000.0);
    }

    #[test]
    fn what_a_node_does_not_know_does_not_count() {
        let figures = || [f32::NAN, 3.0, 5.0].into_iter();
        assert_eq!(combine(Combine::Sum, figures()), 8.0);
        assert_eq!(combine(Combine::Largest, figures()), 5.0);
        assert_eq!(combine(Combine::Smallest, figures()), 3.0);
        assert!(combine(Combine::Sum, [f32::NAN].into_iter()).is_nan());
    }
}
