//! The text format of Prometheus. Label values need no escaping.

use super::series::Series;
use std::fmt::Write;

pub fn page(all: &[Series]) -> String {
    let mut out = String::with_capacity(8_192);
    for series in all {
        let (name, kind, help) = (series.name, series.kind.as_str(), series.help);
        let _ = writeln!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}");
        for row in &series.rows {
            let _ = writeln!(out, "{} {}", series.named(row), row.value);
        }
    }
    out
}
