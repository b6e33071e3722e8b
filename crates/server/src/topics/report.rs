//! TopicPage, subscriptions and dead letters as the API shows them. Must hold: no secret is in it; credentials are shown to
//! the owner alone.

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tavern_domain::Time;
use tavern_domain::delivery::{Batch, BatchReason, DeliveryProgress, SubscriptionHealth};
use tavern_hub::topics::{Pulled, SubscriptionState, TopicCaller, TopicState};
use tavern_wire::record::{DeadLetterRecord, SubscriptionSettings};

const HIDDEN: &str = "(hidden)";

pub fn topic(topic: &TopicState) -> Value {
    json!({
        "topic": &*topic.name,
        "publisher": topic.publisher.as_deref(),
        "events": topic.events,
        "subscriptions": topic.subscriptions,
        "created_at": topic.created_at,
    })
}

/// What a subscription was told to be.
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
pub fn subscription(caller: &TopicCaller, shown: &SubscriptionState, now: Time) -> Value {
    let mut report = settings(caller, &shown.subscription);
    if let (Some(report), Value::Object(state)) = (report.as_object_mut(), state(&shown.progress, shown.seq))
    {
        report.extend(state);
    }
    if let Some(details) = &shown.details {
        report["oldest_ms"] = details.oldest.map(|at| now.since(at)).into();
        report["dead_letters"] = details.dead_letters.into();
    }
    report
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

/// Everything through here is settled. DeadLetterRecord letters that are tried again had their turn.
fn acknowledged(progress: &DeliveryProgress) -> u64 {
    let open = progress.batches.iter().filter(|batch| batch.reason != BatchReason::Retry);
    open.map(|batch| batch.first_seq().saturating_sub(1)).fold(progress.sealed.seq, u64::min)
}

pub fn dead_letter(letter: &DeadLetterRecord) -> Value {
    // The server wrote it; what is no JSON is shown as it is.
    let event: Value = serde_json::from_str::<&RawValue>(&letter.event)
        .ok()
        .and_then(|event| serde_json::from_str(event.get()).ok())
        .unwrap_or_else(|| Value::String(letter.event.to_string()));
    json!({
        "seq": letter.seq,
        "id": &*letter.id,
        "topic": &*letter.topic,
        "parked_at": letter.parked_at,
        "reason": &*letter.reason,
        "event": event,
    })
}

/// The answer to a client that pulls.
pub fn pulled(pulled: &Pulled) -> Vec<u8> {
    let Pulled { entries, count, first_seq, last_seq } = pulled;
    let mut body = Vec::with_capacity(entries.len() + 96);
    body.extend_from_slice(b"{\"events\":[");
    body.extend_from_slice(entries);
    let ends = match count {
        0 => format!("],\"first_seq\":null,\"last_seq\":null,\"next_after\":{last_seq}}}"),
        _ => format!("],\"first_seq\":{first_seq},\"last_seq\":{last_seq},\"next_after\":{last_seq}}}"),
    };
    body.extend_from_slice(ends.as_bytes());
    body
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
