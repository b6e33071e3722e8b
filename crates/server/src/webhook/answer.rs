//! What an endpoint's answer means. Reads no socket and no clock.
//! Must hold: events that an endpoint named as failed are never taken for delivered; the detail for the operator is one
//! short line without text from the endpoint.

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};
use tavern_domain::delivery::{DeliveryOutcome, EndpointReply};

/// The longest time that an endpoint can make us wait.
const RETRY_AFTER_MS: u64 = 3_600_000;
/// The longest detail: the chain of causes of a TLS error can be long.
const DETAIL_BYTES: usize = 240;

#[derive(Clone, Debug)]
pub struct WebhookAnswer {
    pub reply: EndpointReply<String>,
    /// None when the endpoint did not answer.
    pub status: Option<u16>,
    pub took: Duration,
    /// For the operator.
    pub detail: String,
}

/// As much of a body as was read.
#[derive(Debug, Default)]
pub(super) struct ReadBody {
    pub bytes: Vec<u8>,
    pub end: BodyEnd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyEnd {
    #[default]
    Whole,
    /// There is more than we read.
    Cut,
    /// The rest did not come in time.
    Late,
    /// The connection ended before the body did.
    Broken,
}

/// Whether what the body says can change what a status means.
pub(super) fn wants_body(status: StatusCode) -> bool {
    status.is_success()
}

pub(super) fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    body: &ReadBody,
    now: SystemTime,
) -> (EndpointReply<String>, String) {
    let outcome = match status.as_u16() {
        200..300 => return judge_success(status, body),
        410 => DeliveryOutcome::Gone,
        413 => DeliveryOutcome::TooLarge,
        429 | 503 => return (EndpointReply::throttled(retry_after(headers, now)), shown(status)),
        400..500 => DeliveryOutcome::Refused,
        300..400 => {
            return (
                DeliveryOutcome::Failed.into(),
                format!("{} (redirects are not followed)", shown(status)),
            );
        }
        _ => DeliveryOutcome::Failed,
    };
    (outcome.into(), shown(status))
}

fn judge_success(status: StatusCode, body: &ReadBody) -> (EndpointReply<String>, String) {
    let failed = |why: &str| (DeliveryOutcome::Failed.into(), format!("{}, but {why}", shown(status)));
    let delivered = (DeliveryOutcome::Delivered.into(), shown(status));
    let begins = body.bytes.trim_ascii_start().first();
    match body.end {
        BodyEnd::Whole => match named(&body.bytes) {
            FailedIds::Nothing => delivered,
            FailedIds::Events(ids) => {
                let detail = format!("{}, {} events failed", shown(status), ids.len());
                (EndpointReply::partly(ids), detail)
            }
            FailedIds::Unclear => failed("its list of failed events cannot be read"),
        },
        // What we did not read may be the list of failed events, or the rest of it: then all are sent again.
        BodyEnd::Cut if begins == Some(&b'{') && names_failed(&body.bytes) => {
            failed("its list of failed events is too long")
        }
        BodyEnd::Cut => delivered,
        BodyEnd::Late | BodyEnd::Broken if begins.is_some_and(|byte| *byte != b'{') => delivered,
        BodyEnd::Late => failed("its body did not end in time"),
        BodyEnd::Broken => failed("its body broke off"),
    }
}

fn names_failed(bytes: &[u8]) -> bool {
    bytes.windows(FAILED.len()).any(|window| window == FAILED)
}

const FAILED: &[u8] = br#""failed""#;

enum FailedIds {
    Nothing,
    Events(Vec<String>),
    Unclear,
}

#[derive(Deserialize)]
struct AnswerFields {
    failed: Option<Value>,
}

/// The events that a body names as failed. Anything but a list under `failed` is a success.
fn named(body: &[u8]) -> FailedIds {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return FailedIds::Nothing;
    }
    let Ok(AnswerFields { failed: Some(Value::Array(ids)) }) = serde_json::from_slice(body) else {
        return FailedIds::Nothing;
    };
    let text = |id: Value| match id {
        Value::String(text) => Some(text),
        // An id of digits may come back as a number.
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match ids.into_iter().map(text).collect::<Option<Vec<String>>>() {
        Some(ids) if ids.is_empty() => FailedIds::Nothing,
        Some(ids) => FailedIds::Events(ids),
        None => FailedIds::Unclear,
    }
}

/// `Retry-After` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = text.parse().unwrap_or(u64::MAX);
        return Some(seconds.saturating_mul(1_000).min(RETRY_AFTER_MS));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    // A date that has passed means now.
    let wait = until.duration_since(now).unwrap_or_default();
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(RETRY_AFTER_MS))
}

fn shown(status: StatusCode) -> String {
    // The reason is the library's, not the one that the endpoint wrote.
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// A chain of causes on one short line. A cause that its effect has told already is not told again.
pub(super) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut told = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if told.is_empty() {
            told = text;
        } else if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        next = cause.source();
    }
    let mut end = DETAIL_BYTES.min(told.len());
    while !told.is_char_boundary(end) {
        end -= 1;
    }
    told.truncate(end);
    told.replace(char::is_control, " ")
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
