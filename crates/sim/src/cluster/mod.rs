//! The simulated cluster: nodes that run the production hub, one store and one bus between them that fail, clients'
//! connections, and a clock that only the run advances. It executes and reports (`Signal`); the actions of clients and
//! the invariants are in the workloads.
//!
//! | file | holds |
//! |---|---|
//! | `node` | one node and the hub of its process |
//! | `port` | the connection of a process to the store and the bus |
//! | `process` | how a process starts, stops, crashes, sleeps |
//! | `delivery` | topics: publishers' commands and the delivery worker |
//! | `adoption` | sessions of stopped nodes are adopted |
//! | `turn` | the work of a server after each turn of a shard |
//! | `socket` | the connections of clients |
//! | `signal` | what clients and judges see |
//! | `tamper`, `tamper_topics` | planted faults between the hub and the cluster |
//!
//! Must hold: everything depends on the seed or the script alone; nothing here knows the invariants of a workload.

mod adoption;
mod delivery;
mod node;
mod port;
mod process;
pub mod signal;
pub mod socket;
mod tamper;
mod tamper_topics;
mod turn;

pub use node::{SimNode, Start};
pub use signal::{Ended, Exit, Signal};
pub use socket::{ConnectionId, SimPoll};

use crate::faults::SimFaults;
use crate::planted::{Planted, PlantedFault};
use crate::rng::Rng;
use crate::trace::{BEGINS, Trace};
use socket::{ParkedPoll, Socket};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_hub::topics::delivery::DeliverySettings;
use tavern_hub::{LivenessRules, Scratch, read_session};
use tavern_store::memory::MemoryEngine;
use tavern_store::{Found, ManualClock, Read};

pub struct Cluster {
    pub now: Time,
    pub nodes: Vec<SimNode>,
    pub faults: SimFaults,
    pub planted: Planted,
    pub trace: Trace,
    /// How often a node was declared dead and started a new epoch.
    pub new_epochs: usize,
    clock: Arc<ManualClock>,
    engine: Arc<MemoryEngine>,
    rng: Rng,
    rules: LivenessRules,
    moves: bool,
    deliveries: Option<DeliverySettings>,
    shard_delay_ms: u64,
    commits: u64,
    signals: VecDeque<Signal>,
    sockets: BTreeMap<ConnectionId, Socket>,
    polls: BTreeMap<ConnectionId, ParkedPoll>,
    /// Maps a link of the hub to its connection.
    connections: BTreeMap<u32, ConnectionId>,
    links: u32,
    scratch: Scratch,
}

/// The configuration of a cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How many shards each node has.
    pub shards: Vec<usize>,
    pub rules: LivenessRules,
    /// Sessions migrate between live nodes, and any node adopts the sessions of a stopped one.
    pub moves: bool,
    /// Messages of channels keep one order between nodes.
    pub ordered_channels: bool,
    /// How events are delivered; none: no node delivers.
    pub deliveries: Option<DeliverySettings>,
    /// The longest delay of a message from one shard of a node to another.
    pub shard_delay_ms: u64,
}

impl Cluster {
    pub fn new(seed: u64, setup: &Setup, fault: Option<PlantedFault>, trace: Trace) -> Cluster {
        let mut rng = Rng::new(seed ^ 0x5eed_0057_4ee7);
        let clock = Arc::new(ManualClock::at(BEGINS));
        let faults = SimFaults::new(rng.fork());
        faults.state().ordered_channels = setup.ordered_channels;
        if fault == Some(PlantedFault::NoResync) {
            faults.state().bus_loss = 60;
        }
        let nodes = setup.shards.iter().enumerate().map(|(number, shards)| SimNode::new(number, *shards));
        Cluster {
            now: BEGINS,
            nodes: nodes.collect(),
            engine: MemoryEngine::stepped(clock.clone(), Box::new(faults.clone())),
            planted: Planted::new(fault, rng.fork()),
            faults,
            trace,
            new_epochs: 0,
            clock,
            rng,
            rules: setup.rules,
            moves: setup.moves,
            deliveries: setup.deliveries,
            shard_delay_ms: setup.shard_delay_ms,
            commits: 0,
            signals: VecDeque::new(),
            sockets: BTreeMap::new(),
            polls: BTreeMap::new(),
            connections: BTreeMap::new(),
            links: 0,
            scratch: Scratch::default(),
        }
    }

    /// The next signal that was not handled yet.
    pub fn next_signal(&mut self) -> Option<Signal> {
        self.signals.pop_front()
    }

    /// Does the next thing that is due. False: nothing is.
    pub fn step(&mut self) -> bool {
        for at in 0..self.nodes.len() {
            if self.take_in(at) {
                return true;
            }
        }
        if self.engine.step() {
            if self.engine.commits() != self.commits {
                self.commits = self.engine.commits();
                self.signals.push_back(Signal::Committed);
            }
            return true;
        }
        (0..self.nodes.len()).any(|at| self.wake_due(at))
    }

    /// When the next thing is due.
    pub fn next_due(&self) -> Option<Time> {
        self.nodes.iter().filter_map(SimNode::next_wake).chain(self.engine.next_due()).min()
    }

    /// Advances the clock. Everything that is due before must have been done.
    pub fn set_time(&mut self, now: Time) {
        self.clock.advance(now.since(self.now));
        self.now = now;
    }

    pub fn local(&self, node: usize) -> Time {
        self.nodes[node].local(self.now)
    }

    /// The rows in the store now, independent of what is in progress.
    pub fn peek(&self, read: Read) -> Found {
        self.engine.peek(read)
    }

    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Whether no node sleeps or is cut off.
    pub fn is_sound(&self) -> bool {
        self.faults.state().cut.is_empty() && !self.nodes.iter().any(SimNode::is_asleep)
    }

    /// The nodes on which a session can be used.
    pub fn owners(&self, session: &str) -> Vec<usize> {
        let Some((key, _)) = read_session(session) else { return Vec::new() };
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, node)| node.has_session(key)).map(|(at, _)| at).collect()
    }

    /// Whether the store considers a node alive.
    pub fn is_current(&self, node: usize) -> bool {
        let Some(writer) = self.nodes[node].writer() else { return false };
        let Found::Nodes(page) = self.peek(Read::Nodes { after: None, limit: 1000 }) else { return false };
        page.rows.iter().any(|known| known.writer == writer && known.closed_at.is_none())
    }
}
