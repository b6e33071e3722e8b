//! Topics and their subscriptions on one node: how a queue is read from the log (`reading`), and how it is delivered to
//! endpoints (`delivery`). Knows no sockets: posts are effects. The rules of deliveries are in `tavern_domain::delivery`.

pub mod delivery;
mod reading;

pub use reading::{Reading, Took};
