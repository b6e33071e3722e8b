//! What lives on a Redis server: the bus.

mod bus;
mod resp;

pub use bus::open;
