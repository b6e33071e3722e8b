//! The requested settings of a subscription, and the subscription made from them. Must hold: omitted settings are
//! unchanged; a change with any invalid setting changes nothing; every accepted subscription can be delivered or
//! pulled. Addresses, headers and the form of secrets were checked before: which addresses are allowed depends on the
//! configuration.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tavern_domain::topic::{
    AUDIT, DELIVERIES, NAME_BYTES, PARTIES, PRESENCE, is_for_admins, is_name, is_reserved,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::BatchFormat;
use tavern_wire::record::{SigningSecretRecord, SubscriptionSettings};

/// Topics of one subscription: one read counts them all, the old and the new ones.
const TOPICS_MAX: usize = 256;
const UUID_BYTES: usize = 128;
const TIMEOUT_MS: RangeInclusive<u64> = 0..=3_600_000;
const MAX_EVENTS: RangeInclusive<u64> = 1..=10_000;
const MAX_BYTES: RangeInclusive<u64> = 1 << 10..=16 << 20;
/// The allowed budgets; 0 means no budget of its own.
const MAX_BACKLOG_BYTES: RangeInclusive<u64> = 1 << 16..=1 << 50;
const CONCURRENCY: RangeInclusive<u64> = 1..=16;

/// The given settings; `None` leaves one unchanged, or at its default. `Debug` shows no secret.
#[derive(Clone, Default)]
pub struct SubscriptionChange {
    pub topics: Option<Vec<Arc<str>>>,
    pub callback: Option<Arc<str>>,
    pub timeout_ms: Option<u64>,
    pub max_events: Option<u64>,
    pub max_bytes: Option<u64>,
    pub max_backlog_bytes: Option<u64>,
    pub format: Option<BatchFormat>,
    pub secret: Option<String>,
    pub uuid: Option<Arc<str>>,
    pub headers: Option<BTreeMap<String, String>>,
    pub concurrency: Option<u64>,
    pub pull: Option<bool>,
    /// The secret for a new subscription without a given one.
    pub spare_secret: String,
}

impl std::fmt::Debug for SubscriptionChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionChange")
            .field("topics", &self.topics)
            .field("callback", &self.callback)
            .field("pull", &self.pull)
            .finish_non_exhaustive()
    }
}

/// A subscription as requested, and the secret if one was generated.
#[derive(Debug)]
pub(super) struct ChangedSettings {
    pub subscription: SubscriptionSettings,
    pub made_secret: Option<String>,
}

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::BadRequest, message)
}

impl SubscriptionChange {
    /// A new subscription: the caller is its owner.
    pub(super) fn create(
        &self,
        name: &Arc<str>,
        owner: &Arc<str>,
        now_ms: u64,
        rotation_ms: u64,
    ) -> Result<ChangedSettings, Refusal> {
        if self.topics.is_none() {
            return Err(bad("`topics` is missing: list the topics of the new subscription"));
        }
        let blank = SubscriptionSettings {
            name: name.clone(),
            owner: owner.clone(),
            topics: Vec::new(),
            callback: None,
            timeout_ms: 500,
            max_events: 100,
            max_bytes: 1 << 20,
            max_backlog_bytes: 0,
            format: BatchFormat::Standard,
            concurrency: 1,
            pull: false,
            uuid: None,
            headers: BTreeMap::new(),
            secrets: Vec::new(),
            created_at: now_ms,
        };
        let mut created = self.apply(blank, now_ms, rotation_ms)?;
        if created.subscription.secrets.is_empty() {
            let text = self.spare_secret.clone();
            created.subscription.secrets.push(SigningSecretRecord { text: text.clone(), until: None });
            created.made_secret = Some(text);
        }
        Ok(created)
    }

