//! Load on a server of messages, and the harness that compares Tavern with its peers.
//! Speaks the Redis protocol, NATS, the JSON protocol over WebSocket and the long-poll, each only as far as
//! publishing and listening need. Knows no rule of Tavern and links none of its crates, so that a figure
//! measured here is a figure any client would see.
//! Must hold: the same workload is the same bytes in the same batches for every server; one thread makes the
//! whole load of messages, because it shares the cores with the server it measures.

mod cases;
pub mod cli;
pub mod cluster;
mod crowd;
mod dial;
pub mod events;
pub(crate) mod figure;
mod frame;
pub mod harness;
pub mod load;
pub mod parties;
pub mod presence;
mod process;
mod publisher;
mod report;
mod run;
mod scan;
mod stage;
mod stamp;
mod subscriber;
mod table;
mod target;

pub use load::{Length, Load, Outcome, ServerUse};
pub use run::{Silent, Watch, run};
pub use target::{Protocol, Target};
