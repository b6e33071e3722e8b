//! A subscription as its owner sees it: settings, queue, health. Must hold: no secret is in it; credentials are shown to the
//! owner alone.

use super::ledger;
use super::place;
use super::queue::Queue;
use super::subscription::by_name;
use crate::topics::TopicsApi;
use serde_json::{Value, json};
use tavern_domain::Time;
use tavern_domain::delivery::{Batch, BatchReason, DeliveryProgress, SubscriptionHealth};
use tavern_hub::topics::{Reading, TopicCaller};
use tavern_wire::error::Refusal;
use tavern_wire::record::{DEAD, SUBSCRIPTION, SubscriptionSettings};

/// Dead letters that are counted.
const COUNTED: usize = 10_000;
const HIDDEN: &str = "(hidden)";

/// What it was told to be.
pub fn settings(caller: &TopicCaller, subscription: &SubscriptionSettings) -> Value {
    let own = caller.owns(&subscription.owner);
    let shown = |value: &str| if own { value.to_owned() } else { HIDDEN.to_owned() };
    let headers: serde_json::Map<String, Value> =
        subscription.headers.iter().map(|(name, value)| (name.clone(), shown(value).into())).collect();
    json!({
        "name": &*subscription.name,
        "owner": &*subscription.owner,
        "topics": subscription.topics.iter().map(|topic| &**topic).collect::<Vec<_>>(),
        "callback": subscription.callback.as_deref(),
        "pull": subscription.pull,
        "timeout_ms": subscription.timeout_ms,
        "max_events": subscription.max_events,
        "max_bytes": subscription.max_bytes,
        "max_backlog_bytes": subscription.max_backlog_bytes,
        "format": subscription.format,
        "concurrency": subscription.concurrency,
        "uuid": subscription.uuid.as_deref().map(shown),
        "headers": headers,
        "former_secret_until": subscription.secrets.get(1).and_then(|former| former.until),
        "created_at": subscription.created_at,
    })
}

/// Settings and state.
pub async fn report(api: &TopicsApi, caller: &TopicCaller, name: &str) -> Result<Value, Refusal> {
    let queue = Queue::open(api, caller, name).await?;
    let mut report = brief(api, caller, &queue).await?;
    let oldest = oldest(api, &queue).await?;
    report["oldest_ms"] = oldest.map(|at| api.now().since(at)).into();
    report["dead_letters"] = dead_letters(api, name).await?.into();
    Ok(report)
}

/// What costs little to tell.
async fn brief(api: &TopicsApi, caller: &TopicCaller, queue: &Queue) -> Result<Value, Refusal> {
    let topics = queue.marks.row.topics().cloned().collect();
    let counts = by_name(ledger::counts(api, topics).await?);
    let (progress, seq) = (&queue.delivery.row, queue.marks.row.seq_at_head(&counts));
    let mut report = settings(caller, &queue.subscription.row);
    let state = state(progress, seq);
    if let (Some(report), Value::Object(state)) = (report.as_object_mut(), state) {
        report.extend(state);
    }
    Ok(report)
}

fn state(progress: &DeliveryProgress, seq: u64) -> Value {
    let (health, why) = match progress.health() {
        SubscriptionHealth::Healthy => ("healthy", None),
        SubscriptionHealth::Throttled => ("throttled", None),
        SubscriptionHealth::Failing => ("failing", None),
        SubscriptionHealth::Disabled(why) => ("disabled", Some(why.as_str())),
    };
    let failure = progress.failure;
    let last = progress.last.map(
        |last| json!({"at": last.at.ms(), "reason": last.reason.as_str(), "verdict": last.outcome.as_str()}),
    );
    json!({
        "seq": seq,
        "acknowledged": acknowledged(progress),
        "queued": progress.queued(seq),
        "health": health,
        "why": why,
        "failing_since": failure.and_then(|failure| failure.failing_since).map(Time::ms),
        "failures": failure.map_or(0, |failure| failure.failures),
        "retry_at": failure.map(|failure| failure.retry_at.ms()),
        "last": last,
        "batches": progress.batches.iter().map(batch).collect::<Vec<_>>(),
    })
}

