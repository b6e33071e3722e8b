//! `[metrics]`: to whom the server's numbers are told, beside the page that Prometheus reads.

use super::draft::Draft;

/// A prefix is part of every line that is sent.
const PREFIX_BYTES: usize = 64;
/// More often than this the lines would be most of the log.
const LOG_MS: u64 = 100;

#[derive(Clone, Debug)]
pub struct Metrics {
    /// `HOST:PORT`; empty: nobody.
    pub statsd: String,
    pub statsd_prefix: String,
    pub statsd_ms: u64,
    /// Zero: no lines.
    pub log_ms: u64,
}

impl Draft {
    pub fn metrics(&mut self) -> Metrics {
        let statsd = self.text("metrics.statsd");
        let good = statsd.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !good && !statsd.is_empty() {
            let message = format!("metrics.statsd = {statsd:?}: write HOST:PORT, such as 127.0.0.1:8125");
            self.fail("metrics.statsd", message);
        }
        let statsd_prefix = self.text("metrics.statsd_prefix");
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if statsd_prefix.len() > PREFIX_BYTES || !statsd_prefix.bytes().all(letter) {
            let message = format!(
                "metrics.statsd_prefix = {statsd_prefix:?}: at most {PREFIX_BYTES} of a-z, A-Z, 0-9, `_`, `.` and `-`"
            );
            self.fail("metrics.statsd_prefix", message);
        }
        let log_ms = self.integer("metrics.log_ms");
        if (1..LOG_MS).contains(&log_ms) {
            self.fail("metrics.log_ms", format!("metrics.log_ms must be 0 (none) or at least {LOG_MS}"));
        }
        Metrics { statsd, statsd_prefix, statsd_ms: self.integer("metrics.statsd_ms"), log_ms }
    }
}
