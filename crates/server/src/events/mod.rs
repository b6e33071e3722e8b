//! Topics, their events and subscriptions on the running server: the bell that wakes whoever waits for events (`bell`).

mod bell;

pub use bell::{Bell, Rung};
