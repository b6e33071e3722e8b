//! Clocks that jump, drift and come back, in virtual time.

use super::*;

const DAY: i64 = 24 * 3_600_000;
const START: i64 = 1_800_000_000_000;
const CONFIRM: i64 = 600_000;

/// A machine whose wall clock can be set.
#[derive(Clone)]
struct Machine {
    clock: SteadyClock,
    uptime: i64,
    wall: i64,
    events: alloc::vec::Vec<ClockEvent>,
}

impl Machine {
    fn start(wall: i64, stored: i64) -> Machine {
        let time = |ms: i64| Time(ms.unsigned_abs());
        let clock = SteadyClock::start(Moment(0), time(wall), time(stored), CONFIRM.unsigned_abs());
        Machine { clock, uptime: 0, wall, events: alloc::vec::Vec::new() }
    }

    /// Time passes; the clock is read each 100 ms. It never goes back and is never faster than the slew allows, unless
    /// a jump is accepted.
    fn run(&mut self, ms: i64) -> &mut Machine {
        let end = self.uptime + ms;
        while self.uptime < end {
            let before = self.now();
            let step = 100.min(end - self.uptime);
            self.uptime += step;
            self.wall += step;
            let at = Moment(self.uptime);
            let event = self.clock.observe(at, at, Time(self.wall.unsigned_abs()));
            self.events.extend(event);
            let passed = self.now() - before;
            assert!(passed >= 0, "node time went back by {passed}");
            let max = step + step / SLEW + 1;
            let accepted = matches!(event, Some(ClockEvent::Accepted { .. }));
            assert!(passed <= max || accepted, "{passed} ms in {step} ms");
        }
        self
    }

    fn set_wall(&mut self, by: i64) -> &mut Machine {
        self.wall += by;
        self
    }

    fn now(&self) -> i64 {
        signed(self.clock.time(Moment(self.uptime)))
    }

    /// How far node time is from the true time.
    fn error(&self) -> i64 {
        self.now() - START - self.uptime
    }

    fn is_confirmed(&self) -> bool {
        self.deletion_lag_ms().is_some()
    }

    fn deletion_lag_ms(&self) -> Option<i64> {
        self.clock.deletion_lag_ms(Moment(self.uptime)).map(|lag| i64::try_from(lag).unwrap())
    }
}

#[test]
fn a_short_jump_leaves_no_trace() {
    for by in [8 * DAY, -8 * DAY, 10_000, -10_000] {
        let mut machine = Machine::start(START, START);
        machine.run(1_000).set_wall(by).run(3_000);
        assert!(machine.error().abs() < 5, "{by}: {}", machine.error());
        machine.set_wall(-by).run(60_000);
        assert!(machine.error().abs() < 5, "{by}: {}", machine.error());
        assert!(matches!(machine.events[..], [ClockEvent::Jumped { .. }, ClockEvent::Agrees]));
        assert!(machine.is_confirmed());
    }
}

#[test]
fn a_jump_forward_is_accepted_after_it_has_held() {
    let mut machine = Machine::start(START, START);
    machine.run(1_000).set_wall(DAY).run(CONFIRM - 1_000);
    assert!(machine.error().abs() < 5);
    machine.run(2_000);
    assert!((machine.error() - DAY).abs() < 5, "{}", machine.error());
    assert!(matches!(machine.events[1], ClockEvent::Accepted { by_ms } if (by_ms - DAY).abs() < 5));
}

#[test]
fn a_second_jump_starts_the_confirmation_again() {
    let mut machine = Machine::start(START, START);
    machine.set_wall(DAY).run(CONFIRM - 5_000).set_wall(DAY).run(CONFIRM - 5_000);
    assert!(machine.error().abs() < 5);
    assert_eq!(machine.events.len(), 2);
    machine.run(10_000);
    assert!((machine.error() - 2 * DAY).abs() < 5);
}

