//! Topics, their events and subscriptions on the running server: publishing and administration (`office`), what wakes
//! those who wait for events (`wakeups`), the driver of the delivery worker (`delivery`) and its HTTP sender (`sender`),
//! retention of the log (`keeper`) and of single subscriptions (`budgets`), metrics (`counters`).

mod budgets;
mod counters;
pub mod delivery;
pub mod keeper;
pub mod matchmaker;
pub mod office;
mod sender;
mod wakeups;

pub use counters::TopicCounters;
pub use office::Office;
pub use sender::{BatchSender, policy};
pub use wakeups::Wakeups;

use crate::clock::NodeClock;
use crate::config::Config;
use crate::health::NodeHealth;
use crate::store_client::StoreClient;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_hub::Node;
use tavern_store::Clock;

/// What topics and subscriptions are worked on with.
pub struct TopicsApi {
    pub config: Arc<Config>,
    pub node: Arc<Node>,
    pub clock: Arc<NodeClock>,
    pub store: Arc<StoreClient>,
    pub health: Arc<NodeHealth>,
    /// Wakes the delivery worker and those who pull.
    pub wakeups: Arc<Wakeups>,
    pub counters: Arc<TopicCounters>,
    /// What is known of topics here.
    pub office: Office,
}

impl TopicsApi {
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub fn is_stopping(&self) -> bool {
        self.health.is_stopping()
    }
}
