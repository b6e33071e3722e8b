//! Topics, subscriptions and dead letters as the API shows them. Must hold: no secret is shown; credentials are shown only to
//! the owner.

use tavern_domain::Time;
use tavern_hub::topics::{SubscriptionState, TopicCaller, TopicState};
use tavern_wire::json::api::{
    DeadLetterEvent, DeadLetterView, QueueDetails, SubscriptionReport, SubscriptionView, TopicReport,
};
use tavern_wire::record::{DeadLetterRecord, SubscriptionSettings};

/// Shown in place of a value that may be a credential.
pub const HIDDEN: &str = "(hidden)";

pub fn topic(topic: &TopicState) -> TopicReport<'_> {
    TopicReport {
        topic: &topic.name,
        publisher: topic.publisher.as_deref(),
        events: topic.events,
        subscriptions: topic.subscriptions,
        created_at: topic.created_at,
    }
}

/// The settings of a subscription.
pub fn settings<'a>(caller: &TopicCaller, subscription: &'a SubscriptionSettings) -> SubscriptionView<'a> {
    let own = caller.owns(&subscription.owner);
    let shown = |value: &'a str| if own { value } else { HIDDEN };
    SubscriptionView {
        name: &subscription.name,
        owner: &subscription.owner,
        topics: &subscription.topics,
        callback: subscription.callback.as_deref(),
        pull: subscription.pull,
        timeout_ms: subscription.timeout_ms,
        max_events: subscription.max_events,
        max_bytes: subscription.max_bytes,
        max_backlog_bytes: subscription.max_backlog_bytes,
        format: subscription.format,
        concurrency: subscription.concurrency,
        uuid: subscription.uuid.as_deref().map(shown),
        headers: subscription.headers.iter().map(|(name, value)| (name.as_str(), shown(value))).collect(),
        former_secret_until: subscription.secrets.get(1).and_then(|former| former.until),
        created_at: subscription.created_at,
    }
}

/// Settings and state.
pub fn subscription<'a>(
    caller: &TopicCaller,
    state: &'a SubscriptionState,
    now: Time,
) -> SubscriptionReport<'a> {
    let oldest_ms = state.oldest.map(|at| now.since(at));
    let details = QueueDetails { oldest_ms, dead_letters: state.dead_letters };
    SubscriptionReport::new(settings(caller, &state.subscription), &state.progress, state.seq, details)
}

pub fn dead_letter(letter: &DeadLetterRecord) -> DeadLetterView<'_> {
    DeadLetterView {
        seq: letter.seq,
        id: &letter.id,
        topic: &letter.topic,
        parked_at: letter.parked_at,
        reason: &letter.reason,
        event: DeadLetterEvent::new(&letter.event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_wire::json::api::encode;
    use tavern_wire::json::event::BatchFormat;
    use tavern_wire::record::SigningSecretRecord;

    #[test]
    fn credentials_are_shown_only_to_the_owner_and_secrets_never() {
        let subscription = SubscriptionSettings {
            name: "s".into(),
            owner: "k".into(),
            topics: vec!["a".into()],
            callback: Some("https://x/".into()),
            timeout_ms: 500,
            max_events: 100,
            max_bytes: 1 << 20,
            max_backlog_bytes: 0,
            format: BatchFormat::Standard,
            concurrency: 1,
            pull: false,
            uuid: Some("user".into()),
            headers: [("x-a".into(), "password".into())].into(),
            secrets: vec![SigningSecretRecord { text: "whsec_hidden_text".into(), until: None }],
            created_at: 5,
        };
        let shown = |id: &str| {
            let caller = TopicCaller { id: id.into(), admin: true };
            String::from_utf8(encode(&settings(&caller, &subscription))).unwrap()
        };
        assert!(shown("k").contains(r#""uuid":"user","headers":{"x-a":"password"}"#));
        assert!(shown("other").contains(r#""uuid":"(hidden)","headers":{"x-a":"(hidden)"}"#));
        assert!(!shown("k").contains("hidden_text"));
    }
}
