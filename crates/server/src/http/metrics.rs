//! `/metrics` in the text format of Prometheus: the shards' counters summed, and what the door counts.

use super::body::{Answer, whole};
use crate::services::Services;
use http::StatusCode;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use tavern_hub::Space;

/// (counter of a shard, name, kind, help).
const SERIES: &[(&str, &str, &str, &str)] = &[
    ("published", "tavern_messages_published_total", "counter", "Messages published on this node"),
    ("delivered", "tavern_events_delivered_total", "counter", "Events put into mailboxes"),
    (
        "dropped_full",
        "tavern_events_dropped_total{reason=\"mailbox_full\"}",
        "counter",
        "Unread events dropped",
    ),
    ("dropped_budget", "tavern_events_dropped_total{reason=\"memory\"}", "counter", "Unread events dropped"),
    ("closed_slow", "tavern_transports_closed_slow_total", "counter", "Transports closed for slow reading"),
    (
        "closed_lost",
        "tavern_transports_closed_lost_total",
        "counter",
        "Redis connections closed because messages of another node were lost",
    ),
    ("rumours", "tavern_rumours_total", "counter", "Changes of users told to their followers, each once"),
    ("statuses", "tavern_statuses_total", "counter", "Statuses put into mailboxes of followers"),
    ("sessions_opened", "tavern_sessions_opened_total", "counter", "Sessions opened"),
    (
        "sessions_resumed",
        "tavern_sessions_resumed_total",
        "counter",
        "Transports attached to a living session",
    ),
    (
        "sessions_superseded",
        "tavern_sessions_superseded_total",
        "counter",
        "Transports replaced by a newer one",
    ),
    ("sessions_ended", "tavern_sessions_ended_total", "counter", "Sessions ended"),
    (
        "sessions_expired",
        "tavern_sessions_expired_total",
        "counter",
        "Sessions ended because nobody came back",
    ),
    ("sessions_came", "tavern_sessions_came_total", "counter", "Sessions that came from other nodes"),
    ("sessions_left", "tavern_sessions_left_total", "counter", "Sessions that went to other nodes"),
    (
        "presences_swept",
        "tavern_presences_swept_total",
        "counter",
        "Presences removed that no living node vouched for",
    ),
    ("commands", "tavern_commands_total", "counter", "Commands of the JSON protocol"),
    ("refused", "tavern_commands_refused_total", "counter", "Commands refused"),
    ("sessions", "tavern_sessions", "gauge", "Sessions alive"),
    ("sessions_detached", "tavern_sessions_detached", "gauge", "Sessions without a transport"),
    ("redis_listeners", "tavern_redis_listeners", "gauge", "Redis connections that subscribed"),
    ("mailbox_events", "tavern_mailbox_events", "gauge", "Events kept in all mailboxes"),
    ("mailbox_bytes", "tavern_mailbox_bytes", "gauge", "Logical bytes kept in all mailboxes"),
    ("event_bytes", "tavern_event_bytes", "gauge", "Physical bytes of all events, each counted once"),
    ("polls_parked", "tavern_polls_parked", "gauge", "Long-polls that wait"),
];

pub fn page(services: &Services) -> Answer {
    let mut out = String::with_capacity(4096);
    let mut described = "";
    for (counter, series, kind, help) in SERIES {
        let name = series.split('{').next().unwrap_or(series);
        if name != described {
            described = name;
            describe(&mut out, name, kind, help);
        }
        let sum: u64 = services.node.stats.iter().map(|stats| find(&stats.all(), counter)).sum();
        let _ = writeln!(out, "{series} {sum}");
    }
    let doors = &services.doors;
    let registry = &services.node.registry;
    let bus = services.node.carrier.bus().map(|bus| bus.counts()).unwrap_or_default();
    let store_up = !services.store_trouble.load(Ordering::Relaxed);
    let more: [(&str, &str, &str, u64); 12] = [
        ("tavern_store_up", "gauge", "1 while the store takes the node's lease", u64::from(store_up)),
        ("tavern_bus_up", "gauge", "1 while the bus answers", u64::from(services.is_bus_well())),
        ("tavern_bus_sent_total", "counter", "Messages handed to the bus for other nodes", bus.sent),
        ("tavern_bus_received_total", "counter", "Messages that came from other nodes", bus.received),
        ("tavern_bus_failed_total", "counter", "Messages the bus could not carry", bus.failed),
        ("tavern_bus_losses_total", "counter", "Times messages of others were lost on the way", bus.losses),
        ("tavern_connections", "gauge", "Open connections", doors.open() as u64),
        ("tavern_connections_accepted_total", "counter", "Accepted", doors.accepted.load(Ordering::Relaxed)),
        (
            "tavern_connections_refused_total",
            "counter",
            "Over a limit",
            doors.refused.load(Ordering::Relaxed),
        ),
        (
            "tavern_channels",
            "gauge",
            "Channels with a subscription",
            registry.listened(Space::Channel).len() as u64,
        ),
        ("tavern_patterns", "gauge", "Patterns with a subscription", registry.pattern_count() as u64),
        ("tavern_uptime_seconds", "gauge", "Since the start", services.started.elapsed().as_secs()),
    ];
    for (name, kind, help, number) in more {
        describe(&mut out, name, kind, help);
        let _ = writeln!(out, "{name} {number}");
    }
    describe(&mut out, "tavern_info", "gauge", "Version and node");
    let (version, node) = (env!("CARGO_PKG_VERSION"), &services.node.settings.node);
    let _ = writeln!(out, "tavern_info{{version=\"{version}\",node=\"{node}\"}} 1");
    services.tally.write(&mut out);
    whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", out)
}

fn describe(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

fn find(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::SERIES;

    #[test]
    fn every_counter_of_a_shard_is_shown_and_every_shown_one_exists() {
        let known: Vec<&str> =
            tavern_hub::stats::Stats::default().all().into_iter().map(|(name, _)| name).collect();
        let shown: Vec<&str> = SERIES.iter().map(|(counter, ..)| *counter).collect();
        assert_eq!(known, shown);
    }
}
