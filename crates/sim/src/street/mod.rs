//! Presence over several nodes: the production hub with its liveness on three nodes, a store and a bus between them that
//! fail, people with several tabs who come, go and come back; nodes that crash, sleep, are cut off, stop and start.
//!
//! | file | holds |
//! |---|---|
//! | `weather` | what goes wrong with store and bus, decided by the seed |
//! | `house` | one node: its shards, its liveness, how it boots and stops |
//! | `tab` | one client: its session, its wishes, what it waits for |
//! | `world` | the street: time, who speaks to whom, carrying out what the hub wants |
//! | `act` | what happens next |
//! | `truth` | the store as it changes, each change held against what really happened |
//! | `view` | what one watcher was told, held against the truth |
//! | `heal` | the faults end: everything must come right |
//! | `boot` | how a process begins and ends |
//! | `talk` | commands, answers and events between tabs and houses |
//! | `plant`, `tamper` | faults that are planted to see that they are found |
//!
//! Must hold: everything comes from the seed; the judges (`truth`, `view`, `heal`) share no code with what they judge.

mod act;
mod boot;
mod heal;
mod house;
pub mod plant;
mod run;
mod tab;
mod talk;
mod tamper;
mod truth;
mod view;
mod weather;
mod world;

pub use plant::Plant;
pub use run::{Report, run, show};

/// Why a run is wrong.
pub type Outcome = Result<(), String>;

/// Steps of a run, unless it is told otherwise.
pub const STEPS: usize = 500;
pub const HOUSES: usize = 3;
pub const USERS: usize = 5;
pub const TABS: usize = 11;
/// A channel of each kind, and the grace of its kind. One is shorter than the window in which a session may resume.
pub const CHANNELS: [(&str, u64); 3] = [("game#A", 15_000), ("lobby#B", 5_000), ("quick#C", 1_000)];
pub const RESUME_MS: u64 = 2_000;
pub const HEARTBEAT_MS: u64 = 2_000;
pub const LEASE_MS: u64 = 10_000;
pub const DRAIN_MS: u64 = 15_000;
/// How far the clock of a node may be off, either way.
pub const SKEW_MS: u64 = 150;
