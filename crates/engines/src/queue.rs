//! A queue of work for a thread or task of an engine. Must hold: bounded by count and by bytes; first in, first out.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tavern_store::limits;

pub(crate) struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    /// Wakes threads; `awaited` wakes tasks.
    ready: Condvar,
    awaited: tokio::sync::Notify,
}

struct QueueState<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    closed: bool,
    /// Waiting threads: waking one is a system call, which is skipped when there is none.
    waiting: usize,
}

/// Why an item was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueRefusal {
    Full,
    Closed,
}

impl<T> WorkQueue<T> {
    pub fn new() -> WorkQueue<T> {
        WorkQueue {
            state: Mutex::new(QueueState { items: VecDeque::new(), bytes: 0, closed: false, waiting: 0 }),
            ready: Condvar::new(),
            awaited: tokio::sync::Notify::new(),
        }
    }

    /// Queues what fits; returns the rest.
    pub fn push(&self, items: Vec<(usize, T)>) -> Vec<(QueueRefusal, T)> {
        let mut refused = Vec::new();
        if items.is_empty() {
            // There is nothing to wake a waiter for.
            return refused;
        }
        let mut state = self.lock();
        for (bytes, item) in items {
            let full =
                state.items.len() >= limits::QUEUED_ITEMS || state.bytes + bytes > limits::QUEUED_BYTES;
            if state.closed || full {
                refused.push((if state.closed { QueueRefusal::Closed } else { QueueRefusal::Full }, item));
            } else {
                state.bytes += bytes;
                state.items.push_back((bytes, item));
            }
        }
        let waited_for = state.waiting > 0;
        drop(state);
        if waited_for {
            self.ready.notify_one();
        }
        self.awaited.notify_one();
        refused
    }

    /// Waits for items; None once it is closed and empty.
    pub fn take(&self, max: usize) -> Option<Vec<T>> {
        let mut state = self.lock();
        state.waiting += 1;
        let idle = |state: &mut QueueState<T>| state.items.is_empty() && !state.closed;
        let mut state = self.ready.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        let taken = state.take(max, usize::MAX);
        (!taken.is_empty()).then_some(taken)
    }

    /// The same for a task. Takes at least one, then no more than `bytes`.
    pub async fn next(&self, max: usize, bytes: usize) -> Option<Vec<T>> {
        loop {
            let ready = self.awaited.notified();
            {
                let mut state = self.lock();
                let taken = state.take(max, bytes);
                if !taken.is_empty() {
                    if !state.items.is_empty() {
                        // Another task may wait too.
                        self.awaited.notify_one();
                    }
                    return Some(taken);
                }
                if state.closed {
                    return None;
                }
            }
            ready.await;
        }
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
        self.awaited.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> QueueState<T> {
    fn take(&mut self, max: usize, bytes: usize) -> Vec<T> {
        let (mut taken, mut size) = (Vec::with_capacity(self.items.len().min(max)), 0usize);
        while let Some((bytes_of, _)) = self.items.front() {
            size += bytes_of;
            if taken.len() == max || (size > bytes && !taken.is_empty()) {
                break;
            }
            let Some((bytes_of, item)) = self.items.pop_front() else { break };
            self.bytes -= bytes_of;
            taken.push(item);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_queue_is_emptied_first() {
        let queue = WorkQueue::new();
        assert!(queue.push(vec![(1, 'a'), (1, 'b'), (1, 'c')]).is_empty());
        queue.close();
        assert_eq!(queue.push(vec![(1, 'd')]), [(QueueRefusal::Closed, 'd')]);
        assert_eq!(queue.take(2), Some(vec!['a', 'b']));
        assert_eq!(queue.take(2), Some(vec!['c']));
        assert_eq!(queue.take(2), None);
    }

    #[test]
    fn waiting_thread_is_woken_by_an_item_and_by_closing() {
        let queue = WorkQueue::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| (queue.take(9), queue.take(9)));
            while queue.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(queue.push(Vec::new()).is_empty());
            assert!(queue.push(vec![(1, 'a')]).is_empty());
            while !queue.lock().items.is_empty() || queue.lock().waiting == 0 {
                std::thread::yield_now();
            }
            queue.close();
            assert_eq!(waiting.join().unwrap(), (Some(vec!['a']), None));
        });
    }

    #[test]
    fn a_full_queue_gives_back() {
        let queue = WorkQueue::new();
        assert!(queue.push(vec![(limits::QUEUED_BYTES, 'a')]).is_empty());
        assert_eq!(queue.push(vec![(1, 'b')]), [(QueueRefusal::Full, 'b')]);
        assert_eq!(queue.take(1), Some(vec!['a']));
        assert!(queue.push(vec![(1, 'b')]).is_empty(), "room again");
        assert_eq!(queue.push((0..limits::QUEUED_ITEMS).map(|_| (0, 'c')).collect()).len(), 1);
    }

    #[test]
    fn a_task_takes_no_more_bytes_than_it_asks_for_and_one_too_large_alone() {
        let next = |queue: &WorkQueue<char>, max, bytes| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(queue.next(max, bytes))
        };
        let queue = WorkQueue::new();
        assert!(queue.push(vec![(limits::QUEUED_BYTES, 'a')]).is_empty());
        assert_eq!(next(&queue, 1, 1), Some(vec!['a']));
        assert!(queue.push(vec![(2, 'b'), (2, 'c'), (1, 'd')]).is_empty());
        assert_eq!(next(&queue, 9, 3), Some(vec!['b']));
        assert_eq!(next(&queue, 1, 9), Some(vec!['c']));
        queue.close();
        assert_eq!(next(&queue, 9, 9), Some(vec!['d']), "a closed queue is emptied first");
        assert_eq!(next(&queue, 9, 9), None);
    }
}
