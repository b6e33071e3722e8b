//! The thread that writes to the folder: messages, subscriptions, and the change between one subscription to everything and
//! subscriptions by name.

use super::name;
use super::shared::{Job, LocalShared, NEVER, weight};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tavern_local::{Error, Interest as FolderInterest, Local};
use tavern_store::{BusError, BusPacket, Interest, Ticket, limits};

/// Messages published in one transaction.
const PUBLISH_BATCH: usize = 256;
/// Interests subscribed to in one transaction.
const SUBSCRIBE_BATCH: usize = 1024;
/// How often it retries to report a loss to the other nodes.
const REPORT_EVERY: Duration = Duration::from_millis(250);

pub fn unavailable(error: Error) -> BusError {
    BusError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source: Arc::new(error) }
}

pub fn run(shared: &LocalShared, local: &Local) {
    // Messages were lost and the other nodes do not know it yet.
    let mut has_lost = false;
    loop {
        match next_job(shared, has_lost) {
            Job::Publish(batch) => has_lost = !publish(shared, local, batch, has_lost),
            Job::ReportLoss => has_lost = !publish(shared, local, Vec::new(), has_lost),
            Job::Subscribe(interests, ticket) => subscribe(shared, local, interests, ticket),
            Job::Unsubscribe(interests) => {
                if let Err(error) = end(shared, local, &interests) {
                    tracing::warn!(%error, "cannot unsubscribe on the bus folder");
                }
            }
            Job::Narrow => narrow(shared, local),
            Job::Widen => widen(shared, local),
            Job::Stop => return,
        }
        check_alone(shared, local);
    }
}

/// Waits for the next job; not forever while a loss is not reported.
fn next_job(shared: &LocalShared, has_lost: bool) -> Job {
    let mut state = shared.state();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            return job;
        }
        if has_lost {
            let waited = shared.changed.wait_timeout(state, REPORT_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.jobs.is_empty() {
                return Job::ReportLoss;
            }
        } else {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Checks whether any other process listens, if the subscriptions have changed since it was last known.
fn check_alone(shared: &LocalShared, local: &Local) {
    if !shared.is_alone()
        && let Ok(alone_at) = local.version_if_alone()
    {
        shared.alone_at.store(alone_at.unwrap_or(NEVER), Ordering::Release);
    }
}

/// Publishes this batch, and what was queued since, in one transaction; before it the report of a loss, if there was
/// one. False: there is a loss that the other nodes do not know of.
fn publish(shared: &LocalShared, local: &Local, mut batch: Vec<BusPacket>, has_lost: bool) -> bool {
    {
        let mut state = shared.state();
        while batch.len() < PUBLISH_BATCH
            && let Some(Job::Publish(_)) = state.jobs.front()
        {
            let Some(Job::Publish(more)) = state.jobs.pop_front() else { break };
            batch.extend(more);
        }
    }
    shared.waiting_bytes.fetch_sub(batch.iter().map(weight).sum(), Ordering::Relaxed);
    shared.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
    check_alone(shared, local);
    if shared.is_alone() {
        return true;
    }
    let places: Vec<_> = batch.iter().map(|message| name::place(&shared.prefix, &message.subject)).collect();
    let headers: Vec<_> = batch.iter().map(name::header).collect();
    let loss_place = has_lost.then(|| name::loss_place(&shared.prefix));
    let report = loss_place.iter().map(|place| name::draft(place, &[], &[]));
    let parts = places.iter().zip(&headers).zip(&batch);
    let messages = parts.map(|((place, header), message)| name::draft(place, header, &message.payload));
    let drafts: Vec<_> = report.chain(messages).collect();
    match local.publish_all(&drafts) {
        Ok(_) => {
            shared.counts.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
            true
        }
        Err(error) => {
            let failed = shared.counts.failed.fetch_add(batch.len() as u64, Ordering::Relaxed);
            // The first, and then about one in a thousand messages.
            if failed == 0 || batch.len() as u64 > failed % 1000 {
                tracing::error!(%error, messages = batch.len(), "cannot publish to the bus folder");
            }
            false
        }
    }
}

/// Subscribes to this, and to what was requested since, in one transaction.
fn subscribe(shared: &LocalShared, local: &Local, mut interests: Vec<Interest>, ticket: Ticket) {
    let mut tickets = vec![ticket];
    {
        let mut state = shared.state();
        while interests.len() < SUBSCRIBE_BATCH
            && let Some(Job::Subscribe(..)) = state.jobs.front()
        {
            let Some(Job::Subscribe(more, ticket)) = state.jobs.pop_front() else { break };
            interests.extend(more);
            tickets.push(ticket);
        }
    }
    let outcome = begin(shared, local, &interests).map_err(unavailable);
    for ticket in tickets {
        shared.receiver.confirmed(ticket, outcome.clone());
    }
}

fn begin(shared: &LocalShared, local: &Local, interests: &[Interest]) -> Result<(), Error> {
    if shared.is_wide() {
        return Ok(());
    }
    local.add_interests(in_folder(shared, interests))?;
    let mut state = shared.state();
    for interest in interests {
        if state.subscribed.insert(interest.clone()) {
            for needed in name::interests(&shared.prefix, interest) {
                *state.needed.entry(needed).or_default() += 1;
            }
        }
    }
    Ok(())
}

/// Removes the subscriptions that no interest needs now. The interests were removed from `subscribed` before.
fn end(shared: &LocalShared, local: &Local, interests: &[Interest]) -> Result<(), Error> {
    let mut unneeded = Vec::new();
    let mut state = shared.state();
    for interest in in_folder(shared, interests) {
        if let Some(count) = state.needed.get_mut(&interest) {
            *count -= 1;
            if *count == 0 {
                state.needed.remove(&interest);
                unneeded.push(interest);
            }
        }
    }
    drop(state);
    local.remove_interests(unneeded).map(drop)
}

fn in_folder<'a>(
    shared: &'a LocalShared,
    interests: &'a [Interest],
) -> impl Iterator<Item = FolderInterest> + 'a {
    interests.iter().flat_map(|interest| name::interests(&shared.prefix, interest))
}

/// Subscribes by name, then drops the subscription to everything.
fn narrow(shared: &LocalShared, local: &Local) {
    if !shared.is_wide.swap(false, Ordering::SeqCst) {
        return;
    }
    // After the line above: later subscriptions are jobs, earlier ones are in this list.
    let interests = shared.receiver.interests();
    let begun = begin(shared, local, &interests)
        .and_then(|()| local.add_interests([name::loss_interest(&shared.prefix)]));
    match begun.and_then(|_| local.remove_interests(name::everything())) {
        Ok(_) => tracing::info!("other processes use this folder; subscribing by name"),
        Err(error) => {
            tracing::warn!(%error, "cannot subscribe by name; staying subscribed to everything");
            shared.is_wide.store(true, Ordering::SeqCst);
        }
    }
}

/// There is no other process: subscribes to everything, then drops the names.
fn widen(shared: &LocalShared, local: &Local) {
    if shared.is_wide() || !matches!(local.version_if_alone(), Ok(Some(_))) {
        return;
    }
    if let Err(error) = local.add_interests(name::everything()) {
        tracing::warn!(%error, "cannot subscribe to everything; staying subscribed by name");
        return;
    }
    shared.is_wide.store(true, Ordering::SeqCst);
    let subscribed: Vec<Interest> = shared.state().subscribed.drain().collect();
    if let Err(error) = end(shared, local, &subscribed) {
        tracing::warn!(%error, "cannot unsubscribe from names on the bus folder");
    }
}
