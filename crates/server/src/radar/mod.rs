//! Radar's clients: Engine.IO connections (`connection`, on polls or a socket), each with a `session` that turns Radar's
//! requests into commands of a hub session and its events into Radar's messages.
//! Must hold: a connection that closes is lost at once; before its first accepted request it holds little and not for long.

mod connection;
mod hub_sessions;
mod login;
mod registry;
mod scopes;
mod session;

pub use connection::EngineInput;
pub use registry::{EngineHandle, RadarServer};
