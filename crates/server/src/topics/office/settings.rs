//! What somebody wants of a subscription, and the subscription that comes of it. Must hold: what is omitted stays as it was;
//! a wish that is wrong in anything changes nothing; whatever is handed out can be delivered or pulled.

use super::body::object;
use crate::config::Config;
use crate::topics::policy;
use crate::webhook::{Policy, SigningSecret, WebhookTarget, may_send};
use http::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::topic::{DELIVERIES, PARTIES, PRESENCE, is_reserved};
use tavern_hub::topics::check_topic_name;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::BatchFormat;
use tavern_wire::record::{SigningSecretRecord, SubscriptionSettings};

/// Topics of one subscription: one read counts them all, the old ones and the new.
const TOPICS_MAX: usize = 256;
const HEADERS_MAX: usize = 16;
const HEADER_BYTES: usize = 4_096;
const UUID_BYTES: usize = 128;
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 0..=3_600_000;
const MAX_EVENTS: std::ops::RangeInclusive<u64> = 1..=10_000;
const MAX_BYTES: std::ops::RangeInclusive<u64> = 1 << 10..=16 << 20;
/// Or 0: no budget of its own.
const MAX_BACKLOG_BYTES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 50;
const CONCURRENCY: std::ops::RangeInclusive<u64> = 1..=16;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wish {
    topics: Option<Vec<String>>,
    callback: Option<String>,
    timeout_ms: Option<u64>,
    max_events: Option<u64>,
    max_bytes: Option<u64>,
    max_backlog_bytes: Option<u64>,
    format: Option<BatchFormat>,
    secret: Option<String>,
    uuid: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    concurrency: Option<u64>,
    pull: Option<bool>,
}

/// What the operator allows.
pub struct Terms {
    pub policy: Policy,
    /// How long an old secret signs along.
    pub rotation_ms: u64,
}

impl Terms {
    pub fn of(config: &Config) -> Terms {
        Terms { policy: policy(config), rotation_ms: config.events.rotation_ms }
    }
}

/// A subscription as it is wanted, and the secret if one was made.
pub struct Wanted {
    pub subscription: SubscriptionSettings,
    pub made_secret: Option<String>,
}

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::BadRequest, message)
}

impl Wish {
    pub fn parse(body: &[u8]) -> Result<Wish, Refusal> {
        object(body, "give the settings of a subscription")
    }

    /// The first one: whoever asks is its owner.
    pub fn begin(self, name: &str, owner: &Arc<str>, now_ms: u64, terms: &Terms) -> Result<Wanted, Refusal> {
        if self.topics.is_none() {
            return Err(bad("`topics` is missing: a new subscription names the topics it receives"));
        }
        let blank = SubscriptionSettings {
            name: name.into(),
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
        let mut wanted = self.change(blank, now_ms, terms)?;
        if wanted.subscription.secrets.is_empty() {
            let text = SigningSecret::generate().expose();
            wanted.subscription.secrets.push(SigningSecretRecord { text: text.clone(), until: None });
            wanted.made_secret = Some(text);
        }
        Ok(wanted)
    }

    /// What is given takes the place of what was.
    pub fn change(self, before: SubscriptionSettings, now_ms: u64, terms: &Terms) -> Result<Wanted, Refusal> {
        let mut after = before;
        if let Some(topics) = &self.topics {
            after.topics = checked_topics(topics)?;
        }
        if let Some(callback) = &self.callback {
            // A name is looked at again whenever it is dialled.
            WebhookTarget::parse(callback, &terms.policy)
                .map_err(|error| bad(format!("`callback`: {error}")))?;
            after.callback = Some(callback.as_str().into());
        }
        if let Some(headers) = self.headers {
            check_headers(&headers)?;
            after.headers = headers;
        }
        if let Some(uuid) = self.uuid {
            let good = |byte: u8| byte.is_ascii_graphic() && byte != b':';
            if uuid.is_empty() || uuid.len() > UUID_BYTES || !uuid.bytes().all(good) {
                return Err(bad("`uuid` is 1 to 128 visible characters without a colon"));
            }
            after.uuid = Some(uuid.into());
        }
        if let Some(secret) = self.secret {
            rotate(&mut after.secrets, &secret, now_ms, terms.rotation_ms)?;
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
            return Err(bad(
                "give a `callback` to be called, or `\"pull\": true` to ask for events yourself",
            ));
        }
        Ok(Wanted { subscription: after, made_secret: None })
    }
}

fn within(
    name: &'static str,
    given: Option<u64>,
    before: u64,
    range: &std::ops::RangeInclusive<u64>,
) -> Result<u64, Refusal> {
    let value = given.unwrap_or(before);
    match range.contains(&value) {
        true => Ok(value),
        false => {
            let message =
                format!("`{name}` is {value}; it must be from {} to {}", range.start(), range.end());
            Err(bad(message))
        }
    }
}

fn checked_topics(names: &[String]) -> Result<Vec<Arc<str>>, Refusal> {
    if names.len() > TOPICS_MAX {
        return Err(bad(format!("`topics` has {} names, at most {TOPICS_MAX} are allowed", names.len())));
    }
    let mut topics: Vec<Arc<str>> = Vec::with_capacity(names.len());
    for name in names {
        check_topic_name(name)?;
        if is_reserved(name) && ![PRESENCE, PARTIES, DELIVERIES].contains(&name.as_str()) {
            let message =
                format!("the server has no topic {name:?}; it has {PRESENCE}, {PARTIES} and {DELIVERIES}");
            return Err(bad(message));
        }
        if !topics.iter().any(|known| **known == **name) {
            topics.push(name.as_str().into());
        }
    }
    Ok(topics)
}

fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if headers.len() > HEADERS_MAX {
        return Err(bad(format!("`headers` has {}, at most {HEADERS_MAX} are allowed", headers.len())));
    }
    let mut known = std::collections::HashSet::new();
    for (name, value) in headers {
        let Ok(read) = HeaderName::from_bytes(name.as_bytes()) else {
            return Err(bad(format!("`headers`: {name:?} is no name of a header")));
        };
        let ours = ["webhook-", "tavern-", "content-", "proxy-"];
        if !may_send(&read) || ours.iter().any(|prefix| read.as_str().starts_with(prefix)) {
            return Err(bad(format!("`headers`: {name:?} is set by the server")));
        }
        // The value may be a password, so it is not repeated.
        if value.len() > HEADER_BYTES || HeaderValue::from_str(value).is_err() {
            return Err(bad(format!(
                "`headers`: the value of {name:?} has a control character or more than {HEADER_BYTES} bytes"
            )));
        }
        if !known.insert(read) {
            return Err(bad(format!("`headers`: {name:?} is given twice")));
        }
    }
    Ok(())
}

/// A new secret signs at once; the one before it signs along for a while.
fn rotate(
    secrets: &mut Vec<SigningSecretRecord>,
    text: &str,
    now_ms: u64,
    rotation_ms: u64,
) -> Result<(), Refusal> {
    SigningSecret::parse(text).map_err(|error| bad(format!("`secret`: {error}")))?;
    if secrets.first().is_some_and(|current| current.text == text) {
        return Ok(());
    }
    let former = secrets.first().map(|former| SigningSecretRecord {
        text: former.text.clone(),
        until: Some(now_ms.saturating_add(rotation_ms)),
    });
    *secrets = vec![SigningSecretRecord { text: text.to_owned(), until: None }];
    secrets.extend(former.filter(|_| rotation_ms > 0));
    Ok(())
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
