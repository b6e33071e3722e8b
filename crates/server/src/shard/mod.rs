//! Shards: one thread each, with its own sockets, sessions and mailboxes. Everything else reaches them by mail.

pub mod conn;
pub mod inbox;
pub mod links;
pub mod mail;
mod read;
mod requests;
mod tend;
pub mod websocket;
pub mod worker;
mod write;
