//! Topics, their events and subscriptions on the running server: the office where they are published to and made (`office`),
//! the bell that wakes whoever waits for events (`bell`), who drives the deliveries (`courier`), who keeps the log
//! within its budgets (`keeper`), and subscriptions within their own (`budgets`, `backlog`), what goes out (`post`), what was counted (`tally`).

mod backlog;
mod bell;
mod budgets;
pub mod courier;
pub mod keeper;
pub mod matchmaker;
pub mod office;
mod post;
mod tally;

pub use bell::Bell;
pub use office::Office;
pub use post::{Postman, policy};
pub use tally::Tally;

use crate::clock::NodeClock;
use crate::config::Config;
use crate::health::Health;
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
    pub health: Arc<Health>,
    /// Wakes the delivery worker and those who pull.
    pub bell: Arc<Bell>,
    pub tally: Arc<Tally>,
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
