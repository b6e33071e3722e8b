//! Interprets an endpoint's answer. Pure.
//! Must hold: events that an endpoint reported as failed never count as delivered; the detail for the operator is one short
//! line without text from the endpoint, and what is kept of the response is bounded.

use http::header::{self, HeaderName, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tavern_domain::delivery::{DeliveryOutcome, EndpointReply};

/// The longest `Retry-After` that is accepted.
const RETRY_AFTER_MS: u64 = 3_600_000;
/// The longest detail: the chain of causes of a TLS error can be long.
const DETAIL_BYTES: usize = 240;
/// The bytes of a response body that are kept for the operator.
pub const KEPT_BODY_BYTES: usize = 2_048;
/// The longest value of a header that is kept.
const KEPT_HEADER_BYTES: usize = 256;
/// The headers of a response that are kept: they show which program answered, and why.
const KEPT_HEADERS: [HeaderName; 8] = [
    header::CONTENT_TYPE,
    header::LOCATION,
    header::RETRY_AFTER,
    header::SERVER,
    header::VIA,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("cf-ray"),
    HeaderName::from_static("x-request-id"),
];

#[derive(Clone, Debug)]
pub struct WebhookAnswer {
    pub reply: EndpointReply<String>,
    /// None when the endpoint did not answer.
    pub status: Option<u16>,
    pub took: Duration,
    /// For the operator.
    pub detail: String,
    pub kept: KeptResponse,
}

/// The part of a response that is kept for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptResponse {
    pub headers: BTreeMap<String, String>,
    pub body: String,
    pub truncated: bool,
}

impl KeptResponse {
    pub(super) fn new(headers: &HeaderMap, body: &ReadBody) -> KeptResponse {
        let text = |bytes: &[u8], max: usize| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(max)]);
            text.trim_end_matches('\u{fffd}').to_owned()
        };
        let kept = KEPT_HEADERS.into_iter().filter_map(|name| {
            let value = headers.get(&name)?;
            Some((name.to_string(), text(value.as_bytes(), KEPT_HEADER_BYTES)))
        });
        KeptResponse {
            headers: kept.collect(),
            body: text(&body.bytes, KEPT_BODY_BYTES),
            truncated: body.bytes.len() > KEPT_BODY_BYTES || body.end != BodyEnd::Whole,
        }
    }
}

/// The part of a body that was read.
#[derive(Debug, Default)]
pub(super) struct ReadBody {
    pub bytes: Vec<u8>,
    pub end: BodyEnd,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyEnd {
    #[default]
    Whole,
    /// The body is longer than the limit.
    Cut,
    /// The rest did not arrive in time.
    Late,
    /// The connection ended before the body did.
    Broken,
}

/// Whether the body can change the meaning of the status.
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
            return (DeliveryOutcome::Failed.into(), format!("redirect refused ({})", shown(status)));
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
        // The unread part may contain failed events: send all again.
        BodyEnd::Cut if begins == Some(&b'{') && names_failed(&body.bytes) => {
            failed("its list of failed events is too long")
        }
        BodyEnd::Cut => delivered,
        BodyEnd::Late | BodyEnd::Broken if begins.is_some_and(|byte| *byte != b'{') => delivered,
        BodyEnd::Late => failed("its body did not end in time"),
        BodyEnd::Broken => failed("its body ended early"),
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

/// The events that a body reports as failed. A body without a list `failed` is a success.
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
    // A date in the past means now.
    let wait = until.duration_since(now).unwrap_or_default();
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(RETRY_AFTER_MS))
}

fn shown(status: StatusCode) -> String {
    // The library's reason phrase, not text of the endpoint.
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

/// A chain of causes on one short line, without repetitions.
pub(super) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        next = cause.source();
    }
    let mut end = DETAIL_BYTES.min(line.len());
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line.replace(char::is_control, " ")
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
