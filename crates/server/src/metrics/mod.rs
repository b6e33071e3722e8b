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

/// Tells the numbers to whoever the configuration names, until it is ended.
pub async fn tell(services: Arc<Services>) {
    tokio::join!(statsd::keep(&services), report::keep(&services));
}
