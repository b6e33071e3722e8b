//! Subscriptions and their dead letters.

use super::raw;
use crate::json::event::BatchFormat;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{
    self, Batch, BatchReason, DeliveryProgress, EndpointFailure, SubscriptionHealth,
};

/// The settings of a subscription.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionView<'a> {
    pub name: &'a str,
    pub owner: &'a str,
    pub topics: &'a [Arc<str>],
    pub callback: Option<&'a str>,
    pub pull: bool,
    pub timeout_ms: u64,
    pub max_events: u32,
    pub max_bytes: u64,
    pub max_backlog_bytes: u64,
    pub format: BatchFormat,
    pub concurrency: u32,
    pub uuid: Option<&'a str>,
    pub headers: BTreeMap<&'a str, &'a str>,
    pub former_secret_until: Option<u64>,
    pub created_at: u64,
}

/// `PUT /v1/subscriptions/{name}`.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionPutReply<'a> {
    #[serde(flatten)]
    pub settings: SubscriptionView<'a>,
    pub created: bool,
    /// Shown this once; left out when it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<&'a str>,
}

/// Settings and state.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionReport<'a> {
    #[serde(flatten)]
    settings: SubscriptionView<'a>,
    seq: u64,
    acknowledged: u64,
    queued: u64,
    health: &'static str,
    why: Option<&'static str>,
    failing_since: Option<u64>,
    failures: u32,
    retry_at: Option<u64>,
    last: Option<AttemptReport>,
    last_error: Option<ErrorReport>,
    batches: Vec<BatchReport>,
    #[serde(flatten)]
    details: QueueDetails,
}

/// Figures that need more reads.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QueueDetails {
    /// How long ago the oldest event that waits was accepted.
    pub oldest_ms: Option<u64>,
    /// Left out of lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<usize>,
}

#[derive(Clone, Debug, Serialize)]
struct AttemptReport {
    at: u64,
    reason: &'static str,
    outcome: &'static str,
}

/// Why the last failed attempt failed.
#[derive(Clone, Debug, Serialize)]
struct ErrorReport {
    at: u64,
    error: Arc<str>,
}

impl ErrorReport {
    fn new(last: &delivery::AttemptError) -> ErrorReport {
        ErrorReport { at: last.at.ms(), error: last.text.clone() }
    }
}

#[derive(Clone, Debug, Serialize)]
struct BatchReport {
    number: u64,
    first_seq: u64,
    last_seq: u64,
    events: u64,
    reason: &'static str,
    attempts: u32,
    refusals: u32,
    accepted_at: u64,
}

/// An event that waits longer than this, and than it takes to fill its batch, needs attention although no attempt failed.
const BEHIND_MS: u64 = 5 * 60_000;

/// Why a subscription whose attempts do not fail is falling behind.
fn behind(settings: &SubscriptionView<'_>, details: QueueDetails) -> Option<&'static str> {
    let (fills_ms, why) =
        if settings.pull { (0, "not pulled") } else { (settings.timeout_ms, "slow endpoint") };
    details.oldest_ms.filter(|waited| *waited >= BEHIND_MS + fills_ms).map(|_| why)
}

impl<'a> SubscriptionReport<'a> {
    /// `seq`: the number of the subscription's last event.
    pub fn new(
        settings: SubscriptionView<'a>,
        progress: &DeliveryProgress,
        seq: u64,
        details: QueueDetails,
    ) -> SubscriptionReport<'a> {
        let (health, why) = match progress.health() {
            SubscriptionHealth::Healthy => match behind(&settings, details) {
                Some(why) => ("behind", Some(why)),
                None => ("healthy", None),
            },
            SubscriptionHealth::Throttled => ("throttled", None),
            SubscriptionHealth::Failing => {
                let failure = progress.failure.filter(EndpointFailure::refuses_everything);
                ("failing", failure.map(|_| "refuses everything"))
            }
            SubscriptionHealth::Disabled(why) => ("disabled", Some(why.as_str())),
        };
        let failure = progress.failure;
        let last = |last: delivery::LastAttempt| AttemptReport {
            at: last.at.ms(),
            reason: last.reason.as_str(),
            outcome: last.outcome.as_str(),
        };
        SubscriptionReport {
            settings,
            seq,
            acknowledged: acknowledged(progress),
            queued: progress.queued(seq),
            health,
            why,
            failing_since: failure.and_then(|failure| failure.failing_since).map(Time::ms),
            failures: failure.map_or(0, |failure| failure.failures),
            retry_at: failure.map(|failure| failure.retry_at.ms()),
            last: progress.last.map(last),
            last_error: progress.last_error.as_ref().map(ErrorReport::new),
            batches: progress.batches.iter().map(BatchReport::new).collect(),
            details,
        }
    }
}

impl BatchReport {
    fn new(batch: &Batch) -> BatchReport {
        BatchReport {
            number: batch.number,
            first_seq: batch.first_seq(),
            last_seq: batch.last_seq(),
            events: batch.entries(),
            reason: batch.reason.as_str(),
            attempts: batch.attempts,
            refusals: batch.refusals,
            accepted_at: batch.accepted.ms(),
        }
    }
}