    /// Replaces the given settings.
    pub(super) fn apply(
        &self,
        before: SubscriptionSettings,
        now_ms: u64,
        rotation_ms: u64,
    ) -> Result<ChangedSettings, Refusal> {
        let mut after = before;
        if let Some(topics) = &self.topics {
            after.topics = checked_topics(topics)?;
        }
        if let Some(callback) = &self.callback {
            after.callback = Some(callback.clone());
        }
        if let Some(headers) = &self.headers {
            after.headers = headers.clone();
        }
        if let Some(uuid) = &self.uuid {
            let good = |byte: u8| byte.is_ascii_graphic() && byte != b':';
            if uuid.is_empty() || uuid.len() > UUID_BYTES || !uuid.bytes().all(good) {
                return Err(bad("`uuid` must be 1 to 128 visible characters without a colon"));
            }
            after.uuid = Some(uuid.clone());
        }
        if let Some(secret) = &self.secret {
            rotate(&mut after.secrets, secret, now_ms, rotation_ms);
        }
        after.timeout_ms = within("timeout_ms", self.timeout_ms, after.timeout_ms, &TIMEOUT_MS)?;
        let max_events = within("max_events", self.max_events, after.max_events.into(), &MAX_EVENTS)?;
        let lanes = within("concurrency", self.concurrency, after.concurrency.into(), &CONCURRENCY)?;
        (after.max_events, after.concurrency) = (max_events as u32, lanes as u32);
        after.max_bytes = within("max_bytes", self.max_bytes, after.max_bytes, &MAX_BYTES)?;
        after.max_backlog_bytes = match self.max_backlog_bytes {
            None => after.max_backlog_bytes,
            Some(0) => 0,
            given => within("max_backlog_bytes", given, 0, &MAX_BACKLOG_BYTES)?,
        };
        after.format = self.format.unwrap_or(after.format);
        after.pull = self.pull.unwrap_or(after.pull);
        if after.callback.is_none() && !after.pull {
            return Err(bad("set `callback` to a URL, or `\"pull\": true` to pull events"));
        }
        Ok(ChangedSettings { subscription: after, made_secret: None })
    }
}

fn within(
    name: &'static str,
    given: Option<u64>,
    before: u64,
    range: &RangeInclusive<u64>,
) -> Result<u64, Refusal> {
    let value = given.unwrap_or(before);
    if range.contains(&value) {
        return Ok(value);
    }
    Err(bad(format!("`{name}` is {value}; it must be from {} to {}", range.start(), range.end())))
}

pub(super) fn check_topic_name(name: &str) -> Result<(), Refusal> {
    if is_name(name) {
        return Ok(());
    }
    let message =
        format!("{name:?} is not a topic name: use 1 to {NAME_BYTES} of a-z, 0-9, `_`, `.` and `-`");
    Err(Refusal::new(Code::BadRequest, message))
}

fn checked_topics(names: &[Arc<str>]) -> Result<Vec<Arc<str>>, Refusal> {
    if names.len() > TOPICS_MAX {
        return Err(bad(format!("`topics` has {} names, at most {TOPICS_MAX} are allowed", names.len())));
    }
    let mut topics: Vec<Arc<str>> = Vec::with_capacity(names.len());
    for name in names {
        check_topic_name(name)?;
        if is_reserved(name) && !is_for_admins(name) && ![PRESENCE, PARTIES, DELIVERIES].contains(&&**name) {
            let message = format!(
                "the server has no topic {name:?}; it has {PRESENCE}, {PARTIES}, {DELIVERIES} and {AUDIT}"
            );
            return Err(bad(message));
        }
        if !topics.contains(name) {
            topics.push(name.clone());
        }
    }
    Ok(topics)
}

