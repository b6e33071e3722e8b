//! Topics and their subscriptions on one node: how a queue is read from the log (`reading`).
//! Knows no sockets: posts go out as effects.

mod reading;

pub use reading::{Reading, Took};
