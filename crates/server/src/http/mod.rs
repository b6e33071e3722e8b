//! HTTP: the WebSocket handshake, SSE, long-poll, single commands, the server API and the pages for operators.
//! Turns requests into inputs for a shard and answers into responses. Knows no rules.

mod api;
mod asset;
mod body;
mod census;
mod client;
pub(crate) mod connect;
mod demo;
mod docs_site;
mod edge;
mod idempotency;
mod openapi;
pub(crate) mod origin;
mod overview;
mod page;
mod party;
mod people;
pub(crate) mod request;
mod rest;
mod session;
mod stream;
mod topics;
mod user;

pub use api::Api;
pub use edge::{Edge, serve};
pub use idempotency::Remembered;
pub use party::Pings;
