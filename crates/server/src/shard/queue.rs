//! The queue of a shard, filled by other threads: bounded, with a waker that is used only while the shard sleeps.
//! Must hold: an input is handled in the next turn at the latest; no wake-up is lost between the last check and the
//! sleep.

use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};

/// An item of a queue.
pub trait Weigh {
    /// How much of the queue's bound it takes.
    fn weight(&self) -> usize;
}

/// Interrupts the sleep of the shard.
pub trait Wake {
    fn wake(&self);
}

pub struct HandoverQueue<T, W> {
    queue: Mutex<Vec<T>>,
    weight: AtomicUsize,
    bound: usize,
    asleep: AtomicBool,
    /// A caller of `put_quietly` will call `wake` soon.
    wake_promised: AtomicBool,
    waker: W,
    /// The shard has ended and accepts no more inputs.
    closed: AtomicBool,
}

/// Backpressure: the sender must stop producing or answer "unavailable".
#[derive(Debug)]
pub struct Full;

impl<T: Weigh, W: Wake> HandoverQueue<T, W> {
    pub fn new(waker: W, bound: usize) -> HandoverQueue<T, W> {
        HandoverQueue {
            queue: Mutex::new(Vec::new()),
            weight: AtomicUsize::new(0),
            bound,
            asleep: AtomicBool::new(false),
            wake_promised: AtomicBool::new(false),
            waker,
            closed: AtomicBool::new(false),
        }
    }

    /// Adds an input, unless the queue is full.
    pub fn put(&self, input: T) -> Result<(), Full> {
        if self.is_full() {
            return Err(Full);
        }
        self.force(input);
        Ok(())
    }

    /// Adds an input even if the queue is full: for inputs that must not be lost and are bounded elsewhere.
    pub fn force(&self, input: T) {
        self.push(input);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Adds an input without waking the shard. True: the caller must call `wake` soon; nothing else will.
    pub fn put_quietly(&self, input: T) -> Result<bool, Full> {
        if self.is_full() {
            return Err(Full);
        }
        self.push(input);
        Ok(!self.wake_promised.swap(true, Ordering::SeqCst))
    }

    /// Wakes the shard for inputs that were added quietly.
    pub fn wake(&self) {
        self.wake_promised.store(false, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// An input for a closed queue is dropped, so that its sender gets no answer.
    fn push(&self, input: T) {
        let mut queue = self.queue();
        if !self.is_closed() {
            self.weight.fetch_add(input.weight(), Ordering::Relaxed);
            queue.push(input);
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
        // Not under the lock: a dropped input may add another.
        drop(left);
    }

    fn queue(&self) -> MutexGuard<'_, Vec<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.weight.load(Ordering::Relaxed) >= self.bound
    }

    /// Announces that the shard is about to sleep. False: there is an input, do not sleep.
    pub fn begin_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = self.queue().is_empty();
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// Moves everything into a reused buffer.
    pub fn take(&self, into: &mut Vec<T>) {
        self.asleep.store(false, Ordering::Relaxed);
        if self.weight.load(Ordering::Relaxed) == 0 {
            return;
        }
        std::mem::swap(&mut *self.queue(), into);
        let weight = into.iter().map(T::weight).sum();
        self.weight.fetch_sub(weight, Ordering::Relaxed);
    }
}