/// A new secret signs at once; the previous one still signs for a while.
fn rotate(secrets: &mut Vec<SigningSecretRecord>, text: &str, now_ms: u64, rotation_ms: u64) {
    if secrets.first().is_some_and(|current| current.text == text) {
        return;
    }
    let former = secrets.first().map(|former| SigningSecretRecord {
        text: former.text.clone(),
        until: Some(now_ms.saturating_add(rotation_ms)),
    });
    *secrets = vec![SigningSecretRecord { text: text.to_owned(), until: None }];
    secrets.extend(former.filter(|_| rotation_ms > 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(change: SubscriptionChange) -> Result<ChangedSettings, Refusal> {
        change.create(&"s".into(), &"k".into(), 5, 1_000)
    }

    fn topics(names: &[&str]) -> Option<Vec<Arc<str>>> {
        Some(names.iter().map(|name| Arc::from(*name)).collect())
    }

    fn pulled(secret: Option<&str>) -> SubscriptionChange {
        SubscriptionChange {
            topics: topics(&[]),
            pull: Some(true),
            secret: secret.map(Into::into),
            spare_secret: "spare".into(),
            ..SubscriptionChange::default()
        }
    }

    #[test]
    fn new_subscription_has_the_defaults_and_a_secret_that_is_shown() {
        let created =
            create(SubscriptionChange { topics: topics(&["b", "a", "b"]), ..pulled(None) }).unwrap();
        let subscription = &created.subscription;
        assert_eq!(subscription.topics, ["b".into(), "a".into()], "each once, as they were named");
        assert_eq!((subscription.timeout_ms, subscription.max_events), (500, 100));
        assert_eq!((subscription.max_bytes, subscription.concurrency), (1 << 20, 1));
        assert_eq!(created.made_secret.as_deref(), Some(subscription.secrets[0].text.as_str()));
        assert!(create(pulled(Some("given"))).unwrap().made_secret.is_none());
    }

    #[test]
    fn omitted_settings_stay() {
        let first = SubscriptionChange {
            topics: topics(&["a"]),
            callback: Some("https://example.com/x".into()),
            timeout_ms: Some(7),
            max_events: Some(3),
            headers: Some([("x-a".into(), "1".into())].into()),
            uuid: Some("me".into()),
            format: Some(BatchFormat::Routemaster),
            concurrency: Some(2),
            ..SubscriptionChange::default()
        };
        let before = create(first).unwrap().subscription;
        let apply = |before: &SubscriptionSettings, change: SubscriptionChange| {
            change.apply(before.clone(), 7, 1_000).unwrap().subscription
        };
        assert_eq!(apply(&before, SubscriptionChange::default()), before);
        let budget =
            |bytes| SubscriptionChange { max_backlog_bytes: Some(bytes), ..SubscriptionChange::default() };
        let bounded = apply(&before, budget(70_000));
        assert_eq!(bounded, SubscriptionSettings { max_backlog_bytes: 70_000, ..before.clone() });
        assert_eq!(apply(&bounded, SubscriptionChange::default()), bounded);
        assert_eq!(apply(&bounded, budget(0)), before);
        let other = SubscriptionChange {
            topics: topics(&["c"]),
            max_bytes: Some(2048),
            ..SubscriptionChange::default()
        };
        assert_eq!(
            apply(&before, other),
            SubscriptionSettings { topics: vec!["c".into()], max_bytes: 2048, ..before }
        );
    }

    #[test]
    fn wrong_settings_are_refused() {
        let before = create(pulled(None)).unwrap().subscription;
        let none = SubscriptionChange::default;
        for (change, expected) in [
            (SubscriptionChange { topics: topics(&["A"]), ..none() }, "not a topic name"),
            (SubscriptionChange { topics: topics(&["tavern.secrets"]), ..none() }, "the server has no topic"),
            (SubscriptionChange { timeout_ms: Some(3_600_001), ..none() }, "0 to 3600000"),
            (SubscriptionChange { max_events: Some(0), ..none() }, "1 to 10000"),
            (SubscriptionChange { max_bytes: Some(1_023), ..none() }, "1024 to 16777216"),
            (SubscriptionChange { max_backlog_bytes: Some(65_535), ..none() }, "65536 to"),
            (SubscriptionChange { concurrency: Some(17), ..none() }, "1 to 16"),
            (SubscriptionChange { uuid: Some("a:b".into()), ..none() }, "`uuid`"),
            (SubscriptionChange { pull: Some(false), ..none() }, "`callback`"),
        ] {
            let refused = change.apply(before.clone(), 7, 1_000).unwrap_err();
            assert_eq!(refused.code, Code::BadRequest, "{expected}");
            assert!(refused.message.contains(expected), "{}", refused.message);
        }
        assert!(create(none()).unwrap_err().message.contains("`topics`"));
    }

    #[test]
    fn former_secret_signs_along_for_a_while() {
        let before = create(pulled(Some("one"))).unwrap().subscription;
        let again = pulled(Some("one")).apply(before.clone(), 7, 1_000).unwrap().subscription;
        assert_eq!(again, before, "the same secret is not rotated");
        let after = pulled(Some("other")).apply(before, 7, 1_000).unwrap().subscription;
        let secret = |text: &str, until| SigningSecretRecord { text: text.into(), until };
        assert_eq!(after.secrets, [secret("other", None), secret("one", Some(1_007))]);
    }
}
