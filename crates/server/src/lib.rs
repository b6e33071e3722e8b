//! The server program `tavern` as a library, so that tests can run it.
#![forbid(unsafe_code)]

mod adoption;
mod audit;
pub mod auth;
mod authorize;
pub mod boot;
mod bus;
mod bus_probe;
mod byte_budget;
pub mod cli;
mod clock;
mod closing;
pub mod config;
mod connection_refusal;
mod connections;
#[doc(hidden)]
pub mod fuzz;
mod gateway;
mod health;
mod http;
mod key_use;
mod liveness;
mod load;
mod metrics;
mod population;
mod practice;
#[cfg(feature = "pusher")]
mod pusher;
mod radar;
mod random;
mod refusal_log;
mod resp;
mod revocation;
mod settings;
mod shard;
mod sql_calls;
mod store_client;
mod store_times;
mod supervisor;
mod sync;
mod tls;
mod topics;
mod traces;
mod unread_replies;
pub mod webhook;
