//! The parts of the server that HTTP handlers use.

use super::audit::RecordedReads;
use super::idempotency::IdempotencyKeys;
use super::party::Pings;
use crate::auth::Authenticator;
use crate::byte_budget::ByteBudget;
use crate::clock::NodeClock;
use crate::config::Config;
use crate::connections::Connections;
use crate::health::NodeHealth;
use crate::load::ClusterLoad;
use crate::metrics::MetricSources;
use crate::population::ClusterPopulation;
use crate::practice::Practice;
#[cfg(feature = "pusher")]
use crate::pusher::PusherServer;
use crate::radar::RadarServer;
use crate::refusal_log::RefusalLogs;
use crate::shard::Shards;
use crate::store_client::StoreClient;
use crate::topics::TopicsApi;
use crate::traces::Tracer;
use crate::unread_replies::UnreadReplies;
use std::sync::Arc;
use std::time::Instant;
use tavern_domain::Time;
use tavern_hub::Node;
use tavern_store::Clock;

pub struct HttpApi {
    pub config: Arc<Config>,
    pub node: Arc<Node>,
    pub shards: Shards,
    pub clock: Arc<NodeClock>,
    pub store: Arc<StoreClient>,
    pub authenticator: Arc<Authenticator>,
    pub topics: Arc<TopicsApi>,
    pub health: Arc<NodeHealth>,
    pub connections: Arc<Connections>,
    pub unauthenticated: Arc<ByteBudget>,
    pub unread: Arc<UnreadReplies>,
    pub metrics: Arc<MetricSources>,
    pub population: Arc<ClusterPopulation>,
    pub load: Arc<ClusterLoad>,
    pub started: Instant,
    pub idempotency: IdempotencyKeys,
    pub pings: Pings,
    pub recorded_reads: RecordedReads,
    pub practice: Arc<Practice>,
    /// None: Radar's clients are not served.
    pub radar: Option<Arc<RadarServer>>,
    /// None: there is no Pusher app.
    #[cfg(feature = "pusher")]
    pub pusher: Option<Arc<PusherServer>>,
    pub tracer: Option<Arc<Tracer>>,
    /// Refused origins, hosts and handshakes in the log.
    pub refusals: RefusalLogs,
    /// Serves connections that come back from a shard.
    pub runtime: tokio::runtime::Handle,
}

impl HttpApi {
    pub fn now(&self) -> Time {
        self.clock.now()
    }
}
