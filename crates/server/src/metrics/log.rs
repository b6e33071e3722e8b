//! Writes all metrics as one log line every `metrics.log_ms`: a JSON object with the names of `/metrics`.
//! Must hold: a line is bounded; it contains the number of values that did not fit.

use super::{MetricSources, Series};
use std::time::Duration;
use tavern_wire::json::NumberLine;

/// The longest line. With more subscriptions than fit, scrape `/metrics` instead.
const LINE_BYTES: usize = 65_536;

pub async fn write(metrics: &MetricSources, every_ms: u64) {
    loop {
        tokio::time::sleep(Duration::from_millis(every_ms)).await;
        let (numbers, left_out) = line(&metrics.gather());
        tracing::info!(target: "tavern::metrics", left_out, numbers, "metrics");
    }
}

/// The object, and how many values did not fit.
fn line(all: &[Series]) -> (String, usize) {
    let mut line = NumberLine::new(LINE_BYTES);
    for series in all {
        for row in &series.rows {
            line.push(&series.named(row), row.value);
        }
    }
    line.finish()
}

#[cfg(test)]
mod tests {
    use super::super::series::MetricKind;
    use super::*;

    #[test]
    fn line_is_json_and_counts_omitted_values() {
        let mut many = Series::new("tavern_x_total", MetricKind::Counter, "Many");
        for n in 0..5_000u64 {
            many.add([("topic", format!("t{n}").into())], n);
        }
        let (text, left_out) = line(&[Series::one("tavern_up", MetricKind::Gauge, "One", 1), many]);
        let read: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert!(text.len() <= LINE_BYTES && left_out > 0);
        assert_eq!(read.len() + left_out, 5_001);
        assert_eq!(read["tavern_up"], 1);
        assert_eq!(read["tavern_x_total{topic=\"t7\"}"], 7);
    }
}
