//! The bus of one machine: processes that use the same folder get each other's messages, through the library
//! `tavern-local`. Nodes and other users of the library share the channels: `game#A` is one channel for all of them.

mod bus;
mod name;
mod reader;
mod shared;
mod writer;

pub use bus::LocalBus;
