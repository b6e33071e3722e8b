//! Events of Pusher as messages of Tavern: `{"event":"moved","data":…}`. Data that is a JSON object or list is kept as JSON, so
//! that other clients can read it; any other text is kept as a text. A message of another form is the event `message`.
//! Must hold: the text of the data comes out as it went in, byte for byte.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use tavern_domain::limits::JSON_DEPTH;

/// An event to be published.
pub struct OutgoingEvent<'a> {
    pub event: &'a str,
    /// The text of the data.
    pub data: &'a str,
    /// The socket that does not get it.
    pub except: Option<&'a str>,
}

#[derive(Serialize)]
struct WrittenMessage<'a> {
    event: &'a str,
    data: WrittenData<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WrittenData<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

/// The data of the message.
pub fn write_message(event: &OutgoingEvent<'_>) -> String {
    let json = serde_json::from_str::<&RawValue>(event.data).ok();
    let data = match json.filter(|json| is_structure(event.data, json.get())) {
        Some(json) => WrittenData::Json(json),
        None => WrittenData::Text(event.data),
    };
    let message = WrittenMessage { event: event.event, data, socket_id: event.except };
    serde_json::to_string(&message).unwrap_or_default()
}

/// Whether a text is an object or a list, and nothing else: no space around it, no line breaks, not too deep.
fn is_structure(text: &str, json: &str) -> bool {
    if text.len() != json.len() || !text.starts_with(['{', '[']) || text.contains(['\n', '\r']) {
        return false;
    }
    // Brackets in texts count too: such data is kept as a text, which is right as well.
    let (mut depth, mut deepest) = (0usize, 0usize);
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    // The message around it is one level more.
    deepest < JSON_DEPTH - 2
}

/// An event as a socket gets it.
#[derive(Debug, PartialEq, Eq)]
pub struct DeliveredEvent<'a> {
    pub event: Cow<'a, str>,
    /// The text of the data.
    pub data: Cow<'a, str>,
    /// The socket that does not get it.
    pub except: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct ReadMessage<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    socket_id: Option<Cow<'a, str>>,
}

/// The event of a message from anybody.
pub fn read_message(data: &RawValue) -> DeliveredEvent<'_> {
    // Only the server itself sends events with these names.
    let is_reserved = |event: &str| event.starts_with("pusher:") || event.starts_with("pusher_internal:");
    match serde_json::from_str::<ReadMessage<'_>>(data.get()) {
        Ok(message) if !is_reserved(&message.event) => DeliveredEvent {
            event: message.event,
            data: message.data.map_or(Cow::Borrowed("null"), data_text),
            except: message.socket_id,
        },
        _ => DeliveredEvent { event: Cow::Borrowed("message"), data: data_text(data), except: None },
    }
}

/// A text as it is, anything else as JSON.
pub fn data_text(value: &RawValue) -> Cow<'_, str> {
    match value.get().starts_with('"') {
        true => serde_json::from_str::<String>(value.get()).map_or(Cow::Borrowed(value.get()), Cow::Owned),
        false => Cow::Borrowed(value.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    fn check(data: &str, message: &str) {
        let written = write_message(&OutgoingEvent { event: "moved", data, except: None });
        assert_eq!(written, message, "{data}");
        assert_eq!(read_message(raw(&written)).data, data);
    }

    #[test]
    fn data_comes_out_as_it_went_in() {
        check(r#"{"a": 1}"#, r#"{"event":"moved","data":{"a": 1}}"#);
        check("[1,2]", r#"{"event":"moved","data":[1,2]}"#);
        check("hello", r#"{"event":"moved","data":"hello"}"#);
        check(r#""hello""#, r#"{"event":"moved","data":"\"hello\""}"#);
        check("12", r#"{"event":"moved","data":"12"}"#);
        check("", r#"{"event":"moved","data":""}"#);
        check(" {}", r#"{"event":"moved","data":" {}"}"#);
        check("{\n}", r#"{"event":"moved","data":"{\n}"}"#);
        check("{broken", r#"{"event":"moved","data":"{broken"}"#);
        let deep = "[".repeat(63) + &"]".repeat(63);
        check(&deep, &format!(r#"{{"event":"moved","data":"{deep}"}}"#));
    }

    #[test]
    fn the_excluded_socket_is_in_the_message() {
        let written = write_message(&OutgoingEvent { event: "a", data: "{}", except: Some("1.2") });
        assert_eq!(written, r#"{"event":"a","data":{},"socket_id":"1.2"}"#);
        assert_eq!(read_message(raw(&written)).except.as_deref(), Some("1.2"));
    }

    #[test]
    fn messages_of_others_are_events_too() {
        for (message, event, data) in [
            (r#""hello""#, "message", "hello"),
            ("7", "message", "7"),
            (r#"{"a":1}"#, "message", r#"{"a":1}"#),
            (r#"{"event":"x"}"#, "x", "null"),
            (r#"{"event":"x","data":7}"#, "x", "7"),
            (r#"{"event":7}"#, "message", r#"{"event":7}"#),
            (
                r#"{"event":"pusher_internal:member_added"}"#,
                "message",
                r#"{"event":"pusher_internal:member_added"}"#,
            ),
        ] {
            let found = read_message(raw(message));
            assert_eq!((&*found.event, &*found.data), (event, data), "{message}");
        }
    }
}
