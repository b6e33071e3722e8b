//! The way into a shard from other threads: a bounded queue and a bell that rings only when the shard sleeps.
//! Must hold: what was put in is seen at the latest in the next turn; no bell is lost between looking and sleeping.

use crate::shard::input::ShardInput;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub struct ShardQueue {
    queue: Mutex<Vec<ShardInput>>,
    weight: AtomicUsize,
    bound: usize,
    asleep: AtomicBool,
    /// Somebody will ring soon for mail that was put in quietly.
    promised: AtomicBool,
    bell: mio::Waker,
    /// The shard has ended: nobody takes anything out any more.
    closed: AtomicBool,
}

/// The shard has more to do than it can; the sender must stop producing or say "unavailable".
#[derive(Debug)]
pub struct Full;

impl ShardQueue {
    pub fn new(bell: mio::Waker, bound: usize) -> ShardQueue {
        ShardQueue {
            queue: Mutex::default(),
            weight: AtomicUsize::new(0),
            bound,
            asleep: AtomicBool::new(false),
            promised: AtomicBool::new(false),
            bell,
            closed: AtomicBool::new(false),
        }
    }

    /// Puts mail in; refused when the inbox is full.
    pub fn put(&self, mail: ShardInput) -> Result<(), Full> {
        if self.is_full() {
            return Err(Full);
        }
        self.force(mail);
        Ok(())
    }

    /// Puts mail in whatever the bound: for what must not be lost and is itself bounded elsewhere.
    pub fn force(&self, mail: ShardInput) {
        self.push(mail);
        if self.asleep.swap(false, Ordering::SeqCst) {
            // A bell that cannot ring means that the poller is gone, and with it the shard.
            let _ = self.bell.wake();
        }
    }

    /// Puts mail in without waking the shard. True: the caller must `ring` in a moment; nobody else will.
    pub fn put_quietly(&self, mail: ShardInput) -> Result<bool, Full> {
        if self.is_full() {
            return Err(Full);
        }
        self.push(mail);
        Ok(!self.promised.swap(true, Ordering::SeqCst))
    }

    /// Wakes the shard for what was put in quietly.
    pub fn ring(&self) {
        self.promised.store(false, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.bell.wake();
        }
    }

    /// What is put into a closed inbox is dropped, so that whoever waits for an answer learns that none comes.
    fn push(&self, mail: ShardInput) {
        let mut queue = self.queue();
        if !self.is_closed() {
            self.weight.fetch_add(mail.weight(), Ordering::Relaxed);
            queue.push(mail);
        }
    }

    /// The shard ends.
    pub fn close(&self) {
        let left = {
            let mut queue = self.queue();
            self.closed.store(true, Ordering::Relaxed);
            self.weight.store(0, Ordering::Relaxed);
            std::mem::take(&mut *queue)
        };
        // Not under the lock: what is dropped may put something in.
        drop(left);
    }

    fn queue(&self) -> MutexGuard<'_, Vec<ShardInput>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.weight.load(Ordering::Relaxed) >= self.bound
    }

    /// Says that the shard is about to sleep. False: something is there, do not sleep.
    pub fn doze(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = self.queue().is_empty();
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// Takes everything out, into a buffer that is reused.
    pub fn take(&self, into: &mut Vec<ShardInput>) {
        self.asleep.store(false, Ordering::Relaxed);
        if self.weight.load(Ordering::Relaxed) == 0 {
            return;
        }
        std::mem::swap(&mut *self.queue(), into);
        let weight = into.iter().map(ShardInput::weight).sum();
        self.weight.fetch_sub(weight, Ordering::Relaxed);
    }
}
