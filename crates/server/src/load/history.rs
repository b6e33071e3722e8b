//! The figures of this node: every 2 s for five minutes, every 30 s for an hour, every five minutes for a day.
//! Must hold: the memory is bounded; a step in which nothing was read has no figures; a clock that is set does not mix times.

use super::figures::{FIGURES, LoadReading, NAMES, Point, UNKNOWN, USERS_ONLINE, set_oldest_event};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_domain::Time;
use tavern_wire::bus::load::LoadSeries;

/// How long a step is, and how many are kept.
pub const STEPS: [(u64, usize); 3] = [(2_000, 150), (30_000, 120), (300_000, 288)];
/// Where the last figures are looked for: latencies are not known in each step.
const LATEST_POINTS: u64 = 5;

pub struct LoadHistory(Mutex<Tiers>);

struct Tiers {
    tiers: [Tier; 3],
    latest: Option<LoadReading>,
}

struct Tier {
    step_ms: u64,
    /// The point of a step is at the number of the step, modulo their count.
    points: Box<[Point]>,
    /// The last step that has ended.
    last: u64,
    /// The reading at its end.
    from: Option<LoadReading>,
    oldest_event_ms: f32,
}

impl Default for LoadHistory {
    fn default() -> LoadHistory {
        let tier = |(step_ms, count): (u64, usize)| Tier {
            step_ms,
            points: vec![UNKNOWN; count].into(),
            last: 0,
            from: None,
            oldest_event_ms: f32::NAN,
        };
        LoadHistory(Mutex::new(Tiers { tiers: STEPS.map(tier), latest: None }))
    }
}

impl LoadHistory {
    pub fn observe(&self, now: Time, reading: LoadReading) {
        let mut kept = self.lock();
        kept.tiers.iter_mut().for_each(|tier| tier.observe(now.ms(), &reading));
        kept.latest = Some(reading);
    }

    /// The last figures that are known.
    pub fn figures(&self) -> BTreeMap<Arc<str>, f32> {
        let kept = self.lock();
        let tier = &kept.tiers[0];
        let last = |figure: usize| {
            let steps = (0..LATEST_POINTS).map(|back| tier.point(tier.last.saturating_sub(back))[figure]);
            steps.into_iter().find(|figure| !figure.is_nan())
        };
        NAMES.iter().enumerate().filter_map(|(at, (name, _))| Some(((*name).into(), last(at)?))).collect()
    }

    /// The series of a step; None: there is no such step.
    pub fn series(&self, step_ms: u64) -> Option<LoadSeries> {
        let kept = self.lock();
        let tier = kept.tiers.iter().find(|tier| tier.step_ms == step_ms)?;
        // A long step that has not ended is shown as it is so far.
        let open = (step_ms > STEPS[0].0).then(|| tier.open_point(kept.latest.as_ref()?)).flatten();
        let (end, count) = (tier.last + u64::from(open.is_some()), tier.points.len() as u64);
        let steps = (end + 1).saturating_sub(count)..=end;
        let points: Vec<&Point> = steps
            .map(|step| open.as_ref().filter(|_| step > tier.last).unwrap_or(tier.point(step)))
            .collect();
        let line = |figure: usize| -> Vec<f32> { points.iter().map(|point| point[figure]).collect() };
        let lines = (0..FIGURES).map(|figure| (NAMES[figure].0.into(), line(figure)));
        let lines = lines.filter(|(_, line): &(_, Vec<f32>)| line.iter().any(|point| !point.is_nan()));
        Some(LoadSeries { step_ms, end, lines: lines.collect() })
    }

