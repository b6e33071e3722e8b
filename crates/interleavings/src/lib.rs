//! The lock-free parts of the hub and the server in every interleaving that the memory model allows, by loom. The files are
//! those of the hub and the server; only their locks and atomics are loom's.
//!
//! A package of its own, tested alone: loom switches on features of `tracing-subscriber` that the server does not have, and in
//! one build with the others everything would be compiled twice.

#![forbid(unsafe_code)]
#![cfg(test)]

#[expect(dead_code, reason = "the registry uses the rest")]
#[path = "../../hub/src/node/name_entry.rs"]
mod name_entry;
#[path = "../../hub/src/node/publish_order.rs"]
mod publish_order;
#[path = "../../server/src/shard/queue.rs"]
mod queue;
mod shard_handover;
mod shard_queue;
mod sync;
