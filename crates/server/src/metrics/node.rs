//! The metrics of the node itself: the shards' counters summed, connections, store, bus, the process.

use super::{MetricKind, MetricSource, Series};
use crate::connection_refusal::ConnectionLimit;
use crate::connections::Connections;
use crate::health::{NodeHealth, is_bus_up};
use crate::supervisor::panics;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tavern_hub::Node;
use tavern_hub::node::histogram::{Histogram, LatencyCounts};
use tavern_hub::node::stats::Stats;

/// (counter of a shard, series, kind, help). The part after a `/` is the value of the label `reason`.
const SHARDS: &[(&str, &str, MetricKind, &str)] = &[
    ("published", "tavern_messages_published_total", MetricKind::Counter, "Messages published on this node"),
    ("delivered", "tavern_events_delivered_total", MetricKind::Counter, "Events put into mailboxes"),
    (
        "dropped_full",
        "tavern_events_dropped_total/mailbox_full",
        MetricKind::Counter,
        "Unread events dropped",
    ),
    ("dropped_budget", "tavern_events_dropped_total/memory", MetricKind::Counter, "Unread events dropped"),
    (
        "closed_slow",
        "tavern_connections_closed_slow_total",
        MetricKind::Counter,
        "Connections closed because the client read too slowly",
    ),
    (
        "closed_lost",
        "tavern_connections_closed_lost_total",
        MetricKind::Counter,
        "Redis connections closed because messages of other nodes were lost",
    ),
    (
        "closed_unauthenticated",
        "tavern_connections_closed_unauthenticated_total",
        MetricKind::Counter,
        "Connections closed before login because all of them together held too much memory",
    ),
    ("user_updates", "tavern_user_updates_total", MetricKind::Counter, "Status changes of users"),
    (
        "statuses",
        "tavern_status_events_total",
        MetricKind::Counter,
        "Status events put into mailboxes of followers",
    ),
    ("sessions_opened", "tavern_sessions_opened_total", MetricKind::Counter, "Sessions opened"),
    (
        "sessions_resumed",
        "tavern_sessions_resumed_total",
        MetricKind::Counter,
        "Connections attached to an existing session",
    ),
    (
        "sessions_superseded",
        "tavern_sessions_superseded_total",
        MetricKind::Counter,
        "Connections replaced by a newer one of the same session",
    ),
    ("sessions_ended", "tavern_sessions_ended_total", MetricKind::Counter, "Sessions ended"),
    (
        "sessions_expired",
        "tavern_sessions_expired_total",
        MetricKind::Counter,
        "Sessions that expired without being resumed",
    ),
    (
        "sessions_replaced",
        "tavern_sessions_replaced_total",
        MetricKind::Counter,
        "Sessions without a connection that were replaced by newer ones of the same user",
    ),
    (
        "sessions_migrated_in",
        "tavern_sessions_migrated_in_total",
        MetricKind::Counter,
        "Sessions moved here from other nodes",
    ),
    (
        "sessions_migrated_out",
        "tavern_sessions_migrated_out_total",
        MetricKind::Counter,
        "Sessions moved to other nodes",
    ),
    (
        "presences_swept",
        "tavern_presences_swept_total",
        MetricKind::Counter,
        "Presence rows removed because their node was not alive",
    ),
    ("commands", "tavern_commands_total", MetricKind::Counter, "Commands of the JSON protocol"),
    ("refused", "tavern_commands_refused_total", MetricKind::Counter, "Commands refused"),
    ("party_commands", "tavern_party_commands_total", MetricKind::Counter, "Party commands"),
    (
        "party_conflicts",
        "tavern_party_conflicts_total",
        MetricKind::Counter,
        "Party commands retried after a version conflict",
    ),
    (
        "history_evicted",
        "tavern_history_evicted_total",
        MetricKind::Counter,
        "Channels whose history was removed because of history.max_bytes",
    ),
    (
        "history_reread",
        "tavern_history_reread_total",
        MetricKind::Counter,
        "Messages that did not fit into a mailbox and are read from the history again",
    ),
    (
        "inbox_messages_stored",
        "tavern_inbox_messages_stored_total",
        MetricKind::Counter,
        "Inbox messages stored",
    ),
    (
        "inbox_messages_delivered",
        "tavern_inbox_messages_delivered_total",
        MetricKind::Counter,
        "Inbox messages put into mailboxes of sessions",
    ),
    ("sessions", "tavern_sessions", MetricKind::Gauge, "Sessions"),
    ("sessions_detached", "tavern_sessions_detached", MetricKind::Gauge, "Sessions without a connection"),
    ("redis_listeners", "tavern_redis_listeners", MetricKind::Gauge, "Redis connections with a subscription"),
    ("mailbox_events", "tavern_mailbox_events", MetricKind::Gauge, "Events kept in all mailboxes"),
    (
        "mailbox_bytes",
        "tavern_mailbox_bytes",
        MetricKind::Gauge,
        "Bytes of the events in all mailboxes; an event in several mailboxes counts in each",
    ),
    (
        "event_bytes",
        "tavern_event_bytes",
        MetricKind::Gauge,
        "Bytes of the events in all mailboxes; each event counts once",
    ),
    ("polls_parked", "tavern_polls_parked", MetricKind::Gauge, "Long-polls waiting for an event"),
];

type Latency = (&'static str, &'static str, fn(&Stats) -> &Histogram);

const LATENCIES: [Latency; 2] = [
    (
        "tavern_message_delivery_seconds",
        "From publishing a message here, or its arrival from another node, to writing it to a client that is \
         connected; the oldest message of each write",
        |stats| &stats.message_delivery,
    ),
    ("tavern_poll_wakeup_seconds", "From an event for a waiting long-poll to its answer", |stats| {
        &stats.poll_wakeup
    }),
];