    /// Takes the users online of steps that this node has not seen from another node: the count is the cluster's.
    pub fn fill(&self, other: &LoadSeries) {
        let mut kept = self.lock();
        let Some(tier) = kept.tiers.iter_mut().find(|tier| tier.step_ms == other.step_ms) else { return };
        let Some(line) = other.lines.get(NAMES[USERS_ONLINE].0) else { return };
        let oldest = (tier.last + 1).saturating_sub(tier.points.len() as u64);
        for (back, users) in line.iter().rev().enumerate() {
            let Some(step) = other.end.checked_sub(back as u64).filter(|step| *step >= oldest) else {
                return;
            };
            if step <= tier.last && !users.is_nan() {
                let known = &mut tier.point_mut(step)[USERS_ONLINE];
                *known = if known.is_nan() { *users } else { *known };
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tiers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tier {
    fn observe(&mut self, now_ms: u64, reading: &LoadReading) {
        // `max` prefers a number to none.
        self.oldest_event_ms = self.oldest_event_ms.max(reading.oldest_event_ms());
        let step = now_ms / self.step_ms;
        if self.from.is_some() && step == self.last {
            return;
        }
        match self.open_point(reading) {
            Some(point) => {
                let count = self.points.len() as u64;
                if step < self.last || step - self.last >= count {
                    self.points.fill(UNKNOWN);
                } else {
                    (self.last + 1..step).for_each(|missed| *self.point_mut(missed) = UNKNOWN);
                }
                *self.point_mut(step) = point;
            }
            None => self.points.fill(UNKNOWN),
        }
        (self.last, self.from, self.oldest_event_ms) = (step, Some(reading.clone()), f32::NAN);
    }

    /// The figures since the last step ended.
    fn open_point(&self, reading: &LoadReading) -> Option<Point> {
        let mut point = reading.since(self.from.as_ref()?);
        set_oldest_event(&mut point, self.oldest_event_ms.max(reading.oldest_event_ms()));
        Some(point)
    }

    fn point(&self, step: u64) -> &Point {
        &self.points[(step % self.points.len() as u64) as usize]
    }

    fn point_mut(&mut self, step: u64) -> &mut Point {
        &mut self.points[(step % self.points.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::reading;
    use super::*;
    use std::time::Instant;

    const NOW: u64 = 1_760_000_000_000;

    fn observe(history: &LoadHistory, start: Instant, at_ms: u64, counter: u64, level: f32) {
        history.observe(Time(NOW + at_ms), reading(start, at_ms, counter, level));
    }

    fn line(history: &LoadHistory, step_ms: u64, name: &str) -> Vec<f32> {
        history.series(step_ms).unwrap().lines.remove(name).unwrap_or_default()
    }

    #[test]
    fn a_day_is_kept_at_falling_resolution() {
        let (history, start) = (LoadHistory::default(), Instant::now());
        for second in 0..100_000 {
            observe(&history, start, second * 1_000, second * 5, second as f32);
        }
        for (step_ms, count) in STEPS {
            let (users, rates) =
                (line(&history, step_ms, "users_online"), line(&history, step_ms, "published"));
            assert_eq!((users.len(), rates.len()), (count, count));
            assert!(rates.iter().all(|rate| *rate == 5.0), "{step_ms}: {rates:?}");
            let steps: Vec<f32> = users[..count - 1].windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(steps.iter().all(|step| *step == step_ms as f32 / 1e3), "{step_ms}: {steps:?}");
            assert!(users[count - 1] >= 99_998.0);
        }
        assert_eq!(history.figures()["users_online"], 99_998.0);
        assert!(history.series(1_000).is_none());
    }

    #[test]
    fn a_long_step_is_shown_before_it_ends() {
        let (history, start) = (LoadHistory::default(), Instant::now());
        observe(&history, start, 0, 0, 1.0);
        observe(&history, start, 1_000, 10, 2.0);
        assert!(line(&history, 2_000, "published").is_empty(), "a short one is not");
        assert_eq!(line(&history, 300_000, "published").last(), Some(&10.0));
        assert_eq!(line(&history, 300_000, "users_online").last(), Some(&2.0));
    }

    #[test]
    fn a_step_without_a_reading_has_no_figures() {
        let (history, start) = (LoadHistory::default(), Instant::now());
        for second in [0, 2, 4, 12, 14] {
            observe(&history, start, second * 1_000, second, 1.0);
        }
        let known: Vec<bool> =
            line(&history, 2_000, "users_online").iter().rev().take(6).map(|users| !users.is_nan()).collect();
        assert_eq!(known, [true, true, false, false, false, true]);
        // The clock is set back: what follows is not mixed with what was.
        history.observe(Time(NOW - 3_600_000), reading(start, 16_000, 16, 2.0));
        assert_eq!(line(&history, 2_000, "users_online").iter().filter(|users| !users.is_nan()).count(), 1);
    }

    #[test]
    fn the_largest_age_of_a_step_is_kept() {
        let (history, start) = (LoadHistory::default(), Instant::now());
        for (second, age) in [(0, 0.0), (5, 900.0), (10, 0.0), (31, 0.0)] {
            observe(&history, start, second * 1_000, 0, age);
        }
        let ages = line(&history, 30_000, "oldest_event_ms");
        assert_eq!(ages.iter().copied().filter(|age| !age.is_nan()).fold(0.0, f32::max), 900.0);
        assert_eq!(line(&history, 30_000, "users_online").iter().rfind(|users| !users.is_nan()), Some(&0.0));
    }

    #[test]
    fn a_node_that_started_learns_the_users_online_of_before() {
        let (old, young, start) = (LoadHistory::default(), LoadHistory::default(), Instant::now());
        for second in 0..4_000 {
            observe(&old, start, second * 1_000, 0, second as f32);
        }
        for second in 4_000..4_010 {
            observe(&young, start, second * 1_000, 0, 9.0);
        }
        for (step_ms, count) in STEPS {
            young.fill(&old.series(step_ms).unwrap());
            let users = line(&young, step_ms, "users_online");
            assert!(users.len() == count && users[count - 2] >= 9.0, "{step_ms}: {users:?}");
            assert!(step_ms == 300_000 || !users[count / 2].is_nan(), "{step_ms}: {users:?}");
            assert!(
                line(&young, step_ms, "sessions").iter().filter(|sessions| !sessions.is_nan()).count() < 6
            );
        }
        assert_eq!(line(&young, 2_000, "users_online").last(), Some(&9.0), "its own count stays");
    }
}
