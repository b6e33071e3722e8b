//! The folder bus with real processes: handles of this process and of peers (`examples/peer.rs`).

mod bounds;
mod dead_processes;
mod disk;
mod everything;
mod folders;
mod fork;
mod killed;
mod model;
mod order;
mod support;
mod wake;
