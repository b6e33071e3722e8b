//! The overview for operators: this node's numbers, the load of the cluster, and the settings in effect.
//! Must hold: the numbers are those of `/metrics`; no secret is shown, because settings are shown through `entries` alone.

use super::api::HttpApi;
use super::body::{HttpResponse, typed, whole};
use super::request::{self, Query};
use super::routes::ListenerSide;
use crate::clock::ClockStatus;
use crate::config::{Config, ServerMode};
use crate::health::is_bus_up;
use crate::metrics::{self, Label, MetricKind, Series};
use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;
use tavern_domain::Scope;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{ClockReport, EventSums, MetricNumber, Overview, SettingValue, SettingsReport};

pub fn overview(api: &HttpApi) -> HttpResponse {
    let sums = api.topics.counters.sums();
    typed(&Overview {
        bus_up: is_bus_up(&api.node),
        clock: clock(&api.clock.status()),
        events: EventSums {
            accepted: sums.accepted,
            dead_letters: sums.parked,
            delivered: sums.delivered,
            dropped: sums.dropped,
            failed: sums.failed,
            in_flight: sums.in_flight,
        },
        metrics: api.metrics.gather().iter().flat_map(of_the_node).collect(),
        mode: mode(&api.config),
        node: &api.node.settings.node,
        now: api.now().ms(),
        stopping: api.health.is_stopping(),
        store_up: api.health.is_store_up(),
        uptime_ms: api.started.elapsed().as_millis() as u64,
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// The load of all nodes now, and of the cluster over a range of time.
pub async fn load(api: &HttpApi, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let step_ms = match Query::of(parts)?.one("range")? {
        None => 0,
        Some("5m") => 2_000,
        Some("1h") => 30_000,
        Some("24h") => 300_000,
        Some(other) => {
            let message = format!("the parameter `range` must be 5m, 1h or 24h, not {other:?}");
            return Err(Refusal::new(Code::BadRequest, message));
        }
    };
    Ok(typed(&api.load.report(step_ms).await))
}

/// `/metrics`. Names of subscriptions and topics are for operators: on `admin_listen`, with a key, or in dev mode.
pub async fn metrics(api: &HttpApi, parts: &Parts, side: ListenerSide) -> Result<HttpResponse, Refusal> {
    let mut named = side == ListenerSide::Admin || api.config.mode == ServerMode::Dev;
    if parts.headers.contains_key(AUTHORIZATION) {
        let identity = request::identity(api, parts, &Query::of(parts)?).await?;
        let scopes = [Scope::Admin, Scope::Subscriptions];
        named |= identity.is_some_and(|identity| scopes.iter().any(|scope| identity.scopes.has(*scope)));
    }
    let mut all = api.metrics.gather();
    if !named {
        all.iter_mut().for_each(Series::merge_names);
    }
    Ok(whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::page(&all)))
}

fn clock(status: &ClockStatus) -> ClockReport {
    ClockReport {
        confirmed: status.deletion_lag_ms.is_some(),
        jump_ms: status.jump_ms,
        jumps: status.jumps,
        warning: status.warning(),
    }
}

/// The rows of a series that do not belong to one topic or one subscription: those have their own pages.
fn of_the_node(series: &Series) -> Vec<(String, MetricNumber)> {
    // Distributions are for Prometheus.
    if !matches!(series.kind, MetricKind::Counter | MetricKind::Gauge) {
        return Vec::new();
    }
    let whole = |labels: &[Label]| !labels.iter().any(|(name, _)| matches!(*name, "topic" | "subscription"));
    let rows = series.rows.iter().filter(|row| whole(&row.labels));
    rows.map(|row| (series.named(row), MetricNumber(row.value))).collect()
}

fn mode(config: &Config) -> &'static str {
    if config.mode == ServerMode::Dev { "dev" } else { "serve" }
}

/// Every setting in effect, as `tavern check` shows it.
pub fn settings(config: &Config) -> HttpResponse {
    let entries = config.entries();
    let values = entries.iter().map(|entry| SettingValue {
        key: &entry.key,
        origin: entry.origin.to_string(),
        value: &entry.value,
    });
    typed(&SettingsReport { mode: mode(config), values: values.collect() })
}
