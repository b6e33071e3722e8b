//! HTTP: the WebSocket handshake, SSE, long-poll, single commands, the server API and the pages for operators.
//! Turns requests into inputs for a shard and answers into responses. Knows no rules.

mod api;
mod asset;
mod attempts;
mod audit;
mod body;
mod client;
pub(crate) mod connect;
mod control;
mod dashboard;
mod demo;
mod docs_site;
mod engineio;
mod history;
mod http1;
mod idempotency;
mod key_holder;
mod keys;
mod lists;
mod openapi;
pub(crate) mod origin;
mod overview;
mod parameters;
mod party;
mod people;
mod poll;
mod publish;
#[cfg(feature = "pusher")]
mod pusher;
#[cfg(feature = "pusher")]
mod pusher_api;
pub(crate) mod request;
mod rest;
mod routes;
mod server;
mod session;
mod sign_in;
mod stream;
mod topics;
mod traffic;
mod user;
mod vouched;

pub use api::HttpApi;
pub use audit::RecordedReads;
pub use idempotency::IdempotencyKeys;
pub use party::Pings;
pub use routes::ListenerSide;
pub use server::{HttpServer, serve};