/// Everything up to here is settled. Retried dead letters do not count.
fn acknowledged(progress: &DeliveryProgress) -> u64 {
    let open = progress.batches.iter().filter(|batch| batch.reason != BatchReason::Retry);
    open.map(|batch| batch.first_seq().saturating_sub(1)).fold(progress.sealed.seq, u64::min)
}

/// `GET /v1/subscriptions`.
#[derive(Clone, Debug, Serialize)]
pub struct SubscriptionList<'a> {
    pub subscriptions: Vec<SubscriptionReport<'a>>,
    pub next: Option<&'a str>,
}

/// `POST /v1/subscriptions/{name}/replay`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReplayReport {
    pub from_seq: u64,
    pub rewound: bool,
}

/// `POST /v1/subscriptions/{name}/dead-letters/retry`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RetryReport {
    pub retried: usize,
    pub more: bool,
}

/// `GET /v1/subscriptions/{name}/attempts`; the stored records are shown as they are.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptList<'a, Record> {
    pub attempts: &'a [Record],
    pub next: Option<String>,
}

/// `GET /v1/subscriptions/{name}/dead-letters`.
#[derive(Clone, Debug, Serialize)]
pub struct DeadLetterList<'a> {
    pub dead_letters: Vec<DeadLetterView<'a>>,
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DeadLetterView<'a> {
    pub seq: u64,
    pub id: &'a str,
    pub topic: &'a str,
    pub parked_at: u64,
    pub reason: &'a str,
    pub event: DeadLetterEvent<'a>,
}

/// A stored event: JSON, or text if it is not valid JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum DeadLetterEvent<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

impl DeadLetterEvent<'_> {
    pub fn new(event: &str) -> DeadLetterEvent<'_> {
        raw(event).map_or(DeadLetterEvent::Text(event), DeadLetterEvent::Json)
    }
}

/// `GET /v1/topics/{topic}/events`: `entries` are events as JSON with commas between.
pub fn browsed(entries: &[u8], next: Option<u64>) -> Vec<u8> {
    let mut body = Vec::with_capacity(entries.len() + 48);
    body.extend_from_slice(b"{\"events\":[");
    body.extend_from_slice(entries);
    let end = next.map_or("],\"next\":null}".to_owned(), |next| format!("],\"next\":\"{next}\"}}"));
    body.extend_from_slice(end.as_bytes());
    body
}

/// `GET /v1/subscriptions/{name}/events`: `entries` are events as JSON with commas between, `count` of them.
pub fn pulled(entries: &[u8], count: u32, first_seq: u64, last_seq: u64) -> Vec<u8> {
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
    use serde_json::{Value, json};
    use tavern_domain::delivery::{DisabledReason, EntryRange, LogMark};

    fn shown(body: &impl Serialize) -> Value {
        serde_json::to_value(body).unwrap()
    }

    #[test]
    fn queue_is_reported_as_the_rules_count_it() {
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
        let settings = SubscriptionView {
            name: "s",
            owner: "k",
            topics: &[],
            callback: None,
            pull: true,
            timeout_ms: 500,
            max_events: 100,
            max_bytes: 1 << 20,
            max_backlog_bytes: 0,
            format: BatchFormat::Standard,
            concurrency: 1,
            uuid: None,
            headers: BTreeMap::new(),
            former_secret_until: None,
            created_at: 5,
        };
        let of_list = QueueDetails { oldest_ms: None, dead_letters: None };
        let state = shown(&SubscriptionReport::new(settings.clone(), &progress, 12, of_list));
        assert_eq!((&state["acknowledged"], &state["queued"]), (&5.into(), &8.into()));
        assert_eq!((&state["health"], &state["why"]), (&"disabled".into(), &"gone".into()));
        assert_eq!(state["batches"][0]["attempts"], 2);
        assert!(state.get("dead_letters").is_none(), "not in lists");
        let details = QueueDetails { oldest_ms: None, dead_letters: Some(3) };
        let state = shown(&SubscriptionReport::new(settings.clone(), &progress, 12, details));
        assert_eq!((&state["oldest_ms"], &state["dead_letters"]), (&Value::Null, &3.into()));
        let health = |pull, oldest_ms| {
            let details = QueueDetails { oldest_ms: Some(oldest_ms), dead_letters: None };
            let settings = SubscriptionView { pull, ..settings.clone() };
            let state = shown(&SubscriptionReport::new(settings, &DeliveryProgress::default(), 1, details));
            (state["health"].clone(), state["why"].clone())
        };
        assert_eq!(health(true, BEHIND_MS), ("behind".into(), "not pulled".into()));
        assert_eq!(health(true, BEHIND_MS - 1), ("healthy".into(), Value::Null));
        assert_eq!(health(false, BEHIND_MS), ("healthy".into(), Value::Null), "its batch may be filling");
        assert_eq!(health(false, BEHIND_MS + 500), ("behind".into(), "slow endpoint".into()));
    }

    #[test]
    fn event_of_a_dead_letter_is_shown_as_it_is() {
        assert_eq!(shown(&DeadLetterEvent::new(r#"{"n":1}"#)), json!({"n": 1}));
        assert_eq!(shown(&DeadLetterEvent::new("{")), "{");
    }
}
