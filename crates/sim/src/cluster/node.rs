//! One node: a name under which processes start and end, and the hub of the process that runs.

use super::delivery::SimDelivery;
use super::port::{Asker, Port};
use super::process::{Starting, Stopping};
use super::socket::ConnectionId;
use crate::rng::Rng;
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::rights::Rights;
use tavern_domain::{Identity, Scopes, SessionKey, Time};
use tavern_hub::topics::delivery::DeliverySettings;
use tavern_hub::{
    ChannelUpdate, Liveness, LivenessRules, Node as HubNode, Settings, Shard, TokenVerifier, UserNotice,
};
use tavern_store::memory::MemoryEngine;
use tavern_store::{Bus, Ticket, Work, Writer};
use tavern_wire::error::{Code, Refusal};

pub struct SimNode {
    pub name: String,
    pub shards: usize,
    /// How far its clock is ahead.
    pub skew: i64,
    pub life: Life,
    /// Grows with every process of this name.
    pub process: u64,
    /// The process whose sessions all moved to other nodes or the store when it stopped.
    pub stopped: Option<u64>,
    /// When its process started.
    pub started_at: Time,
    /// When due work was last done.
    pub woken_at: Time,
}

pub enum Life {
    Down,
    Starting(Box<Starting>),
    Up(Box<Running>),
    Stopping(Box<Stopping>),
}

pub struct Running {
    pub hub: Arc<HubNode>,
    pub shards: Vec<Shard>,
    pub liveness: Liveness,
    pub port: Port,
    pub bus: Arc<dyn Bus>,
    /// Messages in flight from one shard to another.
    pub in_flight: Vec<VecDeque<(Time, InFlightInput)>>,
    /// It accepts connections.
    pub ready: bool,
    /// It sleeps: it does nothing, and its inputs wait.
    pub asleep: bool,
    /// Connections that closed while it slept.
    pub gone: Vec<ConnectionId>,
    /// It is stopping and migrates its sessions, until this moment at the latest.
    pub leaves_by: Option<Time>,
    /// They were offered to the live nodes.
    pub offered: bool,
    pub adoption: super::adoption::SimAdoption,
    pub delivery: Option<SimDelivery>,
}

/// A message from one shard to another.
pub enum InFlightInput {
    Message(tavern_hub::ShardMessage),
    Presence(ChannelUpdate),
    Status(UserNotice),
}

impl SimNode {
    pub fn new(number: usize, shards: usize) -> SimNode {
        SimNode {
            name: format!("n{number}"),
            shards,
            skew: 0,
            life: Life::Down,
            process: 0,
            stopped: None,
            started_at: Time(0),
            woken_at: Time(0),
        }
    }

    /// The time on its clock.
    pub fn local(&self, now: Time) -> Time {
        Time(now.ms().saturating_add_signed(self.skew))
    }

    /// The time at which its clock shows this.
    pub fn global(&self, local: Time) -> Time {
        Time(local.ms().saturating_add_signed(-self.skew))
    }

    pub fn running(&mut self) -> Option<&mut Running> {
        match &mut self.life {
            Life::Up(running) => Some(running),
            _ => None,
        }
    }

    /// Running and awake, whether or not it accepts connections.
    pub fn awake(&mut self) -> Option<&mut Running> {
        self.running().filter(|running| !running.asleep)
    }

    pub fn is_down(&self) -> bool {
        matches!(self.life, Life::Down)
    }

    /// It accepts connections and answers them.
    pub fn is_open(&self) -> bool {
        let open = |running: &Running| running.ready && !running.asleep && running.leaves_by.is_none();
        matches!(&self.life, Life::Up(running) if open(running))
    }

    pub fn is_asleep(&self) -> bool {
        matches!(&self.life, Life::Up(running) if running.asleep)
    }

    /// A session can be used here.
    pub fn has_session(&self, key: SessionKey) -> bool {
        let has = |shard: &Shard| shard.core.find_session(key).is_some();
        matches!(&self.life, Life::Up(running) if running.shards.iter().any(has))
    }

    pub fn writer(&self) -> Option<Writer> {
        match &self.life {
            Life::Up(running) => Some(Writer::new(&self.name, running.hub.epoch())),
            _ => None,
        }
    }

    /// When its next timer is due, by the clock of the cluster.
    pub fn next_wake(&self) -> Option<Time> {
        let Life::Up(running) = &self.life else { return None };
        if running.asleep {
            return None;
        }
        let shards = running.shards.iter().filter_map(Shard::next_wake).map(|due| self.global(due));
        let delivery = running.delivery.iter().map(|delivery| self.global(delivery.worker.next_wake()));
        let in_flight =
            running.in_flight.iter().filter_map(|in_flight| in_flight.front().map(|(due, _)| *due));
        let own = [Some(running.liveness.next_wake()), running.leaves_by, running.adoption.next_wake()];
        shards.chain(in_flight).chain(delivery).chain(own.into_iter().flatten()).min()
    }
}

/// The parameters of a process start.
pub struct Start {
    pub skew: i64,
    pub settings: Settings,
}

impl Running {
    pub fn new(
        name: &str,
        settings: Settings,
        port: Port,
        engine: &Arc<MemoryEngine>,
        rng: &mut Rng,
        (now, local): (Time, Time),
        (rules, deliveries): (LivenessRules, Option<DeliverySettings>),
    ) -> Running {
        let count = settings.shards;
        let hub = HubNode::new(settings, Box::new(Tokens));
        let bus: Arc<dyn Bus> = engine.bus(name, port.inbox.clone());
        hub.bus_interests.set_bus(bus.clone());
        let shards =
            (0..count).map(|index| Shard::new(hub.clone(), index, Box::new(rng.fork()), local)).collect();
        let delivery =
            deliveries.map(|settings| SimDelivery::new(&hub, settings, Box::new(rng.fork()), local));
        Running {
            liveness: Liveness::new(hub.clone(), rules, now),
            shards,
            hub,
            port,
            bus,
            in_flight: (0..count).map(|_| VecDeque::new()).collect(),
            ready: false,
            asleep: false,
            gone: Vec::new(),
            leaves_by: None,
            offered: false,
            adoption: super::adoption::SimAdoption::default(),
            delivery,
        }
    }

    /// Sends a store request for the process itself, which sends one at a time.
    pub fn ask(&mut self, work: Work) {
        self.port.submit(Asker::Process, Ticket(0), work);
    }
}

/// Tokens are `token-of-` and the user.
struct Tokens;

impl TokenVerifier for Tokens {
    fn verify(&self, token: &str, _now: Time) -> Result<Identity, Refusal> {
        let Some(user) = token.strip_prefix("token-of-") else {
            return Err(Refusal::new(Code::Unauthenticated, "not a token"));
        };
        Ok(Identity {
            user: Some(user.into()),
            name: None,
            rights: Arc::new(Rights::all()),
            expires: Time::NEVER,
            issued_s: 0,
            unlimited: true,
            scopes: Scopes::NONE,
            key: None,
        })
    }
}
