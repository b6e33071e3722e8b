//! Responses by `Idempotency-Key`, so that a retried write runs once. In this node's memory.
//! Must hold: their bytes are bounded; a service that needs room loses its own oldest responses before it takes those of
//! services that hold less; nothing is searched while others wait.

use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a response is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// Longer keys are refused.
pub const KEY_BYTES: usize = 255;
/// What a response takes beside its body.
const ANSWER_BYTES: usize = 512;

/// What is done once: the API key that asks for it, the operation, and the key that the client chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceKey {
    holder: Arc<str>,
    /// Hashes all three.
    hash: [u8; 32],
}

impl OnceKey {
    pub fn new(holder: &Arc<str>, operation: &str, given: &str) -> OnceKey {
        let hash = digest(&format!("{holder}\n{operation}\n{given}"));
        OnceKey { holder: holder.clone(), hash }
    }

    /// The name of one of several messages of the request.
    pub fn part(&self, number: usize) -> OnceKey {
        OnceKey { holder: self.holder.clone(), hash: digest(&format!("{}\n{number}", self.hex())) }
    }

    pub fn hex(&self) -> String {
        self.hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn digest(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref());
    hash
}

pub struct IdempotencyKeys {
    max_bytes: usize,
    state: Mutex<KeyTable>,
}

#[derive(Default)]
struct KeyTable {
    keys: HashMap<[u8; 32], KeyProgress>,
    /// By age.
    answers: BTreeMap<u64, KeptAnswer>,
    last: u64,
    holders: HashMap<Arc<str>, HolderAnswers>,
    /// Who holds how much, for the largest.
    by_bytes: BTreeSet<(usize, Arc<str>)>,
    bytes: usize,
}

enum KeyProgress {
    Running,
    /// The number of its answer.
    Answered(u64),
}

struct KeptAnswer {
    key: OnceKey,
    at: Instant,
    body: Bytes,
}

#[derive(Default)]
struct HolderAnswers {
    bytes: usize,
    numbers: BTreeSet<u64>,
}

/// The state of a key.
#[derive(Debug, PartialEq, Eq)]
pub enum KeyState {
    /// First use: continue with `run`.
    New,
    /// The first request with it has not finished.
    InProgress,
    Answered(Bytes),
}

impl IdempotencyKeys {
    pub fn new(max_bytes: usize) -> IdempotencyKeys {
        IdempotencyKeys { max_bytes, state: Mutex::default() }
    }

    pub fn begin(&self, key: &OnceKey, now: Instant) -> KeyState {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.forget_older(now);
        match state.keys.get(&key.hash) {
            Some(KeyProgress::Running) => KeyState::InProgress,
            Some(KeyProgress::Answered(number)) => {
                state.answers.get(number).map_or(KeyState::New, |kept| KeyState::Answered(kept.body.clone()))
            }
            None => {
                state.keys.insert(key.hash, KeyProgress::Running);
                KeyState::New
            }
        }
    }

    /// The request with this key runs. Unless it is finished, a retry may use the key when the guard is dropped: nothing
    /// stays in progress longer than its request.
    pub fn run<'a>(&'a self, key: &'a OnceKey) -> RunningKey<'a> {
        RunningKey { keys: self, key }
    }

    fn finish(&self, key: &OnceKey, body: Bytes, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.keep(KeptAnswer { key: key.clone(), at: now, body });
        while state.bytes > self.max_bytes {
            state.forget_of_largest();
        }
    }

    /// The request failed: a retry may use the same key.
    fn forget(&self, key: &OnceKey) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).keys.remove(&key.hash);
    }
}

impl KeyTable {
    fn keep(&mut self, answer: KeptAnswer) {
        self.last += 1;
        let (number, holder) = (self.last, answer.key.holder.clone());
        self.keys.insert(answer.key.hash, KeyProgress::Answered(number));
        self.count(&holder, number, answer.body.len() + ANSWER_BYTES, true);
        self.answers.insert(number, answer);
    }

    fn forget(&mut self, number: u64) {
        let Some(answer) = self.answers.remove(&number) else { return };
        self.keys.remove(&answer.key.hash);
        self.count(&answer.key.holder, number, answer.body.len() + ANSWER_BYTES, false);
    }

