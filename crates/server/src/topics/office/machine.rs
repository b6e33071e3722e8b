//! Orders to a delivery: enable, disable, replay, retry. They are carried out on its kept progress by the machine that the
//! courier runs, which reads it anew when it finds its own save refused. Must hold: an order that changes nothing writes
//! nothing; who pulls has a cursor and no batches, so no machine cuts any.

use super::ledger::{Edit, Tries, now_ms};
use super::queue::Queue;
use crate::config::EventsConfig;
use crate::topics::TopicsApi;
use tavern_domain::delivery::{DeliveryInput, LogMark, RetryPolicy};
use tavern_domain::topic::DELIVERIES;
use tavern_hub::topics::{ProgressChange, TopicCaller, announcement};
use tavern_wire::error::Refusal;
use tavern_wire::record::{self, DELIVERY, EVENTS, LOG};

pub fn patience(events: &EventsConfig) -> RetryPolicy {
    RetryPolicy {
        backoff_min_ms: events.backoff_min_ms,
        backoff_max_ms: events.backoff_max_ms,
        disable_after_ms: events.disable_after_ms,
    }
}

/// Carries out an order. None: it changes nothing.
pub fn order(api: &TopicsApi, queue: &Queue, input: DeliveryInput) -> Option<ProgressChange> {
    let (subscription, progress) = (&queue.subscription.row, &queue.delivery.row);
    ProgressChange::of(api.now(), patience(&api.config.events), subscription, progress, input)
}

/// Puts what came of an order into an edit.
pub fn write(api: &TopicsApi, edit: &mut Edit, queue: &Queue, outcome: &ProgressChange) {
    edit.expect(DELIVERY, queue.name(), queue.delivery.version);
    edit.put(DELIVERY, queue.name(), record::write_progress(&outcome.progress));
    if let Some(why) = outcome.disabled {
        edit.append([announcement::disabled(queue.name(), why, now_ms(api))]);
    }
}

/// Rings for whom the change concerns.
pub fn ring(api: &TopicsApi, queue: &Queue, outcome: &ProgressChange) {
    api.wakeups.changed(queue.name().clone());
    if outcome.disabled.is_some() {
        api.wakeups.published(DELIVERIES.into());
    }
}

/// Sends again, or nothing any more.
pub async fn switch(api: &TopicsApi, caller: &TopicCaller, name: &str, on: bool) -> Result<(), Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let queue = Queue::open(api, caller, name).await?;
        let input = if on { DeliveryInput::Enable } else { DeliveryInput::Disable };
        if carried_out(api, &queue, input, Edit::new(api)).await?.is_some() {
            return Ok(());
        }
    }
}

/// Everything after this place comes again, if the log was not cut since this version of it. None: somebody else was
/// quicker; false: it has not come yet.
pub async fn rewind(api: &TopicsApi, queue: &Queue, to: LogMark, log: u64) -> Result<Option<bool>, Refusal> {
    let mut edit = Edit::new(api);
    edit.expect(EVENTS, LOG, log);
    carried_out(api, queue, DeliveryInput::Rewind(to), edit).await
}

async fn carried_out(
    api: &TopicsApi,
    queue: &Queue,
    input: DeliveryInput,
    mut edit: Edit,
) -> Result<Option<bool>, Refusal> {
    let Some(outcome) = order(api, queue, input) else { return Ok(Some(false)) };
    write(api, &mut edit, queue, &outcome);
    if edit.commit(api).await?.is_none() {
        return Ok(None);
    }
    ring(api, queue, &outcome);
    Ok(Some(true))
}
