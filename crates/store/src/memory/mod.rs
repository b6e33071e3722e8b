//! The in-memory engine: a store and a bus inside one process, with fault injection for the simulator.

mod bus;
mod deadline;
mod document;
mod engine;
mod fault;
mod handle;
mod history;
mod hold;
mod inbox;
mod key;
mod lease;
mod log;
mod node;
mod packed;
mod page;
mod presence;
mod session;
mod social;
mod tables;

pub use engine::MemoryEngine;
pub use fault::{Faults, MessageFault, NoFaults, WorkFault, WorkOutcome};
pub use handle::{MemoryBus, MemoryStore};
