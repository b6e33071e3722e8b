//! Topics, their events and subscriptions on the running server: handing commands to a shard (`commands`), parsing their
//! bodies (`body`, `settings`) and writing their replies (`report`), waking clients and workers that wait for events
//! (`wakeups`), the driver of the delivery worker (`delivery`) and its HTTP sender (`sender`), the matchmaker's
//! subscription (`matchmaker`), metrics (`counters`). The rules are in `tavern_hub::topics`.

mod attempt_span;
pub mod body;
pub mod commands;
mod counters;
pub mod delivery;
pub mod matchmaker;
pub mod report;
mod sender;
pub mod settings;
mod wakeups;

pub use commands::{TopicRequest, TopicShards};
pub use counters::TopicCounters;
pub use sender::{BatchSender, BodySigner, policy};
pub use wakeups::Wakeups;

use crate::clock::NodeClock;
use crate::config::Config;
use crate::health::NodeHealth;
use crate::store_client::StoreClient;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_hub::Node;
use tavern_store::Clock;

/// The owner of the server's own subscriptions: no key can have such an id.
pub const SERVER_OWNER: &str = "tavern";

/// The parts that serve topics and subscriptions.
pub struct TopicsApi {
    pub config: Arc<Config>,
    pub node: Arc<Node>,
    pub clock: Arc<NodeClock>,
    pub store: Arc<StoreClient>,
    pub health: Arc<NodeHealth>,
    /// Run the commands.
    pub shards: Arc<dyn TopicShards>,
    /// Wakes the delivery worker and the clients that pull.
    pub wakeups: Arc<Wakeups>,
    pub counters: Arc<TopicCounters>,
    pub sender: Arc<BatchSender>,
}

impl TopicsApi {
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub fn is_stopping(&self) -> bool {
        self.health.is_stopping()
    }
}
