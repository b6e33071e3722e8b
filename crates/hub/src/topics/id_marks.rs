//! Which ids of events are old enough to be forgotten. The log may drop an event earlier than its id, so the end of the
//! log is noted from time to time. Must hold: an id is kept for at least a day, whatever the log has dropped.

use super::load::{LoadStop, parse, peek};
use crate::transaction::Facts;
use tavern_domain::Time;
use tavern_wire::record::{self, EVENT_IDS, EVENTS};

/// How long an event id is kept for deduplication.
pub(super) const ID_MS: u64 = 24 * 3_600_000;
/// How often the end of the log is noted.
const MARK_MS: u64 = 3_600_000;

/// Positions that were the end of the log at these times, in milliseconds; the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IdMarks(Vec<(u64, u64)>);

impl IdMarks {
    pub fn load(facts: &Facts) -> Result<IdMarks, LoadStop> {
        match peek(facts, EVENTS, EVENT_IDS)? {
            Some(found) => Ok(IdMarks(parse(found, |bytes| record::read(bytes))?.row)),
            None => Ok(IdMarks::default()),
        }
    }

    /// The first position whose id must be kept.
    pub fn kept_from(&self, now: Time) -> u64 {
        self.0.iter().rev().find(|mark| is_old(mark, now)).map_or(0, |(position, _)| position + 1)
    }

    /// With the current end of the log; none: the last mark is young.
    pub fn with(&self, now: Time, head: u64) -> Option<IdMarks> {
        if self.0.last().is_some_and(|(_, at)| now.ms() < at + MARK_MS) {
            return None;
        }
        let old = self.0.iter().filter(|mark| is_old(mark, now)).count();
        let kept = self.0.iter().skip(old.saturating_sub(1));
        Some(IdMarks(kept.copied().chain([(head, now.ms())]).collect()))
    }

    /// As a document.
    pub fn write(&self) -> Vec<u8> {
        record::write(&self.0)
    }
}

fn is_old((_, at): &(u64, u64), now: Time) -> bool {
    now.ms().saturating_sub(*at) >= ID_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_kept_for_a_day_and_marks_are_few() {
        let mut marks = IdMarks::default();
        for hour in 0..100 {
            let now = Time(hour * MARK_MS);
            // Ten events in an hour.
            marks = marks.with(now, hour * 10).unwrap();
            assert_eq!(marks.with(now + 60_000, 1_000), None, "the last mark is young");
            let expected = if hour < 24 { 0 } else { (hour - 24) * 10 + 1 };
            assert_eq!(marks.kept_from(now), expected, "after {hour} hours");
            assert!(marks.0.len() <= 26, "{}", marks.0.len());
        }
    }
}
