//! The protocols of Tavern as bytes: JSON frames, SSE, WebSocket frames, the Redis protocol, Engine.IO with Radar's messages,
//! the messages between nodes, stored records, and the error codes. No sockets and no rules: bytes in, bytes out.
//! Must hold: no input makes it panic, recurse without bound, or allocate an announced length in advance.
#![forbid(unsafe_code)]

pub mod bus;
pub mod engineio;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod gateway;
pub mod http1;
pub mod json;
mod nearest;
pub mod otlp;
pub mod radar;
pub mod record;
pub mod resp;
pub mod sse;
pub mod ws;

pub use error::{Code, Refusal};
pub use nearest::nearest;
