//! The results as grids of cells, for the terminal and for the page. Measures and judges nothing.

use comfy_table::{ContentArrangement, Table, presets};

use super::plan::{Case, Kind, Peer};
use super::plot::figure;
use super::verdict::{Bound, Check, Figure, Samples, Spread, cpu, kib, p99, rate};
use crate::load::LoadResult;
use crate::table;

/// A heading, the names of the columns, the rows.
#[derive(Clone, Debug)]
pub struct Grid {
    pub heading: &'static str,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn terminal(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(&self.columns);
        table.add_rows(&self.rows);
        table
    }

    pub fn markdown(&self) -> String {
        let mut out = format!("## {}\n\n| {} |\n", self.heading, self.columns.join(" | "));
        out.push_str(&format!("|{}\n", "---|".repeat(self.columns.len())));
        for row in &self.rows {
            out.push_str(&format!("| {} |\n", row.join(" | ")));
        }
        out
    }
}

/// The workloads that Tavern shares with its peers.
pub fn peers(cases: &[Case], samples: Samples, checks: &[Check]) -> Grid {
    let mut rows = Vec::new();
    for case in cases.iter().filter(|case| case.kind == Kind::Redis) {
        let three = |figure: fn(&LoadResult) -> Option<f64>, show: fn(f64) -> String| {
            let each = [Peer::Tavern, Peer::Redis, Peer::Nats].map(|peer| {
                let spread = samples.spread(&case.name, peer, figure);
                spread.map_or("–".into(), |spread| show(spread.median))
            });
            each.join(" / ")
        };
        let judged = |figure| {
            let check = checks.iter().find(|one| one.case == case.name && one.figure == figure);
            check.map_or("–".into(), judgement)
        };
        rows.push(vec![
            case.label.clone(),
            three(cpu, figure),
            judged(Figure::RedisCpuOverOurs),
            judged(Figure::NatsCpuOverOurs),
            three(rate, table::count),
            judged(Figure::RateOverBetter),
            three(p99, table::time),
        ]);
    }
    Grid {
        heading: "Redis protocol beside Redis and NATS",
        columns: vec![
            "workload",
            "cpu/M: tavern / redis / nats",
            Figure::RedisCpuOverOurs.name(),
            Figure::NatsCpuOverOurs.name(),
            "deliveries/s: tavern / redis / nats",
            Figure::RateOverBetter.name(),
            "p99: tavern / redis / nats",
        ],
        rows,
    }
}

/// Everything else: WebSocket, Pusher clients, shards, long-poll, memory.
pub fn others(cases: &[Case], samples: Samples, checks: &[Check]) -> Grid {
    let mut rows = Vec::new();
    for case in cases.iter().filter(|case| case.kind != Kind::Redis) {
        for check in checks.iter().filter(|one| one.case == case.name) {
            rows.push(vec![case.label.clone(), check.figure.name().into(), judgement(check)]);
        }
        for (name, value) in remarks(case, samples) {
            rows.push(vec![case.label.clone(), name, value]);
        }
    }
    Grid {
        heading: "WebSocket, shards, long-poll, memory",
        columns: vec!["workload", "figure", "value"],
        rows,
    }
}

/// Figures without a target that the reader wants beside the others.
fn remarks(case: &Case, samples: Samples) -> Vec<(String, String)> {
    let mut remarks = Vec::new();
    let mut add = |name: String, peer, of: fn(&LoadResult) -> Option<f64>, show: fn(f64) -> String| {
        if let Some(spread) = samples.spread(&case.name, peer, of) {
            remarks.push((name, shown(spread, show)));
        }
    };
    match case.kind {
        Kind::Shards => {
            for peer in [Peer::OneShard, Peer::TwoShards] {
                add(format!("deliveries/s, {}", peer.name()), peer, rate, table::count);
                add(format!("cpu/M, {}", peer.name()), peer, cpu, figure);
            }
        }
        Kind::Idle if case.peers.len() > 1 => {
            for peer in &case.peers {
                add(format!("KiB each, {}", peer.name()), *peer, kib, figure);
            }
        }
        Kind::Idle => {}
        Kind::Parked => {
            add("wake-up p50".into(), Peer::Tavern, |outcome| Some(outcome.p50_us), table::time);
            add("wake-up p99".into(), Peer::Tavern, p99, table::time);
            add("wake-up of the last".into(), Peer::Tavern, |outcome| Some(outcome.max_us), table::time);
            add("cpu/M".into(), Peer::Tavern, cpu, figure);
        }
        Kind::Poll => {
            add("messages per answer".into(), Peer::Tavern, per_answer, figure);
            add("p99".into(), Peer::Tavern, p99, table::time);
        }
        Kind::Pusher => {
            for peer in &case.peers {
                add(format!("cpu/M, {}", peer.name()), *peer, cpu, figure);
                add(format!("deliveries/s, {}", peer.name()), *peer, rate, table::count);
                add(format!("p99, {}", peer.name()), *peer, p99, table::time);
            }
        }
        Kind::WebSocket | Kind::Redis => {
            add("deliveries/s".into(), Peer::Tavern, rate, table::count);
            add("p99".into(), Peer::Tavern, p99, table::time);
        }
    }
    remarks
}

fn per_answer(outcome: &LoadResult) -> Option<f64> {
    (outcome.answers > 0).then(|| outcome.delivered as f64 / outcome.answers as f64)
}

fn shown(spread: Spread, show: fn(f64) -> String) -> String {
    match spread.low == spread.high {
        true => show(spread.median),
        false => format!("{} ({}–{})", show(spread.median), show(spread.low), show(spread.high)),
    }
}

/// A figure, its spread, its target and whether it was reached.
fn judgement(check: &Check) -> String {
    let (sign, bound) = match check.target {
        Bound::AtLeast(bound) => ('≥', bound),
        Bound::AtMost(bound) => ('≤', bound),
    };
    let mark = if check.pass { '✓' } else { '✗' };
    format!("{} {sign} {bound} {mark}", shown(check.value, figure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judgement_tells_figure_spread_target_and_mark() {
        let mut check = Check {
            case: "ws-1x100".into(),
            figure: Figure::CpuPerMillion,
            value: Spread { median: 0.25, low: 0.25, high: 0.25 },
            target: Bound::AtMost(0.4),
            pass: true,
        };
        assert_eq!(judgement(&check), "0.250 ≤ 0.4 ✓");
        check.value = Spread { median: 1.5, low: 1.25, high: 2.0 };
        check.pass = false;
        assert_eq!(judgement(&check), "1.50 (1.25–2.00) ≤ 0.4 ✗");
    }

    #[test]
    fn a_grid_is_a_markdown_table() {
        let grid =
            Grid { heading: "Name", columns: vec!["a", "b"], rows: vec![vec!["1".into(), "2".into()]] };
        assert_eq!(grid.markdown(), "## Name\n\n| a | b |\n|---|---|\n| 1 | 2 |\n");
    }
}
