//! What the threads of the bus and its handle share.

use super::outbox::Outbox;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tavern_store::error::Cause;
use tavern_store::{BusCounts, BusError, Subject, limits};
use tokio::sync::Notify;

pub struct RemoteShared {
    pub node: Arc<str>,
    /// The subject on which buses report losses to each other.
    pub loss_subject: Subject,
    outbox: Mutex<Outbox>,
    /// The outbox has something new.
    pub changed: Notify,
    pub ending: Notify,
    is_full: AtomicBool,
    is_stopping: AtomicBool,
    began: Instant,
    /// When the server last sent something, in milliseconds since `began`.
    last_received_ms: AtomicU64,
    pub counts: RemoteCounters,
}

#[derive(Default)]
pub struct RemoteCounters {
    pub sent: AtomicU64,
    pub received: AtomicU64,
    pub failed: AtomicU64,
    pub losses: AtomicU64,
}

impl RemoteShared {
    pub fn new(node: &str, loss_subject: Subject, outbox: Outbox) -> RemoteShared {
        RemoteShared {
            node: node.into(),
            loss_subject,
            outbox: Mutex::new(outbox),
            changed: Notify::new(),
            ending: Notify::new(),
            is_full: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            began: Instant::now(),
            last_received_ms: AtomicU64::new(0),
            counts: RemoteCounters::default(),
        }
    }

    pub fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note_fullness(&self, outbox: &Outbox) {
        self.is_full.store(outbox.is_full(), Ordering::Relaxed);
    }

    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// The server sent something.
    pub fn note_received(&self) {
        self.last_received_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    pub fn silent_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.last_received_ms.load(Ordering::Relaxed))
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        self.ending.notify_one();
        self.changed.notify_one();
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

impl RemoteCounters {
    pub fn read(&self) -> BusCounts {
        BusCounts {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            losses: self.losses.load(Ordering::Relaxed),
        }
    }
}

pub fn unavailable(source: Cause) -> BusError {
    BusError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source }
}