    /// Adds an answer to what its holder has, or removes it.
    fn count(&mut self, holder: &Arc<str>, number: u64, bytes: usize, is_new: bool) {
        let held = self.holders.entry(holder.clone()).or_default();
        self.by_bytes.remove(&(held.bytes, holder.clone()));
        if is_new {
            held.numbers.insert(number);
            held.bytes += bytes;
            self.bytes += bytes;
        } else {
            held.numbers.remove(&number);
            held.bytes -= bytes;
            self.bytes -= bytes;
        }
        if held.numbers.is_empty() {
            self.holders.remove(holder);
        } else {
            self.by_bytes.insert((held.bytes, holder.clone()));
        }
    }

    fn forget_older(&mut self, now: Instant) {
        while let Some((&number, oldest)) = self.answers.first_key_value()
            && now.saturating_duration_since(oldest.at) >= KEPT
        {
            self.forget(number);
        }
    }

    /// Forgets the oldest answer of the service that holds the most.
    fn forget_of_largest(&mut self) {
        let largest = self.by_bytes.last().and_then(|(_, holder)| self.holders.get(holder));
        let oldest = largest.and_then(|held| held.numbers.first().copied());
        self.forget(oldest.expect("what is counted is held"));
    }
}

/// The key of a request that runs.
pub struct RunningKey<'a> {
    keys: &'a IdempotencyKeys,
    key: &'a OnceKey,
}

impl RunningKey<'_> {
    /// The request succeeded: retries get this answer.
    pub fn finish(self, body: Bytes) {
        self.keys.finish(self.key, body, Instant::now());
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

    fn key(holder: &str, given: &str) -> OnceKey {
        OnceKey::new(&holder.into(), "publish", given)
    }

    fn answered(keys: &IdempotencyKeys, key: &OnceKey, bytes: usize) {
        assert_eq!(keys.begin(key, Instant::now()), KeyState::New);
        keys.run(key).finish(vec![0; bytes].into());
    }

    fn is_kept(keys: &IdempotencyKeys, key: &OnceKey) -> bool {
        let state = keys.state.lock().unwrap();
        matches!(state.keys.get(&key.hash), Some(KeyProgress::Answered(_)))
    }

    #[test]
    fn a_key_is_used_once_and_again_after_a_failure() {
        let (keys, a, now) = (IdempotencyKeys::new(10_000), key("k1", "a"), Instant::now());
        assert_eq!(keys.begin(&a, now), KeyState::New);
        assert_eq!(keys.begin(&a, now), KeyState::InProgress);
        drop(keys.run(&a));
        assert_eq!(keys.begin(&a, now), KeyState::New);
        keys.run(&a).finish(Bytes::from_static(b"1"));
        assert_eq!(keys.begin(&a, now), KeyState::Answered(Bytes::from_static(b"1")));
        assert_eq!(keys.begin(&key("k2", "a"), now), KeyState::New, "another service");
        assert_eq!(keys.begin(&OnceKey::new(&"k1".into(), "other", "a"), now), KeyState::New);
    }

    #[test]
    fn bytes_are_bounded_and_a_flood_takes_nothing_from_others() {
        let keys = IdempotencyKeys::new(20_000);
        let quiet = key("quiet", "a");
        answered(&keys, &quiet, 1_000);
        let flood: Vec<OnceKey> = (0..100).map(|n| key("flood", &n.to_string())).collect();
        for one in &flood {
            answered(&keys, one, 3_000);
            assert!(keys.state.lock().unwrap().bytes <= 20_000);
        }
        assert!(is_kept(&keys, &quiet) && is_kept(&keys, &flood[99]) && !is_kept(&keys, &flood[0]));
        answered(&keys, &key("flood", "huge"), 30_000);
        assert!(is_kept(&keys, &quiet) && !is_kept(&keys, &key("flood", "huge")));
        let state = keys.state.lock().unwrap();
        assert_eq!((state.holders.len(), state.by_bytes.len(), state.answers.len()), (1, 1, 1));
    }

    #[test]
    fn old_answers_are_forgotten() {
        let (keys, a) = (IdempotencyKeys::new(10_000), key("k1", "a"));
        answered(&keys, &a, 1);
        assert_eq!(keys.begin(&key("k1", "b"), Instant::now() + KEPT), KeyState::New);
        assert!(!is_kept(&keys, &a));
        assert_eq!(keys.state.lock().unwrap().bytes, 0);
    }

    #[test]
    fn each_message_of_a_request_has_its_own_name() {
        let once = key("k1", "a");
        assert_ne!(once.part(0), once.part(1));
        assert_eq!(once.part(1).hex().len(), 64);
    }
}
