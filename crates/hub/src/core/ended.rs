//! Sessions that ended with `bye` in the last minute. A poll or stream that names one was sent before the `bye` took
//! effect: it must not open a new session, which would show the user online again.

use foldhash::fast::RandomState;
use hashbrown::HashSet;
use std::collections::VecDeque;
use tavern_domain::Time;

/// Longer than a request can be in flight, and than a client waits before it polls again.
const REMEMBERED_MS: u64 = 60_000;
/// Per shard. Above this the oldest are evicted.
const REMEMBERED_MAX: usize = 16_384;

#[derive(Default)]
pub(crate) struct EndedSessions {
    /// By half of the session's key, as sessions are.
    halves: HashSet<u64, RandomState>,
    order: VecDeque<(Time, u64)>,
}

impl EndedSessions {
    pub fn add(&mut self, now: Time, half: u64) {
        let full = self.order.len() >= REMEMBERED_MAX;
        let old = |(until, _): &mut (Time, u64)| full || *until <= now;
        while let Some((_, half)) = self.order.pop_front_if(old) {
            self.halves.remove(&half);
            if full {
                break;
            }
        }
        if self.halves.insert(half) {
            self.order.push_back((now + REMEMBERED_MS, half));
        }
    }

    pub fn has(&self, half: u64) -> bool {
        self.halves.contains(&half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_sessions_are_remembered_for_a_while_and_up_to_a_number() {
        let mut ended = EndedSessions::default();
        ended.add(Time(0), 1);
        ended.add(Time(REMEMBERED_MS - 1), 2);
        assert!(ended.has(1) && ended.has(2) && !ended.has(3));
        ended.add(Time(REMEMBERED_MS), 3);
        assert!(!ended.has(1) && ended.has(2) && ended.has(3));
        (10..10 + REMEMBERED_MAX as u64).for_each(|half| ended.add(Time(REMEMBERED_MS), half));
        assert!(!ended.has(2) && !ended.has(3) && ended.has(10));
        assert_eq!((ended.halves.len(), ended.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
    }
}
