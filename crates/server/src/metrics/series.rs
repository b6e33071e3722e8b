//! One metric with its rows, one per set of labels. Independent of output formats.

use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows while the server runs.
    Counter,
    Gauge,
}

impl MetricKind {
    pub fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

pub type Label = (&'static str, Arc<str>);

#[derive(Clone, Debug)]
pub struct Series {
    pub name: &'static str,
    pub kind: MetricKind,
    pub help: &'static str,
    pub rows: Vec<(Vec<Label>, u64)>,
}

impl Series {
    pub fn new(name: &'static str, kind: MetricKind, help: &'static str) -> Series {
        Series { name, kind, help, rows: Vec::new() }
    }

    pub fn one(name: &'static str, kind: MetricKind, help: &'static str, value: u64) -> Series {
        Series { rows: vec![(Vec::new(), value)], ..Series::new(name, kind, help) }
    }

    pub fn add(&mut self, labels: impl IntoIterator<Item = Label>, value: u64) {
        self.rows.push((labels.into_iter().collect(), value));
    }

    /// The name of a row in the format of Prometheus.
    pub fn named(&self, labels: &[Label]) -> String {
        if labels.is_empty() {
            return self.name.to_owned();
        }
        let labels: Vec<String> = labels.iter().map(|(name, of)| format!("{name}=\"{of}\"")).collect();
        format!("{}{{{}}}", self.name, labels.join(","))
    }
}
