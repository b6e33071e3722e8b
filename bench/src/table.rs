//! Formats figures for people. Computes nothing.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use crate::load::{Load, LoadResult};

/// One load's figures, one to a line.
pub fn outcome(load: &Load, outcome: &LoadResult) -> Table {
    let mut rows = vec![("target", load.target.to_string())];
    if let Some(bytes) = outcome.bytes_per_connection {
        rows.push(("connections", load.subscribers.to_string()));
        rows.push(("private memory per connection", format!("{:.2} KiB", bytes / 1024.0)));
    }
    if load.publishers > 0 {
        rows.push(("workload", workload(load)));
        rows.push(("deliveries", format!("{}/s", count(outcome.deliveries_per_s))));
        rows.push(("publishes", format!("{}/s", count(outcome.publishes_per_s))));
        let latency = [outcome.p50_us, outcome.p99_us, outcome.max_us].map(time);
        rows.push(("latency p50, p99, max", latency.join(", ")));
        rows.push(("lost", outcome.lost.to_string()));
        if outcome.misordered > 0 {
            rows.push(("out of order", outcome.misordered.to_string()));
        }
        if outcome.short_replies > 0 {
            rows.push(("replies with wrong recipients", outcome.short_replies.to_string()));
        }
        if outcome.answers > 0 {
            rows.push(("poll answers", count(outcome.answers as f64)));
        }
        rows.push(("load cpu per million", format!("{:.3} s", outcome.load_cpu_per_million)));
    }
    if let Some(server) = &outcome.server {
        rows.push(("server cpu per million", format!("{:.3} s", server.cpu_per_million)));
        rows.push(("server cpu", format!("{:.2} s in {:.2} s", server.cpu_seconds, outcome.seconds)));
        let memory = [server.private_kib, server.rss_kib].map(|kib| kib as f64 / 1024.0);
        rows.push(("server memory private, rss", format!("{:.1} MiB, {:.1} MiB", memory[0], memory[1])));
        let switches = [server.voluntary_switches, server.involuntary_switches].map(|one| count(one as f64));
        rows.push(("context switches own, forced", switches.join(", ")));
    }
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn workload(load: &Load) -> String {
    let pace = load.rate.map_or("saturated".to_owned(), |rate| format!("{rate} msg/s"));
    format!(
        "{} → {} on {} channels, {} B, depth {}, {pace}",
        load.publishers, load.subscribers, load.channels, load.payload, load.depth
    )
}

/// A count in thousands or millions.
pub fn count(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e4 => format!("{:.0} k", value / 1e3),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

/// A time given in microseconds.
pub fn time(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{:.1} s", us / 1e6),
        us if us >= 1e4 => format!("{:.0} ms", us / 1e3),
        us if us >= 1e3 => format!("{:.1} ms", us / 1e3),
        us => format!("{us:.0} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_short() {
        assert_eq!([999.0, 1_234.0, 54_321.0, 1_234_567.0].map(count), ["999", "1.2 k", "54 k", "1.23 M"]);
        assert_eq!([87.0, 1_234.0, 54_321.0, 2_300_000.0].map(time), ["87 µs", "1.2 ms", "54 ms", "2.3 s"]);
    }

    #[test]
    fn a_table_of_idle_connections_tells_their_memory_only() {
        let mut load = Load::new("redis://127.0.0.1:1".parse().unwrap());
        load.publishers = 0;
        let result = LoadResult { bytes_per_connection: Some(2048.0), ..LoadResult::default() };
        let text = outcome(&load, &result).to_string();
        assert!(text.contains("2.00 KiB"));
        assert!(!text.contains("latency"));
    }
}
