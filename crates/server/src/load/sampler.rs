//! Reads this node's figures every second, and asks another node for its load every two: the time until its answer is the
//! latency of the bus.

use super::ClusterLoad;
use super::figures::{LEVEL_NAMES, LoadReading};
use crate::clock::NodeClock;
use crate::connections::{ClientTransport, Connections};
use crate::metrics::{free_bytes, process_usage};
use crate::population::ClusterPopulation;
use crate::store_client::StoreClient;
use crate::topics::TopicCounters;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_hub::Node;
use tavern_hub::node::histogram::LatencyCounts;
use tavern_hub::node::stats::Stats;
use tavern_store::{Clock, SystemClock};
use tokio::time::MissedTickBehavior;

const TICK: Duration = Duration::from_secs(1);

/// The sources of the figures.
pub struct LoadSampler {
    pub load: Arc<ClusterLoad>,
    pub node: Arc<Node>,
    pub store: Arc<StoreClient>,
    pub clock: Arc<NodeClock>,
    pub connections: Arc<Connections>,
    pub counters: Arc<TopicCounters>,
    pub population: Arc<ClusterPopulation>,
    /// The data folder of a SQLite store. None: the store is elsewhere.
    pub data: Option<PathBuf>,
}

impl LoadSampler {
    /// Reads for as long as the server runs.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for tick in 0_u64.. {
            ticks.tick().await;
            self.load.history.observe(self.clock.now(), self.reading());
            if tick % 2 == 0 {
                self.load.probe(tick as usize / 2);
            }
        }
    }

    fn reading(&self) -> LoadReading {
        let sum = |pick: fn(&Stats) -> u64| self.node.stats.iter().map(|stats| pick(stats)).sum::<u64>();
        let events = self.counters.sums();
        let usage = process_usage();
        let mut delivery = LatencyCounts::default();
        self.node.stats.iter().for_each(|stats| stats.message_delivery.add_to(&mut delivery));
        LoadReading {
            at: Instant::now(),
            counters: [
                sum(|stats| stats.published.get()),
                sum(|stats| stats.delivered.get()),
                sum(|stats| stats.dropped_full.get() + stats.dropped_budget.get()),
                sum(|stats| stats.commands.get()),
                events.accepted,
                events.delivered,
                events.failed,
            ],
            cpu_ms: usage.map(|usage| usage.cpu_ms),
            latencies: [delivery, self.store.latencies(), self.load.bus_latencies()],
            levels: self.levels(usage.map(|usage| usage.resident_bytes)),
        }
    }

    fn levels(&self, resident_bytes: Option<u64>) -> [f32; LEVEL_NAMES] {
        let known = |number: Option<u64>| number.map_or(f32::NAN, |number| number as f32);
        let open = |transport| self.connections.open_by(transport) as f32;
        let (queued, oldest_ms) = self.counters.backlog();
        let offset_ms = SystemClock.now().0.cast_signed() - self.clock.now().0.cast_signed();
        [
            known(self.population.users_online()),
            self.node.population.users() as f32,
            self.node.population.sessions() as f32,
            open(ClientTransport::WebSocket),
            open(ClientTransport::Sse),
            open(ClientTransport::Poll),
            open(ClientTransport::Redis),
            self.node.registry.channel_count() as f32,
            queued as f32,
            oldest_ms as f32,
            known(resident_bytes),
            known(self.data.as_ref().and_then(free_bytes)),
            offset_ms as f32,
        ]
    }
}
