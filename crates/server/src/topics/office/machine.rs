//! Orders to a delivery: enable, disable, replay, retry. They are carried out on its kept progress by the machine that the
//! courier runs, which reads it anew when it finds its own save refused. Must hold: an order that changes nothing writes
//! nothing; who pulls has a cursor and no batches, so no machine cuts any.

use super::ledger::{Edit, Tries, now_ms};
use super::notice;
use super::queue::Queue;
use crate::config::EventsConfig;
use crate::topics::TopicsApi;
use tavern_domain::delivery::{Delivery, Effect, Input, Mark, Patience, Progress, Why};
use tavern_domain::topic::DELIVERIES;
use tavern_hub::topics::TopicCaller;
use tavern_hub::topics::delivery::rules;
use tavern_wire::error::Refusal;
use tavern_wire::record::{self, DELIVERY, EVENTS, LOG};

/// What came of an order.
pub struct Outcome {
    pub progress: Progress,
    /// Dead letters that are under way again, by number.
    pub retried: Vec<u64>,
    pub disabled: Option<Why>,
}

pub fn patience(events: &EventsConfig) -> Patience {
    Patience {
        backoff_min_ms: events.backoff_min_ms,
        backoff_max_ms: events.backoff_max_ms,
        disable_after_ms: events.disable_after_ms,
    }
}

/// Carries out an order. None: it changes nothing.
pub fn order(api: &TopicsApi, queue: &Queue, input: Input) -> Option<Outcome> {
    let progress = &queue.delivery.row;
    if queue.subscription.row.pull {
        return by_hand(progress, input);
    }
    let (rules, patience) = (rules(&queue.subscription.row), patience(&api.config.events));
    let mut delivery = Delivery::new(api.now(), progress.clone(), rules, patience);
    let mut effects = Vec::new();
    delivery.handle(api.now(), input, &mut effects);
    let (mut saved, mut disabled) = (None, None);
    for effect in effects {
        match effect {
            Effect::Save { retried, .. } => saved = Some(retried),
            Effect::Disabled(why) => disabled = Some(why),
            Effect::Recovered | Effect::Lost { .. } => {}
        }
    }
    saved.map(|retried| Outcome { progress: delivery.progress().clone(), retried, disabled })
}

/// Who pulls is in charge of its pace: there is nothing to seal and nothing to send.
fn by_hand(progress: &Progress, input: Input) -> Option<Outcome> {
    let mut after = progress.clone();
    let disabled = match input {
        Input::Enable => {
            after.disabled = None;
            None
        }
        Input::Disable => {
            after.disabled = after.disabled.or(Some(Why::Asked));
            after.disabled.filter(|_| progress.disabled.is_none())
        }
        Input::Rewind(to) => {
            after.rewind(to);
            None
        }
        _ => None,
    };
    (after != *progress).then_some(Outcome { progress: after, retried: Vec::new(), disabled })
}

/// Puts what came of an order into an edit.
pub fn write(api: &TopicsApi, edit: &mut Edit, queue: &Queue, outcome: &Outcome) {
    edit.expect(DELIVERY, queue.name(), queue.delivery.version);
    edit.put(DELIVERY, queue.name(), record::write_progress(&outcome.progress));
    if let Some(why) = outcome.disabled {
        edit.append([notice::disabled(queue.name(), why, now_ms(api))]);
    }
}

/// Rings for whom the change concerns.
pub fn ring(api: &TopicsApi, queue: &Queue, outcome: &Outcome) {
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
        let input = if on { Input::Enable } else { Input::Disable };
        if carried_out(api, &queue, input, Edit::new(api)).await?.is_some() {
            return Ok(());
        }
    }
}

/// Everything after this place comes again, if the log was not cut since this version of it. None: somebody else was
/// quicker; false: it has not come yet.
pub async fn rewind(api: &TopicsApi, queue: &Queue, to: Mark, log: u64) -> Result<Option<bool>, Refusal> {
    let mut edit = Edit::new(api);
    edit.expect(EVENTS, LOG, log);
    carried_out(api, queue, Input::Rewind(to), edit).await
}

async fn carried_out(
    api: &TopicsApi,
    queue: &Queue,
    input: Input,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_pulls_is_disabled_and_enabled_without_a_batch() {
        let begun = Progress::starting(Mark { seq: 4, position: 40 });
        let off = by_hand(&begun, Input::Disable).unwrap();
        assert_eq!((off.progress.disabled, off.disabled), (Some(Why::Asked), Some(Why::Asked)));
        assert!(by_hand(&off.progress, Input::Disable).is_none(), "it is so already");
        assert_eq!(by_hand(&off.progress, Input::Enable).unwrap().progress, begun);
        assert!(by_hand(&begun, Input::Enable).is_none());
        let back = by_hand(&begun, Input::Rewind(Mark { seq: 1, position: 7 })).unwrap();
        assert_eq!(back.progress.sealed, Mark { seq: 1, position: 7 });
        assert!(by_hand(&begun, Input::Rewind(Mark { seq: 4, position: 40 })).is_none());
    }
}
