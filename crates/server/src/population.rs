//! How many users, sessions, connections, channels, presences and parties there are: on this node, which counts as they come
//! and go, and in the cluster, where nodes tell each other theirs and the store knows the rest.
//! Must hold: reading costs the same whatever the numbers; a node that does not live any more does not count.

use crate::connections::{ClientTransport, Connections};
use crate::metrics::{MetricKind, MetricSource, Series};
use crate::store_client::{StoreClient, StoreClientError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tavern_hub::Node;
use tavern_store::{Found, Read, StoreError, StoreTotals};
use tavern_wire::bus::control::NodeCounts;
use tavern_wire::json::api::{ClusterStats, NodeStats, StatsReport, TransportCounts};
use tokio::time::MissedTickBehavior;

/// How often this node tells the others what has changed, and reads the totals of the store for the metrics.
const INTERVAL: Duration = Duration::from_secs(1);
/// Intervals after which it tells the others although nothing has changed: a message may be lost, a node may be new.
const REPEAT: u32 = 5;

pub struct ClusterPopulation {
    node: Arc<Node>,
    store: Arc<StoreClient>,
    connections: Arc<Connections>,
    /// As last read, for the metrics. None: never.
    totals: Mutex<Option<StoreTotals>>,
}

impl ClusterPopulation {
    pub fn new(
        node: Arc<Node>,
        store: Arc<StoreClient>,
        connections: Arc<Connections>,
    ) -> Arc<ClusterPopulation> {
        Arc::new(ClusterPopulation { node, store, connections, totals: Mutex::default() })
    }

    /// Keeps the other nodes and the metrics up to date until the server stops.
    pub async fn run(self: Arc<ClusterPopulation>) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut reported, mut unchanged) = (NodeCounts::default(), REPEAT);
        loop {
            interval.tick().await;
            let counts = self.here();
            unchanged += 1;
            if counts != reported || unchanged >= REPEAT {
                (reported, unchanged) = (counts, 0);
                self.node.share_counts(&counts);
            }
            match self.read_totals().await {
                Ok(totals) => *self.totals.lock().unwrap_or_else(PoisonError::into_inner) = Some(totals),
                Err(error) => tracing::debug!(%error, "cannot read the totals"),
            }
        }
    }

    /// What this node has.
    fn here(&self) -> NodeCounts {
        let open = |transport| self.connections.open_by(transport);
        NodeCounts {
            users: self.node.population.users(),
            sessions: self.node.population.sessions(),
            websocket: open(ClientTransport::WebSocket),
            sse: open(ClientTransport::Sse),
            poll: open(ClientTransport::Poll),
            redis: open(ClientTransport::Redis),
            channels: self.node.registry.channel_count(),
        }
    }

    async fn read_totals(&self) -> Result<StoreTotals, StoreClientError> {
        match self.store.read(Read::Totals).await? {
            Found::Totals(totals) => Ok(totals),
            _ => Err(StoreClientError::Store(StoreError::timeout())),
        }
    }

    fn totals(&self) -> Option<StoreTotals> {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Users online in the whole cluster, about a second ago. None: the store has not been read yet.
    pub fn users_online(&self) -> Option<u64> {
        self.totals().map(|totals| count(totals.users))
    }

    /// Users online, presences and parties are exact: the store is asked now.
    pub async fn report(&self) -> Result<StatsReport<'_>, StoreClientError> {
        let totals = self.read_totals().await?;
        let here = self.here();
        let others = self.node.population.others(&self.node.other_nodes());
        let mut all = here;
        for other in &others {
            all.users += other.users;
            all.sessions += other.sessions;
            all.websocket += other.websocket;
            all.sse += other.sse;
            all.poll += other.poll;
            all.redis += other.redis;
            all.channels += other.channels;
        }
        Ok(StatsReport {
            cluster: ClusterStats {
                channels: all.channels,
                connections: TransportCounts::from(&all),
                nodes: others.len() + 1,
                parties: count(totals.parties),
                presences: count(totals.presences),
                sessions: all.sessions,
                users_online: count(totals.users),
            },
            node: NodeStats {
                channels: here.channels,
                connections: TransportCounts::from(&here),
                node: &self.node.settings.node,
                sessions: here.sessions,
                users: here.users,
            },
        })
    }
}

impl MetricSource for ClusterPopulation {
    fn gather(&self, all: &mut Vec<Series>) {
        let totals = self.totals().unwrap_or_default();
        let here = self.here();
        let mut gauge = |name, help, value| all.push(Series::one(name, MetricKind::Gauge, help, value));
        gauge("tavern_users_online", "Users online in the whole cluster", count(totals.users));
        gauge("tavern_users", "Users with a session on this node", here.users);
        gauge(
            "tavern_presences",
            "Users in channels in the whole cluster, counted once for each channel",
            count(totals.presences),
        );
        gauge("tavern_parties", "Parties in the whole cluster", count(totals.parties));
        let name = "tavern_transport_connections";
        let mut connections =
            Series::new(name, MetricKind::Gauge, "Connections of clients to this node by transport");
        for transport in ClientTransport::ALL {
            let open = self.connections.open_by(transport);
            connections.add([("transport", transport.as_str().into())], open);
        }
        all.push(connections);
    }
}

fn count(total: i64) -> u64 {
    total.max(0).cast_unsigned()
}
