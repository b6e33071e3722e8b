//! The node's clock. The store timestamps facts, so a node that decides when a grace period is over must use the store's
//! time. Between two answers of the store the monotonic clock of the machine is used (`CLOCK_BOOTTIME`, which counts
//! suspended time). The rules are in `tavern_domain::clock`.
//! Must hold: a wall clock that jumps does not move node time until the jump is confirmed.

use crate::metrics::{MetricKind, MetricSource, Series};
use crate::store_client::{StoreClient, StoreClientError};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tavern_domain::Time;
use tavern_domain::clock::{ClockEvent, Moment, STORE_AHEAD_MS, SteadyClock};
use tavern_hub::Node;
use tavern_store::{Clock, Found, Read, SystemClock};

/// How often readers compare node time with the wall clock.
const CHECK_MS: i64 = 20;
/// How often the clocks are compared when nothing else reads the time.
const WATCH: Duration = Duration::from_secs(1);

pub struct NodeClock {
    confirm_ms: u64,
    clocks: Mutex<Clocks>,
    /// Of the steady clock, for readers.
    offset: AtomicI64,
    /// When node time was last compared with the wall clock.
    checked: AtomicI64,
    /// The store has no clock and uses this one: then the wall clock of the machine is the reference.
    by_wall: AtomicBool,
    /// The stored time is known.
    started: AtomicBool,
    /// What the clock of the store's server showed last; 0: it was not read.
    server_wall: AtomicU64,
    jumps: AtomicU64,
}

struct Clocks {
    steady: SteadyClock,
    /// Notices jumps of the machine's wall clock when another clock is the reference.
    machine: SteadyClock,
}

/// The state of the clocks, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStatus {
    /// How far the reference is ahead of node time because of a jump that is not accepted; negative: behind.
    pub jump_ms: i64,
    /// How far the machine's wall clock has jumped, when the store's server has the reference.
    pub machine_jump_ms: i64,
    /// How far behind node time the time is by which rows are deleted by age. None: nothing is deleted.
    pub deletion_lag_ms: Option<u64>,
    pub jumps: u64,
}

impl NodeClock {
    pub fn new(confirm_ms: u64) -> NodeClock {
        let (moment, wall) = (moment(), SystemClock.now());
        let steady = SteadyClock::start(moment, wall, Time::ZERO, confirm_ms);
        NodeClock {
            confirm_ms,
            offset: AtomicI64::new(steady.offset()),
            clocks: Mutex::new(Clocks { machine: steady.clone(), steady }),
            checked: AtomicI64::new(moment.0),
            by_wall: AtomicBool::new(true),
            started: AtomicBool::new(false),
            server_wall: AtomicU64::new(0),
            jumps: AtomicU64::new(0),
        }
    }

    /// From now on the clock of the store's server is the reference.
    pub fn leave_to_store(&self) {
        self.by_wall.store(false, Ordering::Relaxed);
    }

    /// Reads the stored time, which an earlier process may have left ahead of or far behind the clock.
    pub async fn start(&self, store: &StoreClient) -> Result<(), StoreClientError> {
        let Found::Time(stored) = store.read(Read::Time).await? else { return Ok(()) };
        self.begin(stored);
        Ok(())
    }

    fn begin(&self, stored: Time) {
        let (moment, reference) = (moment(), self.reference());
        let steady = SteadyClock::start(moment, reference, stored, self.confirm_ms);
        if stored > reference + STORE_AHEAD_MS.unsigned_abs() {
            let ahead_ms = stored.since(reference);
            tracing::warn!(
                ahead_ms,
                confirm_ms = self.confirm_ms,
                "stored time is ahead of the clock; nothing is deleted by age until this has held for confirm_ms"
            );
        } else if steady.deletion_lag_ms(moment).is_none() {
            let confirm_ms = self.confirm_ms;
            tracing::info!(confirm_ms, "nothing is deleted by age until the clock is confirmed");
        }
        self.offset.store(steady.offset(), Ordering::Relaxed);
        self.lock().steady = steady;
        self.started.store(true, Ordering::Release);
    }

    fn reference(&self) -> Time {
        match self.server_wall.load(Ordering::Relaxed) {
            0 => SystemClock.now(),
            wall => Time(wall),
        }
    }

    /// Takes the time of a commit, which the store has kept.
    pub fn follow(&self, time: Time) {
        let mut clocks = self.lock();
        clocks.steady.follow(moment(), time);
        self.offset.store(clocks.steady.offset(), Ordering::Relaxed);
    }

    pub fn status(&self) -> ClockStatus {
        let clocks = self.lock();
        let jump_of = |clock: &SteadyClock| clock.jump().map_or(0, |jump| jump.by_ms);
        let by_wall = self.by_wall.load(Ordering::Relaxed);
        ClockStatus {
            jump_ms: jump_of(&clocks.steady),
            machine_jump_ms: if by_wall { 0 } else { jump_of(&clocks.machine) },
            deletion_lag_ms: clocks.steady.deletion_lag_ms(moment()),
            jumps: self.jumps.load(Ordering::Relaxed),
        }
    }

    /// Compares the clocks as long as the server runs.
    pub async fn watch(self: Arc<NodeClock>, store: Arc<StoreClient>, node: Arc<Node>) {
        loop {
            self.compare(&store).await;
            node.set_deletion_lag(self.status().deletion_lag_ms);
            tokio::time::sleep(WATCH).await;
        }
    }

