//! What every part of the running server may use: the configuration, the node, the shards' inboxes, the gate.

use crate::auth::{self, Credential};
use crate::clock::HouseClock;
use crate::config::Config;
use crate::desk::Desk;
use crate::health::Health;
use crate::http::idempotency::Remembered;
use crate::resp::clients::Clients;
use crate::shard::inbox::Inbox;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tavern_domain::{Identity, Time};
use tavern_hub::{Gate, Node};
use tavern_store::Clock;
use tavern_wire::error::{Code, Refusal};

pub struct Services {
    pub config: Arc<Config>,
    pub node: Arc<Node>,
    pub inboxes: Vec<Arc<Inbox>>,
    pub gate: Arc<auth::Gate>,
    /// Only the server reads a clock; everybody else is told.
    pub clock: Arc<HouseClock>,
    /// The way to the store.
    pub desk: Arc<Desk>,
    pub clients: Clients,
    /// Rung when there are events, or subscriptions change.
    pub bell: Arc<crate::events::Bell>,
    pub tally: crate::events::Tally,
    pub history: crate::history::History,
    /// What is known of topics here.
    pub office: crate::events::Office,
    pub remembered: Remembered,
    /// Who pings for events of parties.
    pub pings: crate::http::party::Pings,
    pub runtime: tokio::runtime::Handle,
    /// What the app is asked through, when it is.
    pub hook: Option<crate::hook::Hook>,
    pub started: Instant,
    pub health: Arc<Health>,
    /// Rung when another node has left sessions in the store.
    pub left: Arc<tokio::sync::Notify>,
    pub doors: Arc<crate::door::Counts>,
    next_shard: AtomicUsize,
}

/// The parts that boot puts together.
pub struct Parts {
    pub config: Arc<Config>,
    pub node: Arc<Node>,
    pub inboxes: Vec<Arc<Inbox>>,
    pub gate: Arc<auth::Gate>,
    pub desk: Arc<Desk>,
    pub clock: Arc<HouseClock>,
    pub health: Arc<Health>,
    pub runtime: tokio::runtime::Handle,
    pub hook: Option<crate::hook::Hook>,
    pub doors: Arc<crate::door::Counts>,
}

impl Services {
    pub fn new(parts: Parts) -> Arc<Services> {
        let Parts { config, node, inboxes, gate, desk, clock, health, runtime, hook, doors } = parts;
        let remembered = Remembered::new(config.limits.idempotency_keys);
        Arc::new(Services {
            config,
            node,
            inboxes,
            gate,
            desk,
            clock,
            clients: Clients::default(),
            bell: Arc::default(),
            tally: crate::events::Tally::default(),
            history: crate::history::History::default(),
            office: crate::events::Office::default(),
            remembered,
            pings: crate::http::party::Pings::default(),
            runtime,
            hook,
            started: Instant::now(),
            health,
            left: Arc::default(),
            doors,
            next_shard: AtomicUsize::new(0),
        })
    }

    /// The time by which everything is decided.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Newcomers go to the shards in turn.
    pub fn next_shard(&self) -> usize {
        self.next_shard.fetch_add(1, Ordering::Relaxed) % self.inboxes.len()
    }

    /// Another shard or the bus has more to carry than it can: publishers must wait.
    pub fn is_congested(&self) -> bool {
        self.inboxes.iter().any(|inbox| inbox.is_full())
            || self.node.carrier.bus().is_some_and(|bus| bus.is_full())
    }

    /// Other nodes can be reached, as far as is known.
    pub fn is_bus_well(&self) -> bool {
        self.node.carrier.bus().is_none_or(|bus| bus.is_well())
    }

    pub fn is_stopping(&self) -> bool {
        self.health.is_stopping()
    }
}

/// Checks the tokens of `hello` for the hub. A key that must be looked up first does not belong there.
pub struct TokenGate(pub Arc<auth::Gate>);

impl Gate for TokenGate {
    fn verify(&self, token: &str, now: Time) -> Result<Identity, Refusal> {
        let decided = self.0.admit_now(&Credential::of(token), now);
        let decided = decided.unwrap_or(Err(auth::AuthError::Malformed));
        decided.map_err(|error| Refusal::new(Code::Unauthenticated, error.to_string()))
    }
}
