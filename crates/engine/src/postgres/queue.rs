//! Work that waits for a task. Must hold: bounded by count and by bytes; taken in the order in which it came.

use crate::limits;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Notify,
}

struct State<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
    closed: bool,
}

/// Why an item was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Closed,
}

impl<T> Queue<T> {
    pub fn new() -> Queue<T> {
        let state = State { items: VecDeque::new(), bytes: 0, closed: false };
        Queue { state: Mutex::new(state), ready: Notify::new() }
    }

    /// Takes what fits; gives the rest back.
    pub fn push(&self, items: Vec<(usize, T)>) -> Vec<(Refused, T)> {
        let mut refused = Vec::new();
        let mut state = self.lock();
        for (bytes, item) in items {
            let full =
                state.items.len() >= limits::QUEUED_ITEMS || state.bytes + bytes > limits::QUEUED_BYTES;
            if state.closed || full {
                refused.push((if state.closed { Refused::Closed } else { Refused::Full }, item));
            } else {
                state.bytes += bytes;
                state.items.push_back((bytes, item));
            }
        }
        drop(state);
        self.ready.notify_one();
        refused
    }

    /// Waits for items; None once it is closed and empty. Takes at least one, then no more than `bytes`.
    pub async fn take(&self, most: usize, bytes: usize) -> Option<Vec<T>> {
        loop {
            let ready = self.ready.notified();
            {
                let mut state = self.lock();
                let taken = state.take(most, bytes);
                if !taken.is_empty() {
                    if !state.items.is_empty() {
                        // Somebody else may wait too.
                        self.ready.notify_one();
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
        self.ready.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn take(&mut self, most: usize, bytes: usize) -> Vec<T> {
        let (mut taken, mut size) = (Vec::new(), 0);
        while let Some((bytes_of, _)) = self.items.front() {
            size += bytes_of;
            if taken.len() == most || (size > bytes && !taken.is_empty()) {
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

    fn take(queue: &Queue<char>, most: usize, bytes: usize) -> Option<Vec<char>> {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(queue.take(most, bytes))
    }

    #[test]
    fn a_closed_queue_is_emptied_first() {
        let queue = Queue::new();
        assert!(queue.push(vec![(1, 'a'), (1, 'b'), (1, 'c')]).is_empty());
        queue.close();
        assert_eq!(queue.push(vec![(1, 'd')]), [(Refused::Closed, 'd')]);
        assert_eq!(take(&queue, 2, 9), Some(vec!['a', 'b']));
        assert_eq!(take(&queue, 2, 9), Some(vec!['c']));
        assert_eq!(take(&queue, 2, 9), None);
    }

    #[test]
    fn a_full_queue_gives_back() {
        let queue = Queue::new();
        assert!(queue.push(vec![(limits::QUEUED_BYTES, 'a')]).is_empty());
        assert_eq!(queue.push(vec![(1, 'b')]), [(Refused::Full, 'b')]);
        assert_eq!(take(&queue, 1, 1), Some(vec!['a']), "one too large travels alone");
        assert!(queue.push(vec![(2, 'b'), (2, 'c')]).is_empty(), "room again");
        assert_eq!(take(&queue, 9, 3), Some(vec!['b']));
    }
}
