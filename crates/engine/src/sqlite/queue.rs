//! Work that waits for a thread. Must hold: bounded by count and by bytes; taken in the order in which it came.

use crate::limits;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
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
        Queue { state: Mutex::new(state), ready: Condvar::new() }
    }

    /// Takes what fits; gives the rest back.
    pub fn push(&self, items: Vec<(usize, T)>) -> Vec<(Refused, T)> {
        let mut refused = Vec::new();
        let mut state = self.lock();
        for (bytes, item) in items {
            if state.closed {
                refused.push((Refused::Closed, item));
            } else if state.items.len() >= limits::QUEUED_ITEMS || state.bytes + bytes > limits::QUEUED_BYTES
            {
                refused.push((Refused::Full, item));
            } else {
                state.bytes += bytes;
                state.items.push_back((bytes, item));
            }
        }
        drop(state);
        self.ready.notify_one();
        refused
    }

    /// Waits for items; None once it is closed and empty.
    pub fn take(&self, most: usize) -> Option<Vec<T>> {
        let state = self.lock();
        let idle = |state: &mut State<T>| state.items.is_empty() && !state.closed;
        let mut state = self.ready.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        let count = state.items.len().min(most);
        let taken: Vec<(usize, T)> = state.items.drain(..count).collect();
        state.bytes -= taken.iter().map(|(bytes, _)| bytes).sum::<usize>();
        (!taken.is_empty()).then(|| taken.into_iter().map(|(_, item)| item).collect())
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_queue_is_emptied_first() {
        let queue = Queue::new();
        assert!(queue.push(vec![(1, 'a'), (1, 'b'), (1, 'c')]).is_empty());
        queue.close();
        assert_eq!(queue.push(vec![(1, 'd')]), [(Refused::Closed, 'd')]);
        assert_eq!(queue.take(2), Some(vec!['a', 'b']));
        assert_eq!(queue.take(2), Some(vec!['c']));
        assert_eq!(queue.take(2), None);
    }

    #[test]
    fn a_full_queue_gives_back() {
        let queue = Queue::new();
        assert!(queue.push(vec![(limits::QUEUED_BYTES, 'a')]).is_empty());
        assert_eq!(queue.push(vec![(1, 'b')]), [(Refused::Full, 'b')]);
        assert_eq!(queue.take(1), Some(vec!['a']));
        assert!(queue.push(vec![(1, 'b')]).is_empty(), "room again");
        assert_eq!(queue.push((0..limits::QUEUED_ITEMS).map(|_| (0, 'c')).collect()).len(), 1);
    }
}
