//! Answers remembered by `Idempotency-Key`, so that a repeated write is answered and done once. In this node's memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is remembered.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Longer keys are refused.
pub const KEY_BYTES: usize = 255;

pub struct Remembered {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: HashMap<String, Option<Vec<u8>>>,
    order: VecDeque<(Instant, String)>,
}

/// What is known of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Known {
    /// Nobody used it: go on, then `finish` or `forget`.
    New,
    /// The first request with it is still under way.
    UnderWay,
    Answered(Vec<u8>),
}

impl Remembered {
    pub fn new(most: usize) -> Remembered {
        Remembered { most, state: Mutex::default() }
    }

    pub fn begin(&self, key: &str, now: Instant) -> Known {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((at, old)) = state.order.front() {
            if state.order.len() < self.most.max(1) && now.duration_since(*at) < KEPT {
                break;
            }
            let old = old.clone();
            state.answers.remove(&old);
            state.order.pop_front();
        }
        match state.answers.get(key) {
            Some(Some(answer)) => Known::Answered(answer.clone()),
            Some(None) => Known::UnderWay,
            None => {
                state.answers.insert(key.to_owned(), None);
                state.order.push_back((now, key.to_owned()));
                Known::New
            }
        }
    }

    pub fn finish(&self, key: &str, answer: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = state.answers.get_mut(key) {
            *slot = Some(answer.to_vec());
        }
    }

    /// The request failed: it may be tried again with the same key.
    pub fn forget(&self, key: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answers.remove(key);
        state.order.retain(|(_, other)| other != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_done_once_and_may_be_tried_again_after_a_failure() {
        let remembered = Remembered::new(2);
        let now = Instant::now();
        assert_eq!(remembered.begin("a", now), Known::New);
        assert_eq!(remembered.begin("a", now), Known::UnderWay);
        remembered.forget("a");
        assert_eq!(remembered.begin("a", now), Known::New);
        remembered.finish("a", b"1");
        assert_eq!(remembered.begin("a", now), Known::Answered(b"1".to_vec()));
        assert_eq!(remembered.begin("b", now), Known::New);
        assert_eq!(remembered.begin("c", now), Known::New);
        assert_eq!(remembered.begin("a", now), Known::New, "the oldest had to go");
    }

    #[test]
    fn answers_age() {
        let remembered = Remembered::new(9);
        let now = Instant::now();
        remembered.begin("a", now);
        remembered.finish("a", b"1");
        assert_eq!(remembered.begin("a", now + KEPT), Known::New);
    }
}
