//! Latencies in fixed buckets. Must hold: `observe` has one writer and costs a few plain instructions; readers on other
//! threads see each counter whole, and the sum of several shards is made by the reader.

use super::stats::Counter;

/// The upper bounds of the buckets in microseconds; one more bucket holds everything above.
pub const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
}

impl Histogram {
    /// Adds a latency. Only one thread may call this.
    pub fn observe(&self, us: u64) {
        self.buckets[bucket(us)].add(1);
        self.sum_us.add(us);
    }

    /// Adds a latency, from any thread.
    pub fn observe_shared(&self, us: u64) {
        self.buckets[bucket(us)].add_shared(1);
        self.sum_us.add_shared(us);
    }

    /// Adds what it holds to a sum.
    pub fn add_to(&self, sum: &mut LatencyCounts) {
        for (sum, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        sum.sum_us += self.sum_us.get();
    }
}

/// The bucket whose bound is the first that is not below the latency.
fn bucket(us: u64) -> usize {
    BOUNDS_US.partition_point(|bound| *bound < us)
}

/// Histograms of several writers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    /// Not cumulative.
    pub buckets: [u64; BOUNDS_US.len() + 1],
    pub sum_us: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_first_bucket_that_holds_it() {
        for (us, expected) in [(0, 0), (100, 0), (101, 1), (1_000, 3), (10_000_000, 15), (10_000_001, 16)] {
            assert_eq!(bucket(us), expected, "{us}");
        }
    }

    #[test]
    fn the_histograms_of_several_shards_add_up() {
        let (one, two) = (Histogram::default(), Histogram::default());
        one.observe(50);
        two.observe(60);
        two.observe_shared(u64::from(u32::MAX));
        let mut sum = LatencyCounts::default();
        one.add_to(&mut sum);
        two.add_to(&mut sum);
        assert_eq!((sum.buckets[0], sum.buckets[16]), (2, 1));
        assert_eq!(sum.sum_us, 110 + u64::from(u32::MAX));
    }
}
