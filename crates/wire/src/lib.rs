//! The public protocol as bytes: JSON frames, SSE, WebSocket frames, the Redis protocol, what nodes say on the bus,
//! the error codes.
//! Knows no sockets and no rules: bytes in, bytes out.
//! Must hold: no input makes it panic, recurse without bound, or allocate from an announced length.
#![forbid(unsafe_code)]

pub mod bus;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod json;
pub mod record;
pub mod resp;
pub mod sse;
pub mod ws;

pub use error::{Code, Refusal};
