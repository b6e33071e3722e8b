//! The server's metrics and their outputs: the page that Prometheus scrapes (`page`), StatsD (`statsd`), a log line
//! (`log`). Must hold: every output has the same values; an output that is not configured costs nothing.

mod log;
mod node;
mod page;
mod process;
mod series;
mod statsd;

pub use node::{NodeMetrics, free_bytes};
pub use page::page;
pub use process::{ProcessMetrics, process_usage};
pub use series::{Label, MetricKind, Series, SeriesRow};

use crate::config::MetricsConfig;
use std::sync::Arc;

/// A part of the server that has metrics.
pub trait MetricSource: Send + Sync {
    fn gather(&self, all: &mut Vec<Series>);
}

/// Every source, in the order of output.
pub struct MetricSources {
    sources: Vec<Arc<dyn MetricSource>>,
}

impl MetricSources {
    pub fn new(sources: Vec<Arc<dyn MetricSource>>) -> Arc<MetricSources> {
        Arc::new(MetricSources { sources })
    }

    /// Reads all metrics now.
    pub fn gather(&self) -> Vec<Series> {
        let mut all = Vec::with_capacity(64);
        self.sources.iter().for_each(|source| source.gather(&mut all));
        all
    }

    /// Sends all metrics to `metrics.statsd`, until it is ended.
    pub async fn send_statsd(self: Arc<MetricSources>, config: MetricsConfig, node: String) {
        statsd::send(&self, &config, &node).await;
    }

    /// Writes all metrics to the log every `metrics.log_ms`, until it is ended.
    pub async fn write_log(self: Arc<MetricSources>, every_ms: u64) {
        log::write(&self, every_ms).await;
    }
}
