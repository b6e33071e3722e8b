//! Clients of the Pusher protocol: the apps of this server (`registry`), and for each socket a task (`connection`) that turns
//! the client's frames into commands of hub `sessions` (`client`, `subscriptions`), and their events into Pusher's (`delivery`).
//! Must hold: a socket reaches the channels and users of its own app only; one command is under way at a time.

mod client;
mod connection;
mod delivery;
mod registry;
mod sessions;
mod subscriptions;

pub use registry::PusherServer;
