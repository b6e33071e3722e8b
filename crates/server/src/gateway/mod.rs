//! What gateways for clients of other protocols share: the `link` to a session in the hub, the `socket`, the parts of the server
//! that they use. Knows no protocol above the WebSocket.
// The Radar gateway alone does not use all of it.
#![cfg_attr(not(feature = "pusher"), allow(dead_code))]

mod link;
mod socket;

pub use link::HubLink;
pub use socket::{GatewaySocket, SocketEvent};

use crate::auth::Authenticator;
use crate::byte_budget::ByteBudget;
use crate::clock::NodeClock;
use crate::config::Config;
use crate::shard::Shards;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_hub::Node;
use tavern_store::Clock;

/// The parts of the server that gateways use.
#[derive(Clone)]
pub struct GatewaySources {
    pub config: Arc<Config>,
    pub node: Arc<Node>,
    pub shards: Shards,
    pub clock: Arc<NodeClock>,
    pub authenticator: Arc<Authenticator>,
    pub unauthenticated: Arc<ByteBudget>,
}

impl GatewaySources {
    pub fn now(&self) -> Time {
        self.clock.now()
    }
}
