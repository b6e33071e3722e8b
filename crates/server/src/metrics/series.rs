//! One metric with its rows, one per set of labels. Independent of output formats. Units are those of Prometheus:
//! seconds and bytes.

use std::sync::Arc;
use tavern_hub::node::histogram::{BOUNDS_US, LatencyCounts};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the server runs.
    Counter,
    Gauge,
    /// Rows `_bucket`, `_sum` and `_count`; they only grow.
    Histogram,
    /// Rows `_sum` and `_count`; they only grow.
    Summary,
}

impl MetricKind {
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
        }
    }
}

pub type Label = (&'static str, Arc<str>);

/// One number.
#[derive(Clone, Debug)]
pub struct SeriesRow {
    /// What follows the name of the metric: nothing, `_bucket`, `_sum` or `_count`.
    pub suffix: &'static str,
    pub labels: Vec<Label>,
    pub value: f64,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
    pub rows: Vec<SeriesRow>,
}

impl Series {
    pub fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Series {
        Series { name, kind, help, rows: Vec::new() }
    }

    pub fn one(name: &'static str, kind: MetricKind, help: &'static str, value: u64) -> Series {
        let mut series = Series::new(name, kind, help);
        series.add([], value);
        series
    }

    pub fn add(&mut self, labels: impl IntoIterator<Item = Label>, value: u64) {
        self.push("", labels, value as f64);
    }

    pub fn add_seconds(&mut self, labels: impl IntoIterator<Item = Label>, ms: u64) {
        self.push("", labels, ms as f64 / 1e3);
    }

    /// A histogram of one set of labels.
    pub fn add_latencies(&mut self, labels: &[Label], counts: &LatencyCounts) {
        let mut below = 0;
        let bounds = BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string()).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(counts.buckets) {
            below += count;
            let labels = labels.iter().cloned().chain([("le", bound.into())]);
            self.push("_bucket", labels, below as f64);
        }
        self.push("_sum", labels.iter().cloned(), counts.sum_us as f64 / 1e6);
        self.push("_count", labels.iter().cloned(), below as f64);
    }

    /// The sum and the number of durations of one set of labels.
    pub fn add_summary(&mut self, labels: &[Label], sum_ms: u64, count: u64) {
        self.push("_sum", labels.iter().cloned(), sum_ms as f64 / 1e3);
        self.push("_count", labels.iter().cloned(), count as f64);
    }

    /// Replaces rows by topic and subscription with one for all of them: the sum, or the largest age.
    pub fn merge_names(&mut self) {
        let is_name = |label: &Label| matches!(label.0, "topic" | "subscription");
        if !self.rows.iter().any(|row| row.labels.iter().any(is_name)) {
            return;
        }
        let takes_largest = self.kind == MetricKind::Gauge && self.name.ends_with("_seconds");
        let mut merged: Vec<SeriesRow> = Vec::new();
        for mut row in std::mem::take(&mut self.rows) {
            row.labels.retain(|label| !is_name(label));
            let same = |known: &&mut SeriesRow| known.suffix == row.suffix && known.labels == row.labels;
            match merged.iter_mut().find(same) {
                Some(known) if takes_largest => known.value = known.value.max(row.value),
                Some(known) => known.value += row.value,
                None => merged.push(row),
            }
        }
        self.rows = merged;
    }

    fn push(&mut self, suffix: &'static str, labels: impl IntoIterator<Item = Label>, value: f64) {
        self.rows.push(SeriesRow { suffix, labels: labels.into_iter().collect(), value });
    }

    /// The name of a row in the format of Prometheus.
    pub fn named(&self, row: &SeriesRow) -> String {
        let (name, suffix) = (self.name, row.suffix);
        if row.labels.is_empty() {
            return format!("{name}{suffix}");
        }
        let labels: Vec<String> = row.labels.iter().map(|(name, of)| format!("{name}=\"{of}\"")).collect();
        format!("{name}{suffix}{{{}}}", labels.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_name_become_one() {
        let shown = |series: &mut Series| -> Vec<String> {
            series.merge_names();
            series.rows.iter().map(|row| format!("{} {}", series.named(row), row.value)).collect()
        };
        let label = |name: &'static str, of: &str| (name, of.into());
        let mut counter = Series::new("x_total", MetricKind::Counter, "X");
        counter.add([label("subscription", "a"), label("outcome", "done")], 1);
        counter.add([label("subscription", "b"), label("outcome", "done")], 2);
        counter.add([label("subscription", "b"), label("outcome", "failed")], 4);
        assert_eq!(shown(&mut counter), ["x_total{outcome=\"done\"} 3", "x_total{outcome=\"failed\"} 4"]);
        let mut age = Series::new("x_seconds", MetricKind::Gauge, "X");
        age.add_seconds([label("subscription", "a")], 2_500);
        age.add_seconds([label("subscription", "b")], 500);
        assert_eq!(shown(&mut age), ["x_seconds 2.5"]);
    }

    #[test]
    fn buckets_are_cumulative_and_in_seconds() {
        let mut counts = LatencyCounts { sum_us: 12_000_400, ..LatencyCounts::default() };
        (counts.buckets[0], counts.buckets[2], counts.buckets[16]) = (1, 2, 1);
        let mut series = Series::new("tavern_x_seconds", MetricKind::Histogram, "X");
        series.add_latencies(&[("op", "a".into())], &counts);
        let shown: Vec<String> =
            series.rows.iter().map(|row| format!("{} {}", series.named(row), row.value)).collect();
        assert_eq!(shown[0], "tavern_x_seconds_bucket{op=\"a\",le=\"0.0001\"} 1");
        assert_eq!(shown[2], "tavern_x_seconds_bucket{op=\"a\",le=\"0.0005\"} 3");
        assert_eq!(shown[15], "tavern_x_seconds_bucket{op=\"a\",le=\"10\"} 3");
        assert_eq!(shown[16], "tavern_x_seconds_bucket{op=\"a\",le=\"+Inf\"} 4");
        assert_eq!(shown[17], "tavern_x_seconds_sum{op=\"a\"} 12.0004");
        assert_eq!(shown[18], "tavern_x_seconds_count{op=\"a\"} 4");
    }
}
