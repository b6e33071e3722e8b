//! HTTP: the WebSocket handshake, SSE, long-poll, single commands, the server API and the pages for operators.
//! Turns requests into mail for a shard and answers into responses. Knows no rules.

mod asset;
mod body;
mod census;
mod client;
pub(crate) mod connect;
mod demo;
mod docs_site;
mod edge;
mod events;
pub mod idempotency;
mod openapi;
pub(crate) mod origin;
mod overview;
mod page;
pub mod party;
mod people;
pub(crate) mod request;
mod rest;
mod session;
mod stream;
mod user;

pub use edge::{Edge, serve};
