//! The in-memory engine: a store and a bus inside one process, with fault injection for the simulator.

mod bus;
mod deadline;
mod document;
mod engine;
mod fault;
mod handle;
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
#[doc(hidden)]
pub use engine::MemoryEngine as Hall;
pub use fault::{Faults, MessageFault, NoFaults, WorkFault, WorkOutcome};
#[doc(hidden)]
pub use fault::{MessageFault as ParcelFate, WorkFault as WorkFate, WorkOutcome as Outcome};
pub use handle::{MemoryBus, MemoryStore};
