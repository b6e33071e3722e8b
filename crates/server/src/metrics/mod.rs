//! The server's numbers, and the ways in which they leave it: the page that Prometheus reads (`page`), StatsD (`statsd`), a
//! line of the log (`log`). Must hold: each way shows the same numbers; a way that is not configured costs nothing.

mod log;
mod node;
mod page;
mod series;
mod statsd;

pub use node::NodeMetrics;
pub use page::page;
pub use series::{Label, MetricKind, Series};

use crate::config::MetricsConfig;
use std::sync::Arc;

/// A part of the server that has numbers to show.
pub trait MetricSource: Send + Sync {
    fn gather(&self, all: &mut Vec<Series>);
}

/// Every source, in the order in which their numbers are shown.
pub struct MetricSources {
    sources: Vec<Arc<dyn MetricSource>>,
}

impl MetricSources {
    pub fn new(sources: Vec<Arc<dyn MetricSource>>) -> Arc<MetricSources> {
        Arc::new(MetricSources { sources })
    }

    /// Every number, at one moment.
    pub fn gather(&self) -> Vec<Series> {
        let mut all = Vec::with_capacity(64);
        self.sources.iter().for_each(|source| source.gather(&mut all));
        all
    }

    /// Sends all numbers to `metrics.statsd`, until it is ended.
    pub async fn send_statsd(self: Arc<MetricSources>, config: MetricsConfig, node: String) {
        statsd::send(&self, &config, &node).await;
    }

    /// Writes all numbers to the log every `metrics.log_ms`, until it is ended.
    pub async fn write_log(self: Arc<MetricSources>, every_ms: u64) {
        log::write(&self, every_ms).await;
    }
}