fn batch(batch: &Batch) -> Value {
    json!({
        "number": batch.number,
        "first_seq": batch.first_seq(),
        "last_seq": batch.last_seq(),
        "events": batch.entries(),
        "reason": batch.reason.as_str(),
        "attempts": batch.attempts,
        "refusals": batch.refusals,
        "accepted_at": batch.accepted.ms(),
    })
}

/// Everything through here is settled. Dead letters that are tried again had their turn.
fn acknowledged(progress: &DeliveryProgress) -> u64 {
    let open = progress.batches.iter().filter(|batch| batch.reason != BatchReason::Retry);
    open.map(|batch| batch.first_seq().saturating_sub(1)).fold(progress.sealed.seq, u64::min)
}

/// When the oldest event that waits was accepted.
async fn oldest(api: &TopicsApi, queue: &Queue) -> Result<Option<Time>, Refusal> {
    let progress = &queue.delivery.row;
    let sealed = progress.batches.iter().map(|batch| batch.accepted).min();
    if let Some(at) = sealed.or(progress.dropped.map(|shed| shed.at)) {
        return Ok(Some(at));
    }
    let mut reading = Reading::new(queue.marks.row.clone(), progress.sealed);
    while let Some((_, took)) = place::step(api, &mut reading, 1).await? {
        if let Some((_, first)) = took.events.first() {
            return Ok(Some(first.at));
        }
        if !took.more {
            break;
        }
    }
    Ok(None)
}

async fn dead_letters(api: &TopicsApi, name: &str) -> Result<usize, Refusal> {
    let (prefix, mut count, mut after) = (format!("{name}/"), 0, String::new());
    while count < COUNTED {
        let page = ledger::list(api, DEAD, &prefix, &after, u32::MAX).await?;
        count += page.rows.len();
        match page.rows.last() {
            Some(last) if page.more => after = last.row.key.name().to_owned(),
            _ => break,
        }
    }
    Ok(count)
}

/// One's own, or all for an admin, by name.
pub async fn list(
    api: &TopicsApi,
    caller: &TopicCaller,
    after: &str,
    limit: usize,
) -> Result<Value, Refusal> {
    let (mut rows, mut after, mut next) = (Vec::new(), after.to_owned(), None);
    'pages: loop {
        let page = ledger::list(api, SUBSCRIPTION, "", &after, u32::MAX).await?;
        for found in page.rows {
            let name = found.row.key.name().to_owned();
            let one =
                ledger::found(Some(found), |bytes| tavern_wire::record::read::<SubscriptionSettings>(bytes))?;
            if one.is_some_and(|one| caller.may(&one.row.owner))
                && let Some(queue) = Queue::find(api, &name).await?
            {
                if rows.len() == limit {
                    next = Some(after);
                    break 'pages;
                }
                rows.push(brief(api, caller, &queue).await?);
            }
            after = name;
        }
        if !page.more {
            break;
        }
    }
    Ok(json!({"subscriptions": rows, "next": next}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::delivery::{DisabledReason, EntryRange, LogMark};

    #[test]
    fn what_waits_and_what_is_settled() {
        let run = |first, last| EntryRange {
            after: LogMark { seq: first - 1, position: 1 },
            first,
            last,
            gap: false,
        };
        let batch = |number, first, last, reason| Batch {
            number,
            ranges: vec![run(first, last)],
            reason,
            accepted: Time(5),
            attempts: 2,
            refusals: 0,
            suspect: false,
        };
        let sealed = LogMark { seq: 9, position: 90 };
        let batches = vec![batch(3, 6, 9, BatchReason::Full), batch(4, 2, 2, BatchReason::Retry)];
        let progress = DeliveryProgress {
            sealed,
            batches,
            disabled: Some(DisabledReason::Gone),
            ..DeliveryProgress::default()
        };
        let state = state(&progress, 12);
        assert_eq!((&state["acknowledged"], &state["queued"]), (&5.into(), &8.into()));
        assert_eq!((&state["health"], &state["why"]), (&"disabled".into(), &"gone".into()));
        assert_eq!(state["batches"][0]["attempts"], 2);
    }
}