    async fn compare(&self, store: &StoreClient) {
        if self.by_wall.load(Ordering::Relaxed) {
            self.now();
            return;
        }
        let asked = moment();
        // A store that does not answer is reported by the lease.
        if store.read(Read::Time).await.is_err() {
            return;
        }
        let server = Time(self.server_wall.load(Ordering::Relaxed));
        let mut clocks = self.lock();
        let now = moment();
        let machine = clocks.machine.observe(now, now, SystemClock.now());
        let event = clocks.steady.observe(asked, moment(), server);
        self.offset.store(clocks.steady.offset(), Ordering::Relaxed);
        drop(clocks);
        self.report("machine", machine);
        self.report("store", event);
    }

    fn check_wall(&self, moment: Moment) {
        let Ok(mut clocks) = self.clocks.try_lock() else { return };
        self.checked.store(moment.0, Ordering::Relaxed);
        let event = clocks.steady.observe(moment, moment, SystemClock.now());
        self.offset.store(clocks.steady.offset(), Ordering::Relaxed);
        drop(clocks);
        self.report("machine", event);
    }

    fn report(&self, clock: &'static str, event: Option<ClockEvent>) {
        match event {
            None => {}
            Some(ClockEvent::Jumped { by_ms }) => {
                self.jumps.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(clock, by_ms, confirm_ms = self.confirm_ms, "clock jumped; not accepted yet");
            }
            Some(ClockEvent::Agrees) => tracing::info!(clock, "clock agrees with node time again"),
            Some(ClockEvent::Accepted { by_ms }) => {
                tracing::warn!(clock, by_ms, "clock jump accepted");
            }
            Some(ClockEvent::Slewing { by_ms }) => {
                tracing::warn!(clock, by_ms, "clock jump back accepted; slewing node time");
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Clocks> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for NodeClock {
    fn now(&self) -> Time {
        let moment = moment();
        if self.by_wall.load(Ordering::Relaxed) && moment.0 - self.checked.load(Ordering::Relaxed) >= CHECK_MS
        {
            self.check_wall(moment);
        }
        Time((moment.0 + self.offset.load(Ordering::Relaxed)).max(0).unsigned_abs())
    }

    /// Until the stored time is known, it must not change.
    fn latest(&self) -> Time {
        match self.started.load(Ordering::Acquire) {
            true => self.now() + STORE_AHEAD_MS.unsigned_abs(),
            false => Time::ZERO,
        }
    }

    fn observe_server(&self, wall: Time) {
        self.server_wall.store(wall.0, Ordering::Relaxed);
    }
}

impl ClockStatus {
    /// What an operator should know. None: the clocks agree.
    pub fn warning(&self) -> Option<String> {
        if self.jump_ms > 0 {
            return Some(format!(
                "the clock jumped {} ms ahead of this node's time; it is accepted if it stays",
                self.jump_ms
            ));
        }
        if self.jump_ms < 0 {
            let effect = match self.deletion_lag_ms {
                None => "nothing is deleted by age until this has held for clock.confirm_ms",
                Some(_) => "what is stored meanwhile is deleted by age that much later",
            };
            return Some(format!("this node's time is {} ms ahead of the clock; {effect}", -self.jump_ms));
        }
        let machine = self.machine_jump_ms;
        (machine != 0)
            .then(|| format!("the clock of this machine jumped by {machine} ms; tokens are judged by it"))
    }
}

impl MetricSource for NodeClock {
    fn gather(&self, all: &mut Vec<Series>) {
        let status = self.status();
        let ahead = status.jump_ms.max(0).unsigned_abs();
        let behind = status.jump_ms.min(0).unsigned_abs();
        all.push(Series::one(
            "tavern_clock_jumps_total",
            MetricKind::Counter,
            "Jumps of a clock by more than 5 s",
            status.jumps,
        ));
        for (name, help, ms) in [
            (
                "tavern_clock_ahead_seconds",
                "How far the clock is ahead of node time because of a jump that is not accepted",
                ahead,
            ),
            (
                "tavern_clock_behind_seconds",
                "How far the clock is behind node time because of a jump that is not accepted",
                behind,
            ),
        ] {
            let mut series = Series::new(name, MetricKind::Gauge, help);
            series.add_seconds([], ms);
            all.push(series);
        }
        all.push(Series::one(
            "tavern_clock_confirmed",
            MetricKind::Gauge,
            "1 if the clock is confirmed, so that events may be deleted by age",
            u64::from(status.deletion_lag_ms.is_some()),
        ));
    }
}

fn moment() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Moment(time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_ignored_once_the_store_keeps_time() {
        let clock = NodeClock::new(1_000);
        clock.leave_to_store();
        clock.observe_server(Time(1_000_000));
        clock.begin(Time(1_000_000));
        assert!(clock.now() < Time(1_010_000));
    }

    #[test]
    fn the_store_may_not_leave_its_time_before_it_is_known() {
        let clock = NodeClock::new(1_000);
        assert_eq!(clock.latest(), Time::ZERO);
        clock.begin(Time(5));
        let latest = clock.latest();
        assert!(latest > SystemClock.now() && latest < SystemClock.now() + 10_000);
    }

    #[test]
    fn a_stored_time_ahead_is_kept_and_reported() {
        let clock = NodeClock::new(1_000);
        let stored = SystemClock.now() + 86_400_000;
        clock.begin(stored);
        assert!(clock.now() >= stored);
        clock.check_wall(moment());
        let status = clock.status();
        assert!(status.deletion_lag_ms.is_none() && status.jump_ms < -86_000_000, "{status:?}");
        assert!(status.warning().is_some());
    }
}