#[test]
fn a_reference_that_drifts_within_the_step_is_the_same_jump() {
    let day = Time(2 * DAY.unsigned_abs());
    let mut clock = SteadyClock::start(Moment(0), Time(DAY.unsigned_abs()), Time(0), 1_000);
    assert!(matches!(clock.observe(Moment(0), Moment(0), day), Some(ClockEvent::Jumped { .. })));
    let drifted = day + STEP_MS.unsigned_abs();
    assert_eq!(clock.observe(Moment(0), Moment(0), drifted), None);
    assert!(matches!(clock.observe(Moment(0), Moment(0), drifted + 1), Some(ClockEvent::Jumped { .. })));
}

#[test]
fn a_jump_back_that_holds_is_approached_slowly_and_ages_are_judged_by_the_clock() {
    let mut machine = Machine::start(START, START);
    machine.set_wall(-60_000).run(CONFIRM - 1_000);
    assert!(!machine.is_confirmed());
    machine.run(2_000);
    assert!(matches!(machine.events[1], ClockEvent::Slewing { .. }));
    let lag = machine.deletion_lag_ms().unwrap();
    assert!((lag - 60_000).abs() < 100, "{lag}");
    machine.run(60_000 * SLEW / 2);
    let lag = machine.deletion_lag_ms().unwrap();
    assert!((lag - 30_000).abs() < 100, "{lag}");
    machine.run(60_000 * SLEW / 2);
    assert!((machine.error() + 60_000).abs() < 50, "{}", machine.error());
    assert_eq!(machine.deletion_lag_ms(), Some(0));
}

#[test]
fn small_differences_are_slewed() {
    for by in [2_000, -2_000] {
        let mut machine = Machine::start(START, START);
        machine.set_wall(by).run(10_000);
        assert!(machine.error().abs() <= 500, "at most one part in {SLEW}");
        machine.run(60_000);
        assert!((machine.error() - by).abs() < 5, "{}", machine.error());
        assert!(machine.events.is_empty() && machine.is_confirmed());
    }
}

#[test]
fn a_restart_is_not_evidence() {
    // The stored time is a day old: the machine was off, or its clock is wrong. Time continues, ages wait.
    let mut machine = Machine::start(START, START - DAY);
    assert_eq!(machine.error(), 0);
    assert!(!machine.is_confirmed());
    machine.run(CONFIRM - 1_000);
    assert!(!machine.is_confirmed());
    machine.run(2_000);
    assert!(machine.is_confirmed());
}

#[test]
fn the_first_start_and_a_quick_restart_are_confirmed() {
    assert!(Machine::start(START, 0).is_confirmed());
    assert!(Machine::start(START, START - 2_000).is_confirmed());
}

#[test]
fn a_stored_time_ahead_of_the_clock_pauses_ages_until_it_is_confirmed() {
    let mut machine = Machine::start(START, START + DAY);
    assert_eq!(machine.error(), DAY, "versions and leases must not go back");
    machine.run(1_000);
    assert!(!machine.is_confirmed());
    assert_eq!(machine.clock.jump().map(|jump| (jump.by_ms + DAY).abs() < 5), Some(true));
    let mut caught_up = machine.clone();
    caught_up.set_wall(DAY).run(1_000);
    assert_eq!(caught_up.deletion_lag_ms(), Some(0));
    machine.run(CONFIRM);
    let lag = machine.deletion_lag_ms().unwrap();
    assert!((lag - DAY).abs() < 1_000, "{lag}");
}

#[test]
fn a_store_far_ahead_is_followed_but_not_one_that_is_a_request_ahead() {
    let mut machine = Machine::start(START, START);
    machine.run(1_000);
    let now = machine.now();
    for ahead_ms in [STORE_AHEAD_MS, FOLLOW_MS] {
        machine.clock.follow(Moment(machine.uptime), Time((now + ahead_ms).unsigned_abs()));
        assert_eq!(machine.now(), now, "{ahead_ms}");
    }
    machine.clock.follow(Moment(machine.uptime), Time((now + DAY).unsigned_abs()));
    assert_eq!(machine.now(), now + DAY);
}

#[test]
fn a_slow_answer_of_the_reference_changes_little() {
    let mut clock = SteadyClock::start(Moment(0), Time(1_000_000), Time(1_000_000), 1_000);
    assert_eq!(clock.observe(Moment(0), Moment(4_000), Time(1_000_003)), None);
    assert_eq!(clock.offset(), 1_000_000);
}
