//! Where an event of a subscription lies in the log, found by its number or its time. Must hold: nothing is counted over a
//! part that the log does not keep; the same event is found at the same place from wherever one begins.

use super::ledger::{self, Tries};
use super::subscription::by_name;
use crate::topics::TopicsApi;
use std::sync::Arc;
use tavern_domain::delivery::LogMark;
use tavern_domain::topic::SubscriptionMarks;
use tavern_hub::topics::{Reading, Took};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Found, LogEnds, LogPage, Read};
use tavern_wire::error::Refusal;

pub async fn stretch(api: &TopicsApi, read: Read) -> Result<LogPage, Refusal> {
    match ledger::read(api, read).await? {
        Found::Log(stretch) => Ok(stretch),
        _ => Err(ledger::unexpected()),
    }
}

/// Reads on, and tells how the log was then. None: nothing will come, however much is published.
pub async fn step(
    api: &TopicsApi,
    reading: &mut Reading,
    limit: u32,
) -> Result<Option<(LogEnds, Took)>, Refusal> {
    let Some(read) = reading.read(limit) else { return Ok(None) };
    let stretch = stretch(api, read).await?;
    let log = stretch.log.clone();
    Ok(Some((log, reading.take(stretch))))
}

/// Reads on from a place until the event with this number lies behind. None: there are not so many.
pub async fn forward(
    api: &TopicsApi,
    marks: &Arc<SubscriptionMarks>,
    from: LogMark,
    seq: u64,
) -> Result<Option<LogMark>, Refusal> {
    let mut reading = Reading::new(marks.clone(), from);
    while reading.at().seq < seq {
        let limit = u32::try_from(seq - reading.at().seq).unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
        let Some((_, took)) = step(api, &mut reading, limit).await? else { return Ok(None) };
        if !took.more && reading.at().seq < seq {
            return Ok(None);
        }
    }
    Ok(Some(reading.at()))
}

/// A place behind which so many events lie at most, and after which the log has everything. None: it begins later.
pub async fn before(
    api: &TopicsApi,
    marks: &Arc<SubscriptionMarks>,
    seq: u64,
) -> Result<Option<LogMark>, Refusal> {
    let first = beginning(api, marks).await?;
    if first.seq > seq {
        return Ok(None);
    }
    let near = marks.before(seq + 1);
    Ok(Some(if near.seq <= seq && near.position >= first.position { near } else { first }))
}

/// The place right before the oldest event of a subscription that the log keeps.
pub async fn beginning(api: &TopicsApi, marks: &Arc<SubscriptionMarks>) -> Result<LogMark, Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let first = ledger::counts(api, Vec::new()).await?.log.first;
        if let Some(mark) = at(api, marks, first - 1, first).await? {
            return Ok(mark);
        }
    }
}

/// A position as the subscription counts: the counts of its topics there, less those where they became its topics. None: the log does not
/// begin at `first` any more.
pub async fn at(
    api: &TopicsApi,
    marks: &Arc<SubscriptionMarks>,
    position: u64,
    first: u64,
) -> Result<Option<LogMark>, Refusal> {
    let oldest = &marks.changes()[0];
    let change = marks.changes().iter().rev().find(|change| change.position <= position).unwrap_or(oldest);
    if change.position >= position {
        return Ok(Some(LogMark { seq: change.seq, position: change.position }));
    }
    let names: Vec<Arc<str>> = change.counts.keys().cloned().collect();
    let mut seq = change.seq;
    if !names.is_empty() {
        let head = ledger::counts(api, names).await?;
        if head.log.first != first {
            return Ok(None);
        }
        let head = by_name(head);
        for (topic, before) in &change.counts {
            let read = Read::Log { topics: vec![topic.clone()], after: position, limit: 1 };
            let next = stretch(api, read).await?;
            if next.log.first != first {
                return Ok(None);
            }
            let had = match next.page.rows.first() {
                Some(next) => next.count - 1,
                None => head.get(topic).copied().unwrap_or(0),
            };
            seq += had.saturating_sub(*before);
        }
    }
    Ok(Some(LogMark { seq, position }))
}