pub struct NodeMetrics {
    pub node: Arc<Node>,
    pub health: Arc<NodeHealth>,
    pub connections: Arc<Connections>,
    /// The data folder of a SQLite store. None: the store is elsewhere.
    pub data: Option<PathBuf>,
}

impl MetricSource for NodeMetrics {
    fn gather(&self, all: &mut Vec<Series>) {
        self.gather_shards(all);
        self.gather_latencies(all);
        self.gather_node(all);
        let free = self.data.as_ref().and_then(free_bytes);
        let help = "Free bytes on the disk of the data folder";
        all.extend(free.map(|free| Series::one("tavern_disk_free_bytes", MetricKind::Gauge, help, free)));
    }
}

impl NodeMetrics {
    fn gather_shards(&self, all: &mut Vec<Series>) {
        let counters: Vec<_> = self.node.stats.iter().map(|stats| stats.all()).collect();
        for &(counter, series, kind, help) in SHARDS {
            let (name, reason) = series.split_once('/').map_or((series, None), |(name, of)| (name, Some(of)));
            let sum: u64 = counters.iter().map(|of| find(of, counter)).sum();
            if all.last().is_none_or(|last| last.name != name) {
                all.push(Series::new(name, kind, help));
            }
            if let Some(last) = all.last_mut() {
                last.add(reason.map(|reason| ("reason", reason.into())), sum);
            }
        }
    }

    fn gather_latencies(&self, all: &mut Vec<Series>) {
        for (name, help, pick) in LATENCIES {
            let mut counts = LatencyCounts::default();
            self.node.stats.iter().for_each(|stats| pick(stats).add_to(&mut counts));
            let mut series = Series::new(name, MetricKind::Histogram, help);
            series.add_latencies(&[], &counts);
            all.push(series);
        }
    }

    fn gather_node(&self, all: &mut Vec<Series>) {
        let (node, connections) = (&self.node, &self.connections);
        let registry = &node.registry;
        let bus = node.bus_interests.bus().map(|bus| bus.counts()).unwrap_or_default();
        let store_up = self.health.is_store_up();
        let more: [(&'static str, MetricKind, &'static str, u64); 13] = [
            (
                "tavern_store_up",
                MetricKind::Gauge,
                "1 while the store accepts the lease of this node",
                u64::from(store_up),
            ),
            ("tavern_bus_up", MetricKind::Gauge, "1 while the bus answers", u64::from(is_bus_up(node))),
            ("tavern_bus_sent_total", MetricKind::Counter, "Messages sent to other nodes", bus.sent),
            (
                "tavern_bus_received_total",
                MetricKind::Counter,
                "Messages received from other nodes",
                bus.received,
            ),
            (
                "tavern_bus_failed_total",
                MetricKind::Counter,
                "Messages that could not be sent to other nodes",
                bus.failed,
            ),
            (
                "tavern_bus_losses_total",
                MetricKind::Counter,
                "How often messages of other nodes were lost",
                bus.losses,
            ),
            ("tavern_connections", MetricKind::Gauge, "Open connections", connections.open() as u64),
            (
                "tavern_connections_accepted_total",
                MetricKind::Counter,
                "Connections accepted",
                connections.accepted.load(Ordering::Relaxed),
            ),
            (
                "tavern_hellos_in_progress",
                MetricKind::Gauge,
                "Clients that are connecting or resuming",
                node.admission.in_progress() as u64,
            ),
            (
                "tavern_hellos_refused_total",
                MetricKind::Counter,
                "Clients that were asked to connect or resume later, because too many did",
                node.admission.refused(),
            ),
            (
                "tavern_channels",
                MetricKind::Gauge,
                "Channels with a subscriber on this node",
                registry.channel_count(),
            ),
            (
                "tavern_patterns",
                MetricKind::Gauge,
                "Patterns with a subscriber on this node",
                registry.pattern_count() as u64,
            ),
            (
                "tavern_panics_total",
                MetricKind::Counter,
                "Panics in this process; each is logged",
                panics::count(),
            ),
        ];
        all.extend(more.map(|(name, kind, help, number)| Series::one(name, kind, help, number)));
        let mut refused = Series::new(
            "tavern_connections_refused_total",
            MetricKind::Counter,
            "Connections refused because a limit was reached",
        );
        for (limit, count) in [
            (ConnectionLimit::Total, &connections.refused_total),
            (ConnectionLimit::PerAddress, &connections.refused_address),
        ] {
            refused.add([("reason", limit.key().into())], count.load(Ordering::Relaxed));
        }
        all.push(refused);
        let mut info = Series::new(
            "tavern_build_info",
            MetricKind::Gauge,
            "Version of the program, and the name of the node",
        );
        let (version, name) = (env!("CARGO_PKG_VERSION"), node.settings.node.as_str());
        info.add([("version", version.into()), ("node", name.into())], 1);
        all.push(info);
    }
}

/// Free bytes on the disk of this folder.
pub fn free_bytes(folder: &PathBuf) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn find(counters: &[(&'static str, u64)], name: &str) -> u64 {
    counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, number)| *number)
}

#[cfg(test)]
mod tests {
    use super::SHARDS;

    #[test]
    fn every_shard_counter_has_a_series_and_the_other_way_round() {
        let known: Vec<&str> =
            tavern_hub::node::stats::Stats::default().all().into_iter().map(|(name, _)| name).collect();
        let shown: Vec<&str> = SHARDS.iter().map(|(counter, ..)| *counter).collect();
        assert_eq!(known, shown);
    }
}
