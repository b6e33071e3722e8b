//! Workloads: the actions of simulated clients, and the invariants. A workload chooses actions at random, performs
//! them, and judges the results. Actions are lines of text, so that a run can be recorded and replayed.
//! Must hold: the judges share no code with what they judge.

mod calm;
pub mod history;
mod inbox;
pub mod messages;
pub mod migration;
pub mod parties;
pub mod people;
pub mod presence;
mod promise;
pub mod topics;
mod view;

use crate::cluster::{Cluster, Setup, Signal};
use crate::planted::PlantedFault;
use crate::rng::Rng;
use tavern_domain::Time;
use tavern_hub::{LivenessRules, Settings};

/// A violated invariant, or nothing.
pub type Outcome = Result<(), String>;

pub trait Workload {
    fn profile(&self) -> Profile;

    /// The settings of a process that starts. The variant is chosen at random and recorded with the start.
    fn settings(&self, variant: u64, fault: Option<PlantedFault>) -> Settings;

    /// The actions before the first process starts.
    fn choose_first(&mut self, _rng: &mut Rng) -> Vec<String> {
        Vec::new()
    }

    /// The next actions of clients.
    fn choose(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String>;

    /// Performs a line of `choose`, now or in a recorded run.
    fn perform(&mut self, cluster: &mut Cluster, words: &[&str]) -> Outcome;

    /// A signal of the cluster.
    fn observe(&mut self, cluster: &mut Cluster, signal: Signal) -> Outcome;

    /// The actions of clients when the faults have ended.
    fn choose_last(&mut self, cluster: &Cluster, rng: &mut Rng) -> Vec<String>;

    /// Checks the invariants of the final state.
    fn check_end(&mut self, cluster: &Cluster) -> Outcome;

    /// When clients act on their own.
    fn next_wake(&self) -> Option<Time> {
        None
    }

    fn wake(&mut self, _cluster: &mut Cluster) -> Outcome {
        Ok(())
    }

    /// The node that most clients are on.
    fn busiest_node(&self) -> usize {
        0
    }

    /// How often each thing happened: a campaign in which nothing happens proves nothing.
    fn counts(&self) -> Vec<(&'static str, u64)>;
}

/// The heartbeats, leases and sweeps of a simulated node, unless a workload has its own.
pub const LIVENESS: LivenessRules = LivenessRules {
    heartbeat_ms: 2_000,
    lease_ms: 10_000,
    drain_ms: 15_000,
    sweep_ms: 60_000,
    sweep_age_ms: 120_000,
};

/// The shards of each node: as given, or one or two at random.
fn shards_of(given: &[usize], nodes: usize, rng: &mut Rng) -> Vec<usize> {
    let random = (0..nodes).map(|_| 1 + rng.below(2));
    if given.is_empty() { random.collect() } else { given.to_vec() }
}

/// A client connects to the node it was on (`stay` percent of the time) or to any other, if that node accepts
/// connections.
fn choose_connect(cluster: &Cluster, rng: &mut Rng, who: usize, own: usize, stay: usize) -> Option<String> {
    let node = if rng.chance(stay) { own } else { rng.below(cluster.nodes.len()) };
    let shard = rng.below(2);
    cluster.nodes[node].is_open().then(|| format!("client {who} connect {node} {shard}"))
}

/// The cluster that a workload needs, and its faults.
#[derive(Clone, Debug)]
pub struct Profile {
    pub setup: Setup,
    pub trouble: Trouble,
    /// The longest time of a step: in 70, 22, 7 and 1 percent of cases.
    pub pace_ms: [usize; 4],
    /// The last fault of a run: a node sleeps for this long.
    pub last_sleep_ms: u64,
    /// How long recovery may take when the faults have ended.
    pub end_ms: u64,
}

impl Profile {
    /// Sessions that move between nodes, and every kind of fault.
    fn with_moves(shards: &[usize], skew_ms: u64) -> Profile {
        Profile {
            setup: Setup {
                shards: shards.to_vec(),
                rules: LIVENESS,
                moves: true,
                ordered_channels: true,
                deliveries: None,
                shard_delay_ms: 0,
            },
            trouble: Trouble {
                nodes: 16,
                crash: 3,
                stop: 2,
                sleep: 2,
                cut: 2,
                level: 10,
                level_max: 10,
                skew_ms,
            },
            pace_ms: [60, 400, 2_500, 10_000],
            last_sleep_ms: LIVENESS.lease_ms + 2 * LIVENESS.heartbeat_ms,
            // Long enough for a lease, every grace period and every invite.
            end_ms: 60_000,
        }
    }
}

/// How often a node fails, and how; in shares.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Per thousand steps.
    pub nodes: usize,
    pub crash: usize,
    pub stop: usize,
    pub sleep: usize,
    pub cut: usize,
    /// Per thousand steps: how often the level of faults changes, and how far.
    pub level: usize,
    pub level_max: usize,
    /// How far the clock of a node may be off, either way.
    pub skew_ms: u64,
}

/// The name of a workload, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    History,
    Messages,
    Migration,
    Parties,
    People,
    Presence,
    Topics,
}

impl Name {
    pub const ALL: &[Name] = &[
        Name::History,
        Name::Messages,
        Name::Migration,
        Name::Parties,
        Name::People,
        Name::Presence,
        Name::Topics,
    ];

    pub fn text(self) -> &'static str {
        match self {
            Name::History => "history",
            Name::Messages => "messages",
            Name::Migration => "migration",
            Name::Parties => "parties",
            Name::People => "people",
            Name::Presence => "presence",
            Name::Topics => "topics",
        }
    }

    pub fn parse(text: &str) -> Option<Name> {
        Name::ALL.iter().copied().find(|name| name.text() == text)
    }

    /// The number of steps of a run, unless another is given.
    pub fn steps(self) -> usize {
        match self {
            Name::History => history::STEPS,
            Name::Messages => messages::STEPS,
            Name::Migration => migration::STEPS,
            Name::Parties => parties::STEPS,
            Name::People => people::STEPS,
            Name::Presence => presence::STEPS,
            Name::Topics => topics::STEPS,
        }
    }

    /// The faults that its judges must find.
    pub fn planted(self) -> &'static [PlantedFault] {
        match self {
            Name::History => PlantedFault::HISTORY,
            Name::Messages => PlantedFault::MESSAGES,
            Name::Migration => PlantedFault::MIGRATION,
            Name::Parties => PlantedFault::PARTIES,
            Name::People => PlantedFault::PEOPLE,
            Name::Presence => PlantedFault::PRESENCE,
            Name::Topics => PlantedFault::TOPICS,
        }
    }

    /// A workload for a new run. The numbers are the shards of each node; empty: random.
    pub fn begin(self, shards: &[usize], rng: &mut Rng) -> Box<dyn Workload> {
        match self {
            Name::History => Box::new(history::HistoryWorkload::new(shards, rng)),
            Name::Messages => Box::new(messages::MessagesWorkload::new(shards)),
            Name::Migration => Box::new(migration::MigrationWorkload::new(shards, rng)),
            Name::Parties => Box::new(parties::PartiesWorkload::new(shards, rng)),
            Name::People => Box::new(people::PeopleWorkload::new(shards, rng)),
            Name::Presence => Box::new(presence::PresenceWorkload::new(shards, rng)),
            Name::Topics => Box::new(topics::TopicsWorkload::new(shards, rng)),
        }
    }
}

/// A number in a line.
pub fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word} is not a valid number"))
}
