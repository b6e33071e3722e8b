//! The server's numbers, and the ways in which they leave it: the page that Prometheus reads (`page`), StatsD (`statsd`), a line of
//! the log (`report`). Must hold: each way shows the same numbers; nobody who does not listen costs the server anything.

mod gather;
mod page;
mod report;
mod series;
mod statsd;

pub use gather::gather;
pub use page::page;
pub use series::{Kind, Label, Series};

use crate::services::Services;
use std::sync::Arc;

/// Sends all numbers to `metrics.statsd`, until it is ended.
pub async fn send_statsd(services: Arc<Services>) {
    statsd::keep(&services).await;
}

/// Writes all numbers to the log every `metrics.log_ms`, until it is ended.
pub async fn log(services: Arc<Services>) {
    report::keep(&services).await;
}
