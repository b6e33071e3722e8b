//! What an operator sees first: this node's numbers with their last two minutes, and its settings as they are in effect.
//! Must hold: the numbers are those of `/metrics`; no secret is told, because settings are shown through `entries` alone.

use super::api::Api;
use super::body::{Answer, json};
use crate::config::{Entry, Mode};
use crate::health::is_bus_up;
use crate::metrics::{Label, Series};
use crate::samples;
use serde_json::{Map, Value, json as value};

pub fn overview(api: &Api) -> Answer {
    let metrics: Map<String, Value> = api.metrics.gather().iter().flat_map(of_the_node).collect();
    let events = api.topics.counters.sums();
    let lines: Map<String, Value> =
        api.samples.lines().into_iter().map(|(name, points)| (name.to_owned(), points.into())).collect();
    let rate = |name: &String, points: &Value| {
        let last = points.as_array().and_then(|points| points.last()).cloned();
        (name.clone(), last.unwrap_or(Value::Null))
    };
    let now: Map<String, Value> = lines.iter().map(|(name, points)| rate(name, points)).collect();
    let report = value!({
        "node": api.node.settings.node,
        "version": env!("CARGO_PKG_VERSION"),
        "mode": mode(api),
        "now": api.now().ms(),
        "uptime_ms": api.started.elapsed().as_millis() as u64,
        "store_up": api.health.is_store_up(),
        "bus_up": is_bus_up(&api.node),
        "stopping": api.health.is_stopping(),
        "metrics": metrics,
        "events": {
            "accepted": events.accepted,
            "delivered": events.delivered,
            "failed": events.failed,
            "dropped": events.dropped,
            "dead_letters": events.parked,
            "in_flight": events.in_flight,
        },
        "rates": now,
        "step_ms": samples::STEP.as_millis() as u64,
        "history": lines,
    });
    json(report.to_string())
}

/// The rows of a series that do not belong to one topic or one subscription: those have their own pages.
fn of_the_node(series: &Series) -> Vec<(String, Value)> {
    let whole = |labels: &[Label]| !labels.iter().any(|(name, _)| matches!(*name, "topic" | "subscription"));
    let rows = series.rows.iter().filter(|(labels, _)| whole(labels));
    rows.map(|(labels, value)| (series.named(labels), (*value).into())).collect()
}

fn mode(api: &Api) -> &'static str {
    if api.config.mode == Mode::Dev { "dev" } else { "serve" }
}

/// Every value that holds, as `tavern check` shows it.
pub fn settings(api: &Api) -> Answer {
    let shown =
        |entry: &Entry| value!({"key": entry.key, "value": entry.value, "origin": entry.origin.to_string()});
    let values: Vec<Value> = api.config.entries().iter().map(shown).collect();
    json(value!({"mode": mode(api), "values": values}).to_string())
}
