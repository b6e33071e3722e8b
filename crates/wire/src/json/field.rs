//! Members of a JSON object as typed values, with an error that names the member.
//! Must hold: a `null` member counts as absent, except where any JSON is allowed.

use super::scan::{check_portable, skip_space};
use crate::error::{Code, Refusal};
use crate::nearest;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Enough for a UUID with a prefix.
const MESSAGE_ID_BYTES: usize = 128;

pub(crate) type Raw<'a> = Option<&'a RawValue>;

/// Keeps `null` as a value: serde would treat it as absent, and `"data":null` is a message.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Raw<'de>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

pub(crate) fn refuse(message: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::BadRequest, message)
}

/// Parses the known members of one object. The shape is checked first: serde would also accept an array, and the depth must
/// be known before anything is parsed.
pub(crate) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Refusal> {
    if json.get(skip_space(json, 0)) != Some(&b'{') {
        return Err(refuse("expected a JSON object"));
    }
    check_portable(json).map_err(|found| refuse(found.to_string()))?;
    let text = std::str::from_utf8(json).map_err(|_| refuse("the JSON is not UTF-8"))?;
    serde_json::from_str(text).map_err(|error| match error.classify() {
        // The only errors about content that serde can still report are duplicate and unknown members.
        serde_json::error::Category::Data => {
            let text = error.to_string();
            refuse(unknown_member(&text).unwrap_or(text))
        }
        _ => refuse(format!("not valid JSON: {error}")),
    })
}

/// The refusal of a member that is not known, with the one that was meant.
fn unknown_member(error: &str) -> Option<String> {
    let (written, rest) = error.strip_prefix("unknown field `")?.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2);
    let written: String = written.chars().take(64).collect();
    let hint = nearest(&written, known).map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
    Some(format!("unknown field `{written}`{hint}"))
}

pub(crate) fn need<T>(name: &'static str, value: Option<T>) -> Result<T, Refusal> {
    value.ok_or_else(|| refuse(format!("the field `{name}` is missing")))
}

pub(crate) fn text<'a>(name: &'static str, raw: Raw<'a>) -> Result<Option<Cow<'a, str>>, Refusal> {
    let Some(token) = token(raw) else { return Ok(None) };
    let inner = token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if memchr::memchr(b'\\', inner.as_bytes()).is_none() => Ok(Some(Cow::Borrowed(inner))),
        Some(_) => match serde_json::from_str(token) {
            Ok(text) => Ok(Some(Cow::Owned(text))),
            Err(_) => Err(refuse(format!("the field `{name}` contains an unpaired surrogate"))),
        },
        None => Err(refuse(format!("the field `{name}` must be a string"))),
    }
}

/// The id that makes a message once-only. Refused here, so that every way to publish refuses the same ids.
pub(crate) fn message_id<'a>(raw: Raw<'a>) -> Result<Option<Cow<'a, str>>, Refusal> {
    let id = text("message_id", raw)?;
    match id.as_deref() {
        Some(id) if id.is_empty() || id.len() > MESSAGE_ID_BYTES || id.chars().any(char::is_control) => Err(
            refuse(format!("a message_id must have 1 to {MESSAGE_ID_BYTES} bytes and no control characters")),
        ),
        _ => Ok(id),
    }
}

/// A list of strings.
pub(crate) fn texts<'a>(name: &'static str, raw: Raw<'a>) -> Result<Option<Vec<Cow<'a, str>>>, Refusal> {
    let Some(token) = token(raw) else { return Ok(None) };
    let wrong = |_| refuse(format!("the field `{name}` must be a list of strings"));
    let items: Vec<&'a RawValue> = serde_json::from_str(token).map_err(wrong)?;
    let item =
        |item| text(name, Some(item))?.ok_or_else(|| refuse(format!("the field `{name}` must not be null")));
    items.into_iter().map(item).collect::<Result<_, _>>().map(Some)
}

pub(crate) fn number(name: &'static str, raw: Raw<'_>) -> Result<Option<u64>, Refusal> {
    let Some(token) = token(raw) else { return Ok(None) };
    match token.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(refuse(format!("the field `{name}` must be an integer from 0"))),
    }
}

/// Milliseconds since the epoch, or an RFC 3339 date and time.
pub(crate) fn moment(name: &'static str, raw: Raw<'_>) -> Result<Option<u64>, Refusal> {
    let Some(token) = token(raw) else { return Ok(None) };
    let read = match token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(text) => super::moment::parse_moment(text),
        None => token.parse().ok(),
    };
    let wrong = || {
        refuse(format!(
            "the field `{name}` must be milliseconds since 1970, or a time such as 2026-11-15T10:00:00Z"
        ))
    };
    read.map(Some).ok_or_else(wrong)
}

pub(crate) fn boolean(name: &'static str, raw: Raw<'_>) -> Result<Option<bool>, Refusal> {
    match token(raw) {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(refuse(format!("the field `{name}` must be true or false"))),
    }
}

fn token(raw: Raw<'_>) -> Option<&str> {
    raw.map(RawValue::get).filter(|token| *token != "null")
}
