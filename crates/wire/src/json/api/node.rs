//! Nodes and what an operator sees of them: the list, the overview, the settings in effect.

use serde::Serialize;
use std::collections::BTreeMap;

/// `GET /v1/nodes`.
#[derive(Clone, Debug, Serialize)]
pub struct NodeList<'a> {
    /// All nodes are on one page.
    pub next: Option<String>,
    pub nodes: Vec<NodeReport<'a>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct NodeReport<'a> {
    pub alive: bool,
    pub clean: bool,
    pub closed_at: Option<u64>,
    pub epoch: u64,
    /// Left out of the other nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<LocalNode>,
    pub lease_ms: u64,
    pub node: &'a str,
    pub opened_at: u64,
}

/// What only the node itself knows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LocalNode {
    pub connections: usize,
    pub sessions: u64,
    pub shards: usize,
    pub stopping: bool,
    pub uptime_ms: u64,
}

/// `GET /v1/overview`.
#[derive(Clone, Debug, Serialize)]
pub struct Overview<'a> {
    pub bus_up: bool,
    pub clock: ClockReport,
    pub events: EventSums,
    pub metrics: BTreeMap<String, MetricNumber>,
    pub mode: &'static str,
    pub node: &'a str,
    pub now: u64,
    pub stopping: bool,
    pub store_up: bool,
    pub uptime_ms: u64,
    pub version: &'static str,
}

/// How the clock compares with node time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClockReport {
    /// Whether events may be deleted by age.
    pub confirmed: bool,
    /// By how much the clock jumped ahead of node time, or back behind it (negative), and was not accepted.
    pub jump_ms: i64,
    /// Jumps since the start.
    pub jumps: u64,
    pub warning: Option<String>,
}

/// Events of all topics and subscriptions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventSums {
    pub accepted: u64,
    pub dead_letters: u64,
    pub delivered: u64,
    pub dropped: u64,
    pub failed: u64,
    pub in_flight: u64,
}

/// `GET /v1/settings`.
#[derive(Clone, Debug, Serialize)]
pub struct SettingsReport<'a> {
    pub mode: &'static str,
    pub values: Vec<SettingValue<'a>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SettingValue<'a> {
    pub key: &'a str,
    pub origin: String,
    pub value: &'a serde_json::Value,
}

/// `GET /demo/settings.json`: what the demo page must know about this server.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DemoSettings {
    /// The user who accepts every invite; None: there is none.
    pub bot: Option<&'static str>,
    pub grace_ms: u64,
    /// Whether a matchmaker answers the page's tickets.
    pub matchmaker: bool,
    pub resume_ms: u64,
}

/// A number of the metrics page. Whole numbers are written without a fraction.
#[derive(Clone, Copy, Debug)]
pub struct MetricNumber(pub f64);

impl Serialize for MetricNumber {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.fract() == 0.0 && (0.0..9e15).contains(&self.0) {
            true => serializer.serialize_u64(self.0 as u64),
            false => serializer.serialize_f64(self.0),
        }
    }
}
