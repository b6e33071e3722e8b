//! The load of the cluster as the API shows it: the figures of this node and the last answers of the others.

use super::ClusterLoad;
use super::cluster::KnownLoad;
use super::figures::{Combine, NAMES, combine};
use super::history::STEPS;
use super::node_log::merged;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tavern_wire::bus::load::{LoadSeries, NodeLoad};
use tavern_wire::json::api::{ClusterLoadReport, Figure, LoadReport, NodeLoadReport};

/// After this time without an answer the figures of a node do not count any more.
const SILENT: Duration = Duration::from_millis(2_500);

impl ClusterLoad {
    /// Asks the others first. `step_ms`: of the series; 0: none.
    pub async fn report(&self, step_ms: u64) -> LoadReport {
        self.ask(step_ms).await;
        self.reported(step_ms)
    }

    fn reported(&self, step_ms: u64) -> LoadReport {
        let (living, here) = (self.node.other_nodes(), self.here());
        let known = self.known();
        let is_silent = |known: &KnownLoad| known.heard.elapsed() >= SILENT;
        let own: Arc<str> = self.node.settings.node.as_str().into();
        let mut nodes = vec![NodeLoadReport::new(own.clone(), &here, true, None)];
        for (node, known) in known.iter().filter(|(node, known)| living.contains(node) || known.is_kept()) {
            let silent = is_silent(known).then(|| known.heard.elapsed().as_millis() as u64);
            nodes.push(NodeLoadReport::new(node.clone(), &known.load, living.contains(node), silent));
        }
        for node in living.iter().filter(|node| !known.contains_key(*node)) {
            // It has never answered.
            let silent = Some(here.uptime_ms);
            nodes.push(NodeLoadReport::new(node.clone(), &NodeLoad::default(), true, silent));
        }
        let answering = known.values().filter(|known| !is_silent(known)).map(|known| &known.load);
        let loads: Vec<&NodeLoad> = answering.chain([&here]).collect();
        let runs = known.values().flat_map(|known| known.runs.clone()).chain(self.node_log.runs());
        LoadReport {
            cluster: self.cluster(step_ms, &known, &loads),
            nodes,
            node: own,
            now: self.now().ms(),
            runs: merged(runs).into_iter().map(Into::into).collect(),
        }
    }

    fn cluster(
        &self,
        step_ms: u64,
        known: &BTreeMap<Arc<str>, KnownLoad>,
        loads: &[&NodeLoad],
    ) -> ClusterLoadReport {
        let value = |load: &&NodeLoad, name: &str| load.figures.get(name).copied().unwrap_or(f32::NAN);
        let figures = NAMES.iter().map(|&(name, how)| {
            (name.into(), Figure(combine(how, loads.iter().map(|load| value(load, name)))))
        });
        let figures = figures.filter(|(_, Figure(value))| !value.is_nan()).collect();
        let Some(own) = self.history.series(step_ms) else {
            return ClusterLoadReport { figures, series: BTreeMap::new(), start: 0, step_ms: 0 };
        };
        let at = STEPS.iter().position(|(known, _)| *known == step_ms).unwrap_or_default();
        let all: Vec<&LoadSeries> = known.values().map(|known| &known.series[at]).chain([&own]).collect();
        let count = STEPS[at].1 as u64;
        let first = (own.end + 1).saturating_sub(count);
        let line = |name: &str, how: Combine| -> Vec<Figure> {
            let lines: Vec<(u64, &[f32])> =
                all.iter().filter_map(|series| Some((series.end, &series.lines.get(name)?[..]))).collect();
            let of = |step: u64| combine(how, lines.iter().map(|(end, line)| point(*end, line, step)));
            (first..=own.end).map(|step| Figure(of(step))).collect()
        };
        let series = NAMES.iter().map(|&(name, how)| (name.into(), line(name, how)));
        ClusterLoadReport { figures, series: series.collect(), start: first * step_ms, step_ms }
    }
}

/// What a line has at a step; not a number: nothing.
fn point(end: u64, line: &[f32], step: u64) -> f32 {
    let back = end.checked_sub(step).and_then(|back| line.len().checked_sub(back as usize + 1));
    back.map_or(f32::NAN, |at| line[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_that_end_at_different_steps_are_aligned() {
        let line = [1.0, 2.0];
        assert_eq!((point(10, &line, 10), point(10, &line, 9)), (2.0, 1.0));
        assert!(point(10, &line, 8).is_nan() && point(10, &line, 11).is_nan());
    }
}
