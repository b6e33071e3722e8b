//! The deterministic simulator: the production hub in a cluster whose time, randomness and sockets come from one seed.
//! Not shipped. `tavern-sim --workload presence --seed N` replays a run.
//!
//! | module | holds |
//! |---|---|
//! | `cluster` | nodes, store, bus, connections, the clock |
//! | `faults` | faults between nodes and engines |
//! | `planted` | faults that the judges must find |
//! | `workload` | the actions of clients and the invariants |
//! | `session_client` | a client as most workloads need it |
//! | `run` | one run, from a seed or from a script |
//! | `script` | a recorded run as text |
//! | `shrink` | makes a recorded failure small |
#![forbid(unsafe_code)]

pub mod cluster;
pub mod faults;
pub mod planted;
pub mod rng;
pub mod run;
pub mod script;
pub mod session_client;
pub mod shrink;
mod swarm;
pub mod trace;
pub mod workload;
