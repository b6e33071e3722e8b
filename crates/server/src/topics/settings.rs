//! The body of `PUT /v1/subscriptions/{name}`: parses it and checks what depends on the configuration: the callback
//! address, the headers and the form of the secret. The hub checks the rest.

use super::body::object;
use crate::webhook::{Policy, SigningSecret, WebhookTarget, may_send};
use http::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use tavern_hub::topics::SubscriptionChange;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::BatchFormat;

const HEADERS_MAX: usize = 16;
const HEADER_BYTES: usize = 4_096;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SubscriptionBody {
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

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::BadRequest, message)
}

/// Parses the changes of a subscription. Only addresses that this policy allows may be called.
pub fn parse(body: &[u8], policy: &Policy) -> Result<SubscriptionChange, Refusal> {
    let body: SubscriptionBody = object(body, "give the settings of a subscription")?;
    if body.format == Some(BatchFormat::Pusher) {
        return Err(bad(
            "`format`: \"pusher\" is for the webhooks of [[pusher.apps]]; use standard or routemaster",
        ));
    }
    let change = SubscriptionChange {
        topics: body.topics.map(|topics| topics.into_iter().map(Into::into).collect()),
        callback: body.callback.map(Into::into),
        timeout_ms: body.timeout_ms,
        max_events: body.max_events,
        max_bytes: body.max_bytes,
        max_backlog_bytes: body.max_backlog_bytes,
        format: body.format,
        secret: body.secret,
        uuid: body.uuid.map(Into::into),
        headers: body.headers,
        concurrency: body.concurrency,
        pull: body.pull,
        spare_secret: SigningSecret::generate().expose(),
    };
    check(&change, policy)?;
    Ok(change)
}

/// Checks what depends on the configuration or on libraries of the server.
pub fn check(change: &SubscriptionChange, policy: &Policy) -> Result<(), Refusal> {
    if let Some(callback) = &change.callback {
        // A host name is resolved and checked again at every connection.
        WebhookTarget::parse(callback, policy).map_err(|error| bad(format!("`callback`: {error}")))?;
    }
    if let Some(secret) = &change.secret {
        SigningSecret::parse(secret).map_err(|error| bad(format!("`secret`: {error}")))?;
    }
    if let Some(headers) = &change.headers {
        check_headers(headers)?;
    }
    Ok(())
}

fn check_headers(headers: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if headers.len() > HEADERS_MAX {
        return Err(bad(format!("`headers` has {}, at most {HEADERS_MAX} are allowed", headers.len())));
    }
    let mut known = HashSet::new();
    for (name, value) in headers {
        let Ok(read) = HeaderName::from_bytes(name.as_bytes()) else {
            return Err(bad(format!("`headers`: {name:?} is not a header name")));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn change(json: &str) -> Result<SubscriptionChange, Refusal> {
        parse(json.as_bytes(), &Policy::default())
    }

    #[test]
    fn omitted_and_null_settings_are_not_changed() {
        let nulls =
            r#"{"topics":null,"callback":null,"timeout_ms":null,"headers":null,"secret":null,"pull":null}"#;
        for json in ["{}", nulls] {
            let change = change(json).unwrap();
            assert!(change.topics.is_none() && change.callback.is_none() && change.headers.is_none());
            assert!(change.timeout_ms.is_none() && change.secret.is_none() && change.pull.is_none());
            assert!(change.spare_secret.starts_with("whsec_"));
        }
    }

    #[test]
    fn wrong_settings_are_refused_and_secrets_are_not_repeated() {
        for (json, expected) in [
            ("", "not a JSON object"),
            ("[]", "not a JSON object"),
            (r#"{"topic":["a"]}"#, "unknown field `topic`"),
            (r#"{"callback":"ftp://example.com/"}"#, "`callback`"),
            (r#"{"callback":"http://example.com/"}"#, "https://"),
            (r#"{"callback":"https://a:b@example.com/"}"#, "user or password"),
            (r#"{"callback":"https://127.0.0.1/"}"#, "is not allowed"),
            (r#"{"callback":"https://169.254.169.254/"}"#, "is not allowed"),
            (r#"{"format":"xml"}"#, "unknown variant"),
            (r#"{"format":"pusher"}"#, "webhooks of [[pusher.apps]]"),
            (r#"{"secret":"hush"}"#, "`secret`"),
            (r#"{"headers":{"host":"x"}}"#, "set by the server"),
            (r#"{"headers":{"Webhook-Id":"x"}}"#, "set by the server"),
            (r#"{"headers":{"content-type":"x"}}"#, "set by the server"),
            (r#"{"headers":{"a b":"x"}}"#, "not a header name"),
            (r#"{"headers":{"a":"x\ny"}}"#, "control character"),
            (r#"{"headers":{"A":"x","a":"y"}}"#, "given twice"),
        ] {
            let refused = change(json).unwrap_err();
            assert_eq!(refused.code, Code::BadRequest, "{json}");
            assert!(refused.message.contains(expected), "{json}: {}", refused.message);
            assert!(!refused.message.contains("hush"));
        }
    }
}
