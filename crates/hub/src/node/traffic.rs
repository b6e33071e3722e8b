//! What passes through a node, for operators who watch it live: messages as they are published here, commands as they begin, and
//! what was refused.
//! Must hold: while nobody watches, a message or a command costs one load of a flag.

use crate::event::Author;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tavern_wire::error::Refusal;

/// Something that passed through this node.
#[derive(Clone, Copy, Debug)]
pub struct Traffic<'a> {
    /// Who caused it. None: a service, or a client without a session.
    pub author: Option<&'a Author>,
    pub what: TrafficKind<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum TrafficKind<'a> {
    /// `receivers`: subscriptions on this node that match.
    Message { channel: &'a [u8], payload: &'a [u8], json: bool, receivers: u32 },
    /// `target`: a channel, a pattern or a user.
    Command { op: &'static str, target: Option<&'a str> },
    /// `op`: None if the command could not be parsed, or had been passed to the store.
    Refused { op: Option<&'static str>, target: Option<&'a str>, refusal: &'a Refusal },
}

/// Takes what passes. It runs on the shard that serves the client: it must not block.
pub trait TrafficObserver: Send + Sync {
    fn see(&self, traffic: Traffic<'_>);
}

/// Who watches this node.
#[derive(Default)]
pub struct TrafficTap {
    watched: AtomicBool,
    observers: RwLock<Vec<Arc<dyn TrafficObserver>>>,
}

impl TrafficTap {
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// False: there are `max` observers already.
    pub fn add(&self, observer: Arc<dyn TrafficObserver>, max: usize) -> bool {
        let mut observers = self.observers.write().unwrap_or_else(PoisonError::into_inner);
        if observers.len() >= max {
            return false;
        }
        observers.push(observer);
        self.watched.store(true, Ordering::Relaxed);
        true
    }

    pub fn remove(&self, observer: &Arc<dyn TrafficObserver>) {
        let mut observers = self.observers.write().unwrap_or_else(PoisonError::into_inner);
        observers.retain(|known| !Arc::ptr_eq(known, observer));
        self.watched.store(!observers.is_empty(), Ordering::Relaxed);
    }

    #[cold]
    pub fn tell(&self, traffic: Traffic<'_>) {
        for observer in &*self.observers.read().unwrap_or_else(PoisonError::into_inner) {
            observer.see(traffic);
        }
    }
}
