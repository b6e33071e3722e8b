//! Responses by `Idempotency-Key`, so that a retried write runs once. In this node's memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a response is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Longer keys are refused.
pub const KEY_BYTES: usize = 255;

pub struct IdempotencyKeys {
    max: usize,
    state: Mutex<KeyTable>,
}

#[derive(Default)]
struct KeyTable {
    answers: HashMap<String, Option<Vec<u8>>>,
    order: VecDeque<(Instant, String)>,
}

/// The state of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyState {
    /// First use: continue with `run`.
    New,
    /// The first request with it has not finished.
    InProgress,
    Answered(Vec<u8>),
}

impl IdempotencyKeys {
    pub fn new(max: usize) -> IdempotencyKeys {
        IdempotencyKeys { max, state: Mutex::default() }
    }

    pub fn begin(&self, key: &str, now: Instant) -> KeyState {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((at, old)) = state.order.front() {
            if state.order.len() < self.max.max(1) && now.duration_since(*at) < KEPT {
                break;
            }
            let old = old.clone();
            state.answers.remove(&old);
            state.order.pop_front();
        }
        match state.answers.get(key) {
            Some(Some(answer)) => KeyState::Answered(answer.clone()),
            Some(None) => KeyState::InProgress,
            None => {
                state.answers.insert(key.to_owned(), None);
                state.order.push_back((now, key.to_owned()));
                KeyState::New
            }
        }
    }

    /// The request with this key runs. Unless it is finished, a retry may use the key when the guard is dropped: nothing
    /// stays in progress longer than its request.
    pub fn run<'a>(&'a self, key: &'a str) -> RunningKey<'a> {
        RunningKey { keys: self, key }
    }

    fn finish(&self, key: &str, answer: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = state.answers.get_mut(key) {
            *slot = Some(answer.to_vec());
        }
    }

    /// The request failed: a retry may use the same key.
    fn forget(&self, key: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.answers.remove(key);
        state.order.retain(|(_, other)| other != key);
    }
}

/// The key of a request that runs.
pub struct RunningKey<'a> {
    keys: &'a IdempotencyKeys,
    key: &'a str,
}

impl RunningKey<'_> {
    /// The request succeeded: retries get this answer.
    pub fn finish(self, answer: &[u8]) {
        self.keys.finish(self.key, answer);
        std::mem::forget(self);
    }
}

impl Drop for RunningKey<'_> {
    fn drop(&mut self) {
        self.keys.forget(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_used_once_and_again_after_a_failure() {
        let keys = IdempotencyKeys::new(2);
        let now = Instant::now();
        assert_eq!(keys.begin("a", now), KeyState::New);
        assert_eq!(keys.begin("a", now), KeyState::InProgress);
        drop(keys.run("a"));
        assert_eq!(keys.begin("a", now), KeyState::New);
        keys.run("a").finish(b"1");
        assert_eq!(keys.begin("a", now), KeyState::Answered(b"1".to_vec()));
        assert_eq!(keys.begin("b", now), KeyState::New);
        assert_eq!(keys.begin("c", now), KeyState::New);
        assert_eq!(keys.begin("a", now), KeyState::New, "the oldest had to go");
    }

    #[test]
    fn old_answers_are_forgotten() {
        let keys = IdempotencyKeys::new(9);
        let now = Instant::now();
        keys.begin("a", now);
        keys.finish("a", b"1");
        assert_eq!(keys.begin("a", now + KEPT), KeyState::New);
    }
}
