//! How a node's time follows a reference clock that may be wrong: the wall clock of the machine, or the clock of the
//! store's server. The monotonic time and the reference are inputs.
//! Must hold: node time never goes back, and advances no faster than the monotonic clock plus the slew, except when a
//! jump is accepted; a jump is accepted only after it has held for the confirmation time.

use crate::time::Time;

/// A difference up to this is corrected by slewing; a larger one is a jump.
pub const STEP_MS: i64 = 5_000;
/// Slewing corrects at most one millisecond in this many.
pub const SLEW: i64 = 20;
/// The store's time may be this far ahead of a node's: nodes differ by the delay of their requests.
pub const STORE_AHEAD_MS: i64 = 1_000;
/// Beyond this, another node has accepted a jump, and this one follows the store.
const FOLLOW_MS: i64 = 3 * STORE_AHEAD_MS;

/// Milliseconds of a monotonic clock that counts suspended time too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

/// The time of one node.
#[derive(Clone, Debug)]
pub struct SteadyClock {
    confirm_ms: i64,
    /// Node time minus monotonic time.
    offset: i64,
    /// Slewing has been applied up to this moment.
    slewed: Moment,
    /// The reference differs from node time by more than `STEP_MS`.
    jump: Option<ClockJump>,
    /// The time that the process started with, compared to the stored time, is accepted from this moment on.
    start_confirmed: Moment,
}

/// The reference clock is away from node time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    since: Moment,
    /// The reference minus the monotonic time when it was first seen.
    reference: i64,
    /// How far the reference is ahead of node time; negative: behind.
    pub by_ms: i64,
    confirmed: bool,
}

/// A change that operators should see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockEvent {
    /// The reference jumped; node time continues as before.
    Jumped { by_ms: i64 },
    /// The reference agrees with node time again.
    Agrees,
    /// A jump forward has held for the confirmation time: node time has taken it.
    Accepted { by_ms: i64 },
    /// A jump back has held for the confirmation time: node time approaches it by slewing.
    Slewing { by_ms: i64 },
}

impl SteadyClock {
    /// A process starts at `now`, when the reference showed `reference` and the store had last kept `stored` (0: never).
    pub fn start(now: Moment, reference: Time, stored: Time, confirm_ms: u64) -> SteadyClock {
        let (reference, stored) = (signed(reference), signed(stored));
        let confirm_ms = i64::try_from(confirm_ms).unwrap_or(i64::MAX);
        let is_known = stored == 0 || reference.saturating_sub(stored) <= STEP_MS;
        let (offset, reference) =
            (reference.max(stored).saturating_sub(now.0), reference.saturating_sub(now.0));
        let by_ms = reference.saturating_sub(offset);
        let behind = ClockJump { since: now, reference, by_ms, confirmed: false };
        SteadyClock {
            confirm_ms,
            offset,
            slewed: now,
            jump: (by_ms < -STEP_MS).then_some(behind),
            start_confirmed: if is_known { now } else { Moment(now.0.saturating_add(confirm_ms)) },
        }
    }

    pub fn time(&self, now: Moment) -> Time {
        Time(now.0.saturating_add(self.offset).max(0).unsigned_abs())
    }

    /// Node time minus monotonic time.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    pub fn jump(&self) -> Option<ClockJump> {
        self.jump
    }

    /// The reference was read at some moment from `asked` to `answered`.
    pub fn observe(&mut self, asked: Moment, answered: Moment, reference: Time) -> Option<ClockEvent> {
        let reference = signed(reference);
        // Both clocks truncate to milliseconds.
        let (least, max) = (reference - answered.0 - 1, reference - asked.0 + 1);
        let target = self.offset.clamp(least, max.max(least));
        let by_ms = target.saturating_sub(self.offset);
        let event = self.judge(answered, target, by_ms);
        let is_accepted = matches!(event, Some(ClockEvent::Accepted { .. }));
        if !is_accepted && self.jump.is_none_or(|jump| jump.confirmed) {
            self.slew(answered, by_ms);
        } else {
            self.slewed = answered;
        }
        event
    }

    fn judge(&mut self, now: Moment, reference: i64, by_ms: i64) -> Option<ClockEvent> {
        if by_ms.abs() <= STEP_MS {
            return self.jump.take().map(|_| ClockEvent::Agrees);
        }
        let Some(jump) = &mut self.jump else {
            self.jump = Some(ClockJump { since: now, reference, by_ms, confirmed: false });
            return Some(ClockEvent::Jumped { by_ms });
        };
        jump.by_ms = by_ms;
        if (reference.saturating_sub(jump.reference)).abs() > STEP_MS {
            // It jumped again: earlier observations confirm nothing.
            *jump = ClockJump { since: now, reference, by_ms, confirmed: false };
            return Some(ClockEvent::Jumped { by_ms });
        }
        if jump.confirmed || now.0.saturating_sub(jump.since.0) < self.confirm_ms {
            return None;
        }
        if by_ms > 0 {
            self.offset = self.offset.saturating_add(by_ms);
            self.jump = None;
            return Some(ClockEvent::Accepted { by_ms });
        }
        jump.confirmed = true;
        Some(ClockEvent::Slewing { by_ms })
    }

    fn slew(&mut self, now: Moment, by_ms: i64) {
        let max = now.0.saturating_sub(self.slewed.0).max(0) / SLEW;
        let by = by_ms.clamp(-max, max);
        if by != 0 || by_ms == 0 {
            self.offset = self.offset.saturating_add(by);
            self.slewed = now;
        }
    }

    /// The store has kept this time, not later than `answered`. A store that is far ahead leads: another node has
    /// accepted a jump, and leases and deadlines are judged by the store.
    pub fn follow(&mut self, answered: Moment, stored: Time) {
        let least = signed(stored).saturating_sub(answered.0);
        if least.saturating_sub(self.offset) > FOLLOW_MS {
            self.offset = least;
        }
    }

    /// How far behind node time the time is by which rows may be deleted by age. None: nothing may be deleted, because
    /// the time of the start or a jump back is not confirmed. After a confirmed jump back it is the reference's time:
    /// rows that were stored meanwhile are kept that much longer.
    pub fn deletion_lag_ms(&self, now: Moment) -> Option<u64> {
        let lag_ms = match self.jump {
            Some(jump) if jump.by_ms < 0 => jump.confirmed.then_some(jump.by_ms.unsigned_abs()),
            _ => Some(0),
        };
        lag_ms.filter(|_| now >= self.start_confirmed)
    }

    /// How long until the time of the start counts as confirmed.
    pub fn unconfirmed_ms(&self, now: Moment) -> u64 {
        self.start_confirmed.0.saturating_sub(now.0).max(0).unsigned_abs()
    }
}

fn signed(time: Time) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
