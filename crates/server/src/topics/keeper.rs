//! Keeps the log within its budgets: drops the oldest stretch by age and by bytes, and forgets old ids. Any node may do it;
//! the store arbitrates. Must hold: whoever had not been given what is dropped gets a gap in its place, in the same commit;
//! batches under way are copied out first; publishing is never held up.

use super::budgets::Budgets;
use super::office::{ledger, place};
use crate::topics::TopicsApi;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_domain::delivery::{Batch, DeliveryProgress};
use tavern_domain::topic::{DELIVERIES, SubscriptionMarks};
use tavern_hub::topics::delivery::DeliveryNotice;
use tavern_hub::topics::{Reading, announcement};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{LogEnds, Read, Trim, Versioned};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::shown_id;
use tavern_wire::record::{self, COPY, CopiedEvent, DELIVERY, EVENTS, LOG, MARKS};

/// How often the bytes are looked at, and after how many such looks the ages.
const LOOK: Duration = Duration::from_secs(2);
const AGES: u32 = 30;
/// How long the id that a publisher gave is known.
const ID_MS: u64 = 24 * 3_600_000;
/// Subscriptions that are told in one commit: each is a few of its rows.
const TOLD: usize = 1_000;
/// When others change the same subscriptions all the time, the next look tries again.
const TRIES: u32 = 5;

pub async fn keep(api: Arc<TopicsApi>) {
    let mut budgets = Budgets::default();
    for look in 0u32.. {
        tokio::time::sleep(LOOK).await;
        if api.is_stopping() {
            return;
        }
        if let Err(refusal) = attend(&api, look % AGES == 0).await {
            tracing::debug!(%refusal, "the look at the log is put off");
        }
        if let Err(refusal) = budgets.attend(&api).await {
            tracing::debug!(%refusal, "the look at the budgets of subscriptions is put off");
        }
    }
}

/// One look at the log.
pub async fn attend(api: &TopicsApi, ages: bool) -> Result<(), Refusal> {
    let events = &api.config.events;
    let log = ends(api).await?;
    let mut before = log.first;
    let mut ids_before = 0;
    if ages {
        let now = api.now();
        let by_age = first_since(api, &log, now, events.retention_ms).await?;
        before = before.max(by_age);
        sweep(api).await?;
        let by_id_age = first_since(api, &log, now, ID_MS).await?;
        ids_before = by_id_age.max((log.head + 1).saturating_sub(events.dedupe_max));
    }
    if log.bytes > events.max_bytes {
        before = before.max(first_within(api, &log, events.low_bytes).await?);
    }
    if before > log.first || ids_before > 0 {
        for _ in 0..TRIES {
            if cut(api, before, ids_before).await? {
                return Ok(());
            }
        }
        tracing::info!("the log could not be cut: its subscriptions change all the time");
    }
    Ok(())
}

async fn ends(api: &TopicsApi) -> Result<LogEnds, Refusal> {
    Ok(ledger::counts(api, Vec::new()).await?.log)
}

/// The first position that was accepted no longer ago than this.
async fn first_since(api: &TopicsApi, log: &LogEnds, now: Time, age_ms: u64) -> Result<u64, Refusal> {
    let (mut old, mut young) = (log.first, log.head + 1);
    while old < young {
        let middle = old + (young - old) / 2;
        let read = Read::Log { topics: Vec::new(), after: middle - 1, limit: 1 };
        match place::stretch(api, read).await?.page.rows.first() {
            Some(entry) if now.since(entry.at) > age_ms => old = entry.position + 1,
            _ => young = middle,
        }
    }
    Ok(old)
}

/// The first position from which the log holds no more than so many bytes.
async fn first_within(api: &TopicsApi, log: &LogEnds, low_bytes: u64) -> Result<u64, Refusal> {
    let (mut bytes, mut before) = (log.bytes, log.first);
    while bytes > low_bytes {
        let read = Read::Log { topics: Vec::new(), after: before - 1, limit: PAGE_ROWS };
        let page = place::stretch(api, read).await?.page;
        if page.rows.is_empty() {
            tracing::warn!("the log holds more than events.max_bytes and there is nothing to drop");
            break;
        }
        for entry in page.rows {
            if bytes <= low_bytes {
                break;
            }
            bytes = bytes.saturating_sub(entry.body.len() as u64);
            before = entry.position + 1;
        }
    }
    Ok(before)
}

/// A subscription that loses something.
pub(super) struct Behind {
    pub name: Arc<str>,
    pub version: u64,
    pub progress: DeliveryProgress,
    /// What it is not given any more, by its numbers.
    pub lost: Option<(u64, u64)>,
    pub copies: Vec<(u64, Vec<CopiedEvent>)>,
}

/// Drops everything before a position. False: somebody was quicker.
async fn cut(api: &TopicsApi, before: u64, ids_before: u64) -> Result<bool, Refusal> {
    let log = ends(api).await?;
    let raised = ledger::document(api, EVENTS, LOG).await?.map_or(0, |found| found.version);
    let mut behind = Vec::new();
    if before > log.first {
        for delivery in ledger::all(api, DELIVERY).await? {
            behind.extend(look_at(api, &delivery, before, log.first).await?);
        }
    }
    let heard = is_heard(api).await?;
    // The last of them go with the cut itself; the others are told a moment before.
    let last = behind.len().saturating_sub(1) / TOLD;
    for (at, part) in behind.chunks(TOLD).enumerate() {
        if at < last && !tell(api, part, heard, None).await? {
            return Ok(false);
        }
    }
    let part = behind.chunks(TOLD).last().unwrap_or_default();
    let trim = (before > log.first).then_some(raised);
    let done = tell(api, part, heard, Some((Trim { before, ids_before }, trim))).await?;
    if done && before > log.first {
        tracing::info!(
            from = log.first,
            to = before - 1,
            subscriptions = behind.len(),
            "old events were dropped"
        );
    }
    Ok(done)
}

