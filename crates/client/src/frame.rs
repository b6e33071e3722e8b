//! Protocol frames: a received one with its original text, and one to send.
//! Must hold: `data` that an app publishes reaches the server byte for byte as the app wrote it.

use crate::error::LinkEnd;
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::Arc;

/// A frame from the server.
#[derive(Clone, Debug)]
pub(crate) struct ServerFrame {
    pub value: Value,
    /// As the server wrote it.
    pub text: Arc<str>,
}

impl ServerFrame {
    pub fn parse(text: &[u8]) -> Result<ServerFrame, LinkEnd> {
        let wrong = || LinkEnd::new("the server sent a frame that is not a JSON object");
        let text: Arc<str> = std::str::from_utf8(text).map_err(|_| wrong())?.into();
        match serde_json::from_str(&text) {
            Ok(value @ Value::Object(_)) => Ok(ServerFrame { value, text }),
            _ => Err(wrong()),
        }
    }
}

impl From<Value> for ServerFrame {
    /// A frame that the client built from another answer.
    fn from(value: Value) -> ServerFrame {
        ServerFrame { text: value.to_string().into(), value }
    }
}

/// A frame to the server: an object, and its `data`, if that must not change.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub members: Value,
    pub data: Option<Arc<RawValue>>,
}

impl Outgoing {
    /// How long its text is.
    pub fn bytes(&self) -> usize {
        let data = self.data.as_ref().map_or(0, |data| ",\"data\":".len() + data.get().len());
        self.members.to_string().len() + data
    }

    pub fn text(&self) -> String {
        let mut text = self.members.to_string();
        if let Some(data) = &self.data {
            text.truncate(text.len() - 1);
            text.push_str(",\"data\":");
            text.push_str(data.get());
            text.push('}');
        }
        text
    }
}

impl From<Value> for Outgoing {
    fn from(members: Value) -> Outgoing {
        Outgoing { members, data: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn data_is_sent_as_it_was_written() {
        let data: Box<RawValue> =
            serde_json::from_str(r#"{"b": 1.50, "a": 12345678901234567890123}"#).expect("JSON");
        let frame = Outgoing { members: json!({"op": "publish"}), data: Some(data.into()) };
        assert_eq!(frame.text(), r#"{"op":"publish","data":{"b": 1.50, "a": 12345678901234567890123}}"#);
        assert_eq!(Outgoing::from(json!({"op": "bye"})).text(), r#"{"op":"bye"}"#);
    }

    #[test]
    fn only_objects_are_frames() {
        assert_eq!(&*ServerFrame::parse(b"{\"a\": 1}").expect("an object").text, "{\"a\": 1}");
        for wrong in [&b"[]"[..], b"1", b"{", b"", b"\xff"] {
            assert!(ServerFrame::parse(wrong).is_err());
        }
    }
}
