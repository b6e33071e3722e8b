//! The position of an event of a subscription in the log, found by its number or its time. Must hold: no count spans
//! a part that the log has dropped; the same event is found at the same position, wherever the search starts.

use super::load::{LoadStop, by_name, counts, log, log_ends, read_on};
use super::reading::LogReading;
use crate::transaction::Facts;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::LogMark;
use tavern_domain::topic::SubscriptionMarks;
use tavern_store::LogEnds;
use tavern_store::limits::PAGE_ROWS;

/// Reads on from a position until the event with a number is behind it.
#[derive(Clone)]
pub(super) struct Forward {
    reading: LogReading,
    /// The log starts after a position from which it was read: the numbers are only right if no own event was dropped.
    pub cut: bool,
}

impl Forward {
    pub fn new(marks: &Arc<SubscriptionMarks>, from: LogMark) -> Forward {
        Forward { reading: LogReading::new(marks.clone(), from), cut: false }
    }

    /// None: there are not that many events.
    pub fn to(&mut self, facts: &Facts, seq: u64) -> Result<Option<LogMark>, LoadStop> {
        let reading = &mut self.reading;
        while reading.at().seq < seq {
            let begun = reading.at();
            let limit = u32::try_from(seq - reading.at().seq).unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
            let Some((log, took)) = read_on(facts, reading, limit)? else { return Ok(None) };
            self.cut |= log.first > begun.position + 1;
            if !took.more && reading.at().seq < seq {
                return Ok(None);
            }
        }
        Ok(Some(reading.at()))
    }
}

/// A position with at most this many events before it, after which the log is complete. None: the log starts later.
pub(super) fn before(
    facts: &Facts,
    marks: &Arc<SubscriptionMarks>,
    seq: u64,
) -> Result<Option<LogMark>, LoadStop> {
    let first = beginning(facts, marks)?;
    if first.seq > seq {
        return Ok(None);
    }
    let near = marks.before(seq.saturating_add(1));
    Ok(Some(if near.seq <= seq && near.position >= first.position { near } else { first }))
}

/// The position right before the oldest event of a subscription that is in the log.
pub(super) fn beginning(facts: &Facts, marks: &Arc<SubscriptionMarks>) -> Result<LogMark, LoadStop> {
    let first = log_ends(facts)?.first;
    at(facts, marks, first - 1, first)
}

/// A position in the numbers of a subscription: the counts of its topics there, minus the counts where they became
/// its topics. Starts again if the log no longer starts at `first`.
pub(super) fn at(
    facts: &Facts,
    marks: &Arc<SubscriptionMarks>,
    position: u64,
    first: u64,
) -> Result<LogMark, LoadStop> {
    let oldest = &marks.changes()[0];
    let change = marks.changes().iter().rev().find(|change| change.position <= position).unwrap_or(oldest);
    if change.position >= position {
        return Ok(LogMark { seq: change.seq, position: change.position });
    }
    let names: Vec<Arc<str>> = change.counts.keys().cloned().collect();
    let mut seq = change.seq;
    if !names.is_empty() {
        let head = counts(facts, names)?;
        if head.log.first != first {
            return Err(LoadStop::Again);
        }
        let (counted_at, head) = (head.log.head, by_name(head));
        for (topic, before) in &change.counts {
            let next = log(facts, vec![topic.clone()], position, 1)?;
            if next.log.first != first {
                return Err(LoadStop::Again);
            }
            let had = match next.page.rows.first() {
                Some(next) => next.count - 1,
                // Counted after this read, which another subscription needed first: an event may be in between.
                None if next.log.head < counted_at => return Err(LoadStop::Again),
                None => head.get(topic).copied().unwrap_or(0),
            };
            seq += had.saturating_sub(*before);
        }
    }
    Ok(LogMark { seq, position })
}

/// The last position whose event was accepted before this time. Starts again if the log was trimmed. The store's time
/// never goes back, so a binary search finds it.
pub(super) fn last_before(facts: &Facts, ends: &LogEnds, time_ms: u64) -> Result<u64, LoadStop> {
    let (mut early, mut late) = (ends.first - 1, ends.head + 1);
    while early + 1 < late {
        let middle = early + (late - early) / 2;
        match log(facts, Vec::new(), middle - 1, 1)?.page.rows.first() {
            Some(event) if event.position == middle && event.at.ms() >= time_ms => late = middle,
            Some(event) if event.position == middle => early = middle,
            _ => return Err(LoadStop::Again),
        }
    }
    Ok(early)
}

/// A position behind all events of a topic up to this count, and before the next one.
pub(super) fn behind(facts: &Facts, topic: &Arc<str>, count: u64) -> Result<u64, LoadStop> {
    if count == 0 {
        return Ok(0);
    }
    let ends = log_ends(facts)?;
    let (mut early, mut late) = (ends.first - 1, ends.head);
    while early < late {
        let middle = early + (late - early) / 2;
        match log(facts, vec![topic.clone()], middle, 1)?.page.rows.first() {
            Some(event) if event.count <= count => early = event.position,
            _ => late = middle,
        }
    }
    Ok(early)
}

/// The first position that was accepted no longer ago than this.
pub(super) fn first_since(facts: &Facts, ends: &LogEnds, now: Time, age_ms: u64) -> Result<u64, LoadStop> {
    let (mut old, mut young) = (ends.first, ends.head + 1);
    while old < young {
        let middle = old + (young - old) / 2;
        match log(facts, Vec::new(), middle - 1, 1)?.page.rows.first() {
            Some(entry) if now.since(entry.at) > age_ms => old = entry.position + 1,
            _ => young = middle,
        }
    }
    Ok(old)
}
