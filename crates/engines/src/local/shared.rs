//! What the threads of the local bus and its handle share: the queue of jobs, what is subscribed to, and counters.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use tavern_local::{Interest as FolderInterest, Local, SubscriptionsVersion};
use tavern_store::{BusCounts, BusPacket, BusReceiver, Interest, Ticket, planted_every};

/// No version of the subscriptions in a folder has this number.
pub const NEVER: u64 = u64::MAX;

pub struct LocalShared {
    /// None after `stop`.
    pub local: RwLock<Option<Arc<Local>>>,
    pub version: SubscriptionsVersion,
    /// The version of the subscriptions at which no other process listens to anything.
    pub alone_at: AtomicU64,
    /// The bus has one subscription to everything; `subscribed` is empty.
    pub is_wide: AtomicBool,
    pub prefix: Arc<str>,
    pub receiver: Arc<dyn BusReceiver>,
    state: Mutex<LocalState>,
    /// There is a new job.
    pub changed: Condvar,
    pub waiting_bytes: AtomicUsize,
    pub waiting: AtomicUsize,
    pub is_stopping: AtomicBool,
    pub counts: LocalCounters,
}

#[derive(Default)]
pub struct LocalCounters {
    pub sent: AtomicU64,
    pub received: AtomicU64,
    pub failed: AtomicU64,
    pub losses: AtomicU64,
}

#[derive(Default)]
pub struct LocalState {
    pub jobs: VecDeque<Job>,
    /// What is subscribed to by name: another request for it is confirmed at once.
    pub subscribed: HashSet<Interest>,
    /// How many of them need each subscription in the folder.
    pub needed: HashMap<FolderInterest, usize>,
}

pub enum Job {
    Publish(Vec<BusPacket>),
    Subscribe(Vec<Interest>, Ticket),
    Unsubscribe(Vec<Interest>),
    Narrow,
    Widen,
    /// Report to the other nodes that messages were lost.
    ReportLoss,
    Stop,
}

impl LocalShared {
    pub fn new(local: Arc<Local>, prefix: &str, receiver: Arc<dyn BusReceiver>) -> LocalShared {
        LocalShared {
            version: local.subscriptions_version(),
            alone_at: AtomicU64::new(NEVER),
            is_wide: AtomicBool::new(false),
            prefix: prefix.into(),
            receiver,
            state: Mutex::default(),
            changed: Condvar::new(),
            waiting_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            counts: LocalCounters::default(),
            local: RwLock::new(Some(local)),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, LocalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, job: Job) {
        self.state().jobs.push_back(job);
        if !planted_every("local-wake-up", 50) {
            self.changed.notify_one();
        }
    }

    pub fn is_alone(&self) -> bool {
        self.version.get() == self.alone_at.load(Ordering::Acquire)
    }

    pub fn is_wide(&self) -> bool {
        self.is_wide.load(Ordering::SeqCst)
    }
}

impl LocalCounters {
    pub fn read(&self) -> BusCounts {
        BusCounts {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            losses: self.losses.load(Ordering::Relaxed),
        }
    }
}

/// The size of a message in the bounded queue.
pub fn weight(message: &BusPacket) -> usize {
    message.payload.len() + message.header.len() + message.subject.as_str().len()
}
