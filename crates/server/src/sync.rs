//! The locks and atomics of the shard queue. `crates/interleavings` compiles the queue with loom's instead.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError};