/// Whether anybody has ever asked to hear about deliveries.
pub(super) async fn is_heard(api: &TopicsApi) -> Result<bool, Refusal> {
    Ok(ledger::document(api, record::TOPIC, DELIVERIES).await?.is_some())
}

pub(super) async fn tell(
    api: &TopicsApi,
    behind: &[Behind],
    heard: bool,
    trim: Option<(Trim, Option<u64>)>,
) -> Result<bool, Refusal> {
    let mut edit = ledger::Edit::new(api);
    for one in behind {
        edit.expect(DELIVERY, &one.name, one.version);
        edit.put(DELIVERY, &one.name, record::write_progress(&one.progress));
        for (batch, copies) in &one.copies {
            edit.put(COPY, &record::copy_name(&one.name, *batch), record::write(copies));
        }
        if let (true, Some((first, last))) = (heard, one.lost) {
            edit.append([announcement::shed(&one.name, first, last, api.now().ms())]);
        }
    }
    if let Some((trim, raised)) = trim {
        if let Some(version) = raised {
            // Whoever goes back in the log at this moment must see where it begins.
            edit.expect(EVENTS, LOG, version);
            edit.put(EVENTS, LOG, *b"{}");
        }
        edit.trim(trim);
    }
    if edit.commit(api).await?.is_none() {
        return Ok(false);
    }
    for one in behind {
        if let Some((first, last)) = one.lost {
            api.counters.note(&DeliveryNotice::Lost { subscription: one.name.clone(), first, last });
            tracing::warn!(subscription = %one.name, first, last, "events were dropped before they were delivered");
        }
        api.wakeups.changed(one.name.clone());
    }
    if heard && !behind.is_empty() {
        api.wakeups.published(DELIVERIES.into());
    }
    Ok(true)
}

/// What one subscription loses when everything before a position goes.
async fn look_at(
    api: &TopicsApi,
    delivery: &Versioned<tavern_store::Document>,
    before: u64,
    log_first: u64,
) -> Result<Option<Behind>, Refusal> {
    let name: Arc<str> = delivery.row.key.name().into();
    let strange = |_| Refusal::new(Code::Internal, "a record in the store cannot be read");
    let mut progress = record::read_progress(&delivery.row.body).map_err(strange)?;
    let under_way =
        |batch: &&Batch| batch.ranges.iter().any(|run| !run.gap && run.after.position + 1 < before);
    let batches: Vec<Batch> = progress.batches.iter().filter(under_way).cloned().collect();
    if progress.reached().position + 1 >= before && batches.is_empty() {
        return Ok(None);
    }
    let Some(marks) = ledger::document(api, MARKS, &name).await? else { return Ok(None) };
    let marks = Arc::new(record::read_marks(&marks.row.body).map_err(strange)?);
    let mut copies = Vec::new();
    for batch in batches {
        let known = ledger::document(api, COPY, &record::copy_name(&name, batch.number)).await?;
        if known.is_none() {
            copies.push((batch.number, copy(api, &marks, &batch).await?));
        }
    }
    let lost = match place::at(api, &marks, before - 1, log_first).await? {
        Some(through) if through.seq > progress.reached().seq => progress.shed(api.now(), through),
        _ => None,
    };
    if lost.is_none() && copies.is_empty() {
        return Ok(None);
    }
    Ok(Some(Behind { name, version: delivery.version, progress, lost, copies }))
}

/// The events of a batch, as the log has them.
async fn copy(
    api: &TopicsApi,
    marks: &Arc<SubscriptionMarks>,
    batch: &Batch,
) -> Result<Vec<CopiedEvent>, Refusal> {
    let mut copies = Vec::new();
    for run in batch.ranges.iter().filter(|run| !run.gap) {
        let mut reading = Reading::new(marks.clone(), run.after);
        while reading.at().seq < run.last {
            let left = run.last - reading.at().seq;
            let limit = u32::try_from(left).unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
            let Some(read) = reading.read(limit) else { break };
            let took = reading.take(place::stretch(api, read).await?);
            let wanted = took.events.iter().filter(|(seq, _)| (run.first..=run.last).contains(seq));
            copies.extend(wanted.map(|(seq, entry)| CopiedEvent {
                seq: *seq,
                id: shown_id(entry.id.as_deref(), entry.position).into(),
                topic: entry.topic.clone(),
                event: String::from_utf8_lossy(&entry.body).into(),
            }));
            if !took.more && reading.at().seq < run.last {
                break;
            }
        }
    }
    Ok(copies)
}

/// Copies of batches that are settled.
async fn sweep(api: &TopicsApi) -> Result<(), Refusal> {
    for copy in ledger::all(api, COPY).await? {
        let Some((name, batch)) = copy.row.key.name().rsplit_once('/') else { continue };
        let delivery = ledger::document(api, DELIVERY, name).await?;
        let progress = delivery.as_ref().and_then(|found| record::read_progress(&found.row.body).ok());
        let number: Option<u64> = batch.parse().ok();
        let known =
            progress.is_some_and(|kept| kept.batches.iter().any(|batch| Some(batch.number) == number));
        if !known {
            let mut edit = ledger::Edit::new(api);
            edit.expect(COPY, copy.row.key.name(), copy.version);
            edit.delete(COPY, copy.row.key.name());
            // Somebody else may have done it.
            edit.commit(api).await?;
        }
    }
    Ok(())
}
