//! Writing a run down: all samples as JSON, the page of results, the plots it quotes.
//! Must hold: nothing is written that was not measured in this run.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use super::grid;
use super::machine::{Date, Machine};
use super::plan::{Case, Extent, Kind, Peer, TOPOLOGIES};
use super::plot::{Chart, Group};
use super::verdict::{Check, Sample, Samples, cpu, faults, kib, rate};
use crate::figure;
use crate::load::LoadResult;

const FAULTS: &str = "## Faults";

/// A finished run.
#[derive(Serialize)]
pub struct Run {
    pub date: String,
    pub extent: Extent,
    pub machine: Machine,
    /// Names and versions of the servers.
    pub versions: Vec<(String, String)>,
    pub cases: Vec<Case>,
    pub samples: Vec<Sample>,
    pub checks: Vec<Check>,
}

impl Run {
    /// Everything, for other programs, in `out/` under `folder`. Returns its path.
    pub fn write_json(&self, folder: &Path, date: Date) -> anyhow::Result<std::path::PathBuf> {
        let out = folder.join("out");
        fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        let path = out.join(format!("{}.json", date.stamp()));
        fs::write(&path, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// The page and its plots.
    pub fn write_page(&self, folder: &Path) -> anyhow::Result<()> {
        let plots = folder.join("plots");
        fs::create_dir_all(&plots).with_context(|| format!("cannot make {}", plots.display()))?;
        let charts = self.charts();
        for (name, chart) in &charts {
            fs::write(plots.join(format!("{name}.svg")), chart.svg())?;
        }
        let page = folder.join("RESULTS.md");
        let earlier = fs::read_to_string(&page).unwrap_or_default();
        fs::write(&page, with_other_sections(self.page(&charts), &earlier))
            .with_context(|| format!("cannot write {}", page.display()))
    }

    fn page(&self, charts: &[(&'static str, Chart)]) -> String {
        let samples = Samples(&self.samples);
        let machine = &self.machine;
        let mut out = format!(
            "# Results\n\nMeasured on {} by `make bench`, {} to {} rounds of each, servers interleaved.\n\n\
             - Machine: {}, {} cores, {} MiB, Linux {}. The load shares the cores with the server.\n",
            self.date,
            self.cases.iter().map(|case| case.rounds).min().unwrap_or(0),
            self.cases.iter().map(|case| case.rounds).max().unwrap_or(0),
            machine.processor,
            machine.cores,
            machine.memory_mib,
            machine.kernel
        );
        if let Some(line) = machine.write_cost() {
            out.push_str(&format!("- {line}\n"));
        }
        for (name, version) in &self.versions {
            out.push_str(&format!("- {name}: {version}\n"));
        }
        let passed = self.checks.iter().filter(|check| check.pass).count();
        out.push_str(&format!("- Targets reached: {passed} of {}\n\n", self.checks.len()));
        out.push_str(
            "cpu/M is the processor time of the server, all its threads, in seconds per million deliveries; less \
             is better. Ratios above 1 are in our favour. A value is the median of the rounds, with the lowest \
             and the highest in parentheses; ratios are taken within a round. Saturated: each publisher sends \
             its batch (the depth), waits for all replies, and waits when its subscribers are 64 messages behind, \
             on every server alike. Subscribers of a saturated fan-out to 100 and more are read late, several \
             messages at a time, so that the load leaves the cores to the server. p99 is from the publish to the \
             delivery, under that load.\n\n",
        );
        out.push_str(&grid::peers(&self.cases, samples, &self.checks).markdown());
        out.push('\n');
        out.push_str(&grid::others(&self.cases, samples, &self.checks).markdown());
        for (name, chart) in charts {
            out.push_str(&format!("\n![{}](plots/{name}.svg)\n", chart.title));
        }
        let faults = faults(&self.samples);
        if !faults.is_empty() {
            out.push_str(&format!("\n{FAULTS}\n\n"));
            for fault in faults {
                out.push_str(&format!("- {}\n", fault.lines().next().unwrap_or_default()));
            }
        }
        out
    }

    fn charts(&self) -> Vec<(&'static str, Chart)> {
        let less = "CPU seconds of the server per million deliveries; shorter is better";
        let more = "million deliveries a second; longer is better";
        let mega = |outcome: &LoadResult| rate(outcome).map(|rate| rate / 1e6);
        let mut charts = vec![
            ("cpu-depth16", self.compared("Processor time, 256 B, depth 16", less, 16, cpu)),
            ("cpu-depth1", self.compared("Processor time, 256 B, depth 1", less, 1, cpu)),
            ("rate-depth16", self.compared("Deliveries, 256 B, depth 16", more, 16, mega)),
            ("rate-depth1", self.compared("Deliveries, 256 B, depth 1", more, 1, mega)),
            ("websocket", self.websocket(less)),
            ("memory", self.memory()),
        ];
        charts.retain(|(_, chart)| !chart.is_empty());
        charts
    }

    fn median(&self, case: &str, peer: Peer, figure: fn(&LoadResult) -> Option<f64>) -> Option<f64> {
        Samples(&self.samples).spread(case, peer, figure).map(|spread| spread.median)
    }

    fn compared(
        &self,
        title: &str,
        note: &str,
        depth: usize,
        figure: fn(&LoadResult) -> Option<f64>,
    ) -> Chart {
        let wanted = |case: &&Case| {
            case.kind == Kind::Redis
                && case.depth == depth
                && case.payload == 256
                && TOPOLOGIES.contains(&(case.publishers, case.subscribers))
        };
        let peers = [Peer::Tavern, Peer::Redis, Peer::Nats];
        let groups = self.cases.iter().filter(wanted).map(|case| Group {
            label: case.label.split(',').next().unwrap_or_default().to_owned() + &thousands_rest(&case.label),
            values: peers.map(|peer| self.median(&case.name, peer, figure)).into(),
        });
        Chart {
            title: title.into(),
            note: note.into(),
            series: peers.map(Peer::name).into(),
            groups: groups.collect(),
        }
    }

    fn websocket(&self, note: &str) -> Chart {
        let group = |subscribers: usize| Group {
            label: format!("1→{}", super::plan::thousands(subscribers)),
            values: vec![
                self.median(&format!("ws-1x{subscribers}"), Peer::Tavern, cpu),
                self.median(&format!("redis-1x{subscribers}-256b-d16"), Peer::Tavern, cpu),
            ],
        };
        Chart {
            title: "WebSocket fan-out beside our Redis protocol, 256 B, saturated".into(),
            note: note.into(),
            series: vec!["WebSocket", "Redis protocol"],
            groups: [100, 1000, 5000].map(group).into(),
        }
    }

    fn memory(&self) -> Chart {
        let memory = self.cases.iter().filter(|case| matches!(case.kind, Kind::Idle | Kind::Parked));
        let groups = memory.map(|case| Group {
            label: case.label.clone(),
            values: [Peer::Tavern, Peer::Redis].map(|peer| self.median(&case.name, peer, kib)).into(),
        });
        Chart {
            title: "Private memory of the server for each connection".into(),
            note: "KiB each; shorter is better".into(),
            series: vec!["tavern", "redis"],
            groups: groups.collect(),
        }
    }
}

/// The second half of a fan-out that is written with a thousands separator.
fn thousands_rest(label: &str) -> String {
    match label.split(", ").next() {
        Some(shape) => shape.split_once(',').map(|(_, rest)| format!(",{rest}")).unwrap_or_default(),
        None => String::new(),
    }
}

/// The new page with the sections of the earlier one that other programs measured.
fn with_other_sections(mut page: String, earlier: &str) -> String {
    for heading in earlier.lines().filter(|line| line.starts_with("## ") && *line != FAULTS) {
        if !page.contains(&format!("\n{heading}\n")) {
            page = figure::with_section(&page, figure::section_of(earlier, heading));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::super::plan::plan;
    use super::super::verdict::checks;
    use super::*;
    use crate::load::ServerUse;

    fn run() -> Run {
        let cases = plan(Extent::Quick);
        let sample = |case: &Case, peer: &Peer| Sample {
            case: case.name.clone(),
            peer: *peer,
            round: 0,
            outcome: Some(LoadResult {
                deliveries_per_s: 1e6,
                bytes_per_connection: Some(2048.0),
                server: Some(ServerUse { cpu_per_million: 0.25, ..ServerUse::default() }),
                ..LoadResult::default()
            }),
            fault: None,
        };
        let samples: Vec<Sample> =
            cases.iter().flat_map(|case| case.peers.iter().map(move |peer| sample(case, peer))).collect();
        Run {
            date: "2026-01-02".into(),
            extent: Extent::Quick,
            machine: Machine::here(),
            versions: vec![("redis".into(), "7".into())],
            checks: checks(&cases, Samples(&samples)),
            cases,
            samples,
        }
    }

    #[test]
    fn the_page_quotes_every_plot_that_was_written() {
        let folder = tempfile::tempdir().unwrap();
        run().write_page(folder.path()).unwrap();
        let page = fs::read_to_string(folder.path().join("RESULTS.md")).unwrap();
        let plots: Vec<_> = fs::read_dir(folder.path().join("plots")).unwrap().collect();
        assert_eq!(plots.len(), 6);
        for plot in plots {
            let name = plot.unwrap().file_name().into_string().unwrap();
            assert!(page.contains(&format!("](plots/{name})")), "{name}");
        }
        assert!(page.contains("| 1→1,000, 256 B, depth 16 |"));
    }

    #[test]
    fn sections_of_other_programs_stay() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("RESULTS.md");
        let tables = run().page(&[]);
        fs::write(&page, format!("{tables}\n## Faults\n\n- lost\n\n## Parties\n\nfast\n")).unwrap();
        run().write_page(folder.path()).unwrap();
        let written = fs::read_to_string(&page).unwrap();
        assert!(written.ends_with("\n\n## Parties\n\nfast\n"));
        assert!(!written.contains("## Faults"), "those of an earlier run");
        assert_eq!(written.matches("\n## Redis protocol").count(), 1);
    }

    #[test]
    fn the_json_is_named_by_its_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = run().write_json(folder.path(), Date::at(0)).unwrap();
        assert_eq!(path.file_name().unwrap(), "1970-01-01T000000Z.json");
        let value: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(value["extent"], "quick");
    }

    #[test]
    fn plots_of_fan_outs_are_labelled_by_their_shape() {
        let charts = run().charts();
        let labels: Vec<_> = charts[0].1.groups.iter().map(|group| group.label.as_str()).collect();
        assert_eq!(labels, ["1→1", "1→10", "1→100", "1→1,000", "10×10"]);
    }
}
