//! The server program `tavern` as a library, so that tests can run it.
#![forbid(unsafe_code)]

pub mod auth;
pub mod boot;
mod bus;
pub mod cli;
mod clock;
pub mod config;
mod desk;
mod door;
mod estate;
mod events;
#[doc(hidden)]
pub mod fuzz;
mod health;
mod history;
mod hook;
mod http;
mod metrics;
mod resp;
mod services;
mod settings;
mod shard;
mod supervisor;
mod tls;
mod vigil;
pub mod webhook;
