//! The load of the cluster and its nodes, now and over a range of time.

use crate::bus::load::{NodeLoad, NodeRun};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `GET /v1/load`.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    pub cluster: ClusterLoadReport,
    pub nodes: Vec<NodeLoadReport>,
    /// The node that answers.
    pub node: Arc<str>,
    pub now: u64,
    /// Nodes that started or ended in the last day, the last start first.
    pub runs: Vec<NodeRunReport>,
}

/// All nodes that answer together.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterLoadReport {
    pub figures: Figures,
    /// Each line has as many points.
    pub series: BTreeMap<Arc<str>, Vec<Figure>>,
    /// When the step of the first point ends.
    pub start: u64,
    pub step_ms: u64,
}

pub type Figures = BTreeMap<Arc<str>, Figure>;

#[derive(Clone, Debug, Serialize)]
pub struct NodeLoadReport {
    pub node: Arc<str>,
    /// The lease of this node runs, as far as the store knows.
    pub alive: bool,
    /// For how long it has not answered.
    pub silent_ms: Option<u64>,
    pub bus_up: bool,
    pub epoch: u64,
    pub figures: Figures,
    pub shards: u32,
    pub stopping: bool,
    pub store_up: bool,
    pub uptime_ms: u64,
    pub version: Arc<str>,
}

impl NodeLoadReport {
    pub fn new(node: Arc<str>, load: &NodeLoad, alive: bool, silent_ms: Option<u64>) -> NodeLoadReport {
        NodeLoadReport {
            node,
            alive,
            silent_ms,
            bus_up: load.bus_up,
            epoch: load.epoch,
            figures: load.figures.iter().map(|(name, value)| (name.clone(), Figure(*value))).collect(),
            shards: load.shards,
            stopping: load.stopping,
            store_up: load.store_up,
            uptime_ms: load.uptime_ms,
            version: load.version.clone(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct NodeRunReport {
    pub node: Arc<str>,
    pub epoch: u64,
    pub started_at: u64,
    pub ended_at: Option<u64>,
    pub clean: bool,
}

impl From<NodeRun> for NodeRunReport {
    fn from(run: NodeRun) -> NodeRunReport {
        let NodeRun { node, epoch, started_at, ended_at, clean } = run;
        NodeRunReport { node, epoch, started_at, ended_at, clean }
    }
}

/// A number with at most three decimals; `null`: not known.
#[derive(Clone, Copy, Debug)]
pub struct Figure(pub f32);

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rounded = (f64::from(self.0) * 1e3).round() / 1e3;
        match rounded {
            known if !known.is_finite() => serializer.serialize_none(),
            whole if whole.fract() == 0.0 && whole.abs() < 9e15 => serializer.serialize_i64(whole as i64),
            fraction => serializer.serialize_f64(fraction),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::api::encode;

    #[test]
    fn figures_are_short_and_what_is_not_known_is_null() {
        let figures = [0.1, 2.0, -3.0, 1.0 / 3.0, f32::NAN, f32::INFINITY, 1e9].map(Figure);
        assert_eq!(encode(&figures), b"[0.1,2,-3,0.333,null,null,1000000000]");
    }
}
