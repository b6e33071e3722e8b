//! What the hub and the server take from their `sync` modules, by loom.

pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use loom::sync::{Mutex, MutexGuard};
pub use std::sync::PoisonError;
