//! The bus of one machine: processes that use the same folder hear each other, through the library `tavern-local`.
//! Nodes and plain users of the library share the channels: `game#A` is one channel for all of them.

mod bounds;
mod bus;
mod name;

pub use bounds::LogBounds;
pub use bus::LocalBus;
