//! The atomics of the lock-free parts. `crates/interleavings` compiles the same files with loom's atomics instead.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
