//! The node's clock. The store timestamps facts, so a node that decides when a grace period is over must use the store's
//! time. Between two answers of the store the monotonic clock of the machine is used.
//! Must hold: the clock does not stop and does not jump when the wall clock of the machine is set back.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tavern_domain::Time;
use tavern_store::Clock;

pub struct NodeClock {
    began: Instant,
    /// Offset to the milliseconds since `began`.
    ahead_ms: AtomicI64,
    /// The store has no clock and uses this one: then the wall clock of the machine leads.
    by_wall: AtomicBool,
}

/// A moment of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment(i64);

impl NodeClock {
    pub fn new() -> NodeClock {
        let clock =
            NodeClock { began: Instant::now(), ahead_ms: AtomicI64::new(0), by_wall: AtomicBool::new(true) };
        clock.ahead_ms.store(wall_ms(), Ordering::Relaxed);
        clock
    }

    /// From now on only the store's time is used.
    pub fn leave_to_store(&self) {
        self.by_wall.store(false, Ordering::Relaxed);
    }

    pub fn moment(&self) -> Moment {
        Moment(i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Takes the store's time, read at some moment since `asked`. A time that fits changes nothing.
    pub fn observe(&self, asked: Moment, time: Time) {
        self.settle(asked, self.moment(), time);
    }

    fn settle(&self, asked: Moment, answered: Moment, time: Time) {
        let time = i64::try_from(time.0).unwrap_or(i64::MAX);
        // Both clocks truncate to milliseconds.
        let (least, most) = (time - answered.0 - 1, time - asked.0 + 1);
        let by_wall = self.by_wall.load(Ordering::Relaxed);
        let settle = |ahead: i64| Some(if by_wall { ahead.max(least) } else { ahead.clamp(least, most) });
        let _ = self.ahead_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, settle);
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Time {
        let Moment(moment) = self.moment();
        let mut ahead = self.ahead_ms.load(Ordering::Relaxed);
        if self.by_wall.load(Ordering::Relaxed) {
            // Forward at once, also after a suspend of the machine; never back.
            let wall = wall_ms() - moment;
            if wall > ahead {
                ahead = wall.max(self.ahead_ms.fetch_max(wall, Ordering::Relaxed));
            }
        }
        Time((moment + ahead).max(0).unsigned_abs())
    }
}

fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offset to the monotonic clock after the store returned these times.
    fn ahead(by_wall: bool, start: i64, answers: &[(i64, i64, u64)]) -> i64 {
        let clock = NodeClock::new();
        clock.by_wall.store(by_wall, Ordering::Relaxed);
        clock.ahead_ms.store(start, Ordering::Relaxed);
        for &(asked, answered, time) in answers {
            clock.settle(Moment(asked), Moment(answered), Time(time));
        }
        clock.ahead_ms.load(Ordering::Relaxed)
    }

    #[test]
    fn a_store_with_a_clock_is_followed_forward_and_back() {
        assert_eq!(ahead(false, 1_000, &[(0, 10, 9_000)]), 8_989, "the local clock was behind");
        assert_eq!(ahead(false, 60_000, &[(0, 10, 9_000)]), 9_001, "the local clock was ahead");
        assert_eq!(ahead(false, 60_000, &[(0, 10, 9_000), (100, 102, 9_100)]), 9_001, "settled");
    }

    #[test]
    fn slow_answer_changes_the_clock_little() {
        assert_eq!(ahead(false, 5_000, &[(0, 4_000, 5_003)]), 5_000);
        assert_eq!(
            ahead(false, 5_000, &[(0, 4_000, 9_100)]),
            5_099,
            "the store was ahead even at the latest moment"
        );
    }

    #[test]
    fn a_store_without_a_clock_never_sets_it_back() {
        assert_eq!(ahead(true, 60_000, &[(0, 10, 9_000)]), 60_000);
        assert_eq!(ahead(true, 1_000, &[(0, 10, 9_000)]), 8_989, "another process on the folder is ahead");
    }

    #[test]
    fn clock_continues_when_the_wall_clock_is_set_back() {
        let clock = NodeClock::new();
        let before = clock.now();
        // As if the wall clock had been an hour ahead until now.
        clock.ahead_ms.fetch_add(3_600_000, Ordering::Relaxed);
        let jumped = clock.now();
        assert!(jumped >= before + 3_600_000);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(clock.now() >= jumped + 5, "it continues");
    }

    #[test]
    fn the_wall_clock_is_ignored_once_the_store_keeps_time() {
        let clock = NodeClock::new();
        clock.leave_to_store();
        clock.observe(clock.moment(), Time(1_000_000));
        assert!(clock.now() < Time(1_010_000));
    }
}
