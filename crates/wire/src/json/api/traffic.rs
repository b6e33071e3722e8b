//! The lines of `GET /v1/traffic`.

use serde::Serialize;
use serde_json::value::RawValue;

/// One line of what passes through a node. Every line has `kind`.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TrafficLine<'a> {
    /// The first line, and one each second.
    Status { at: u64, node: &'a str, seen: u64, skipped: u64 },
    /// A message was published on this node.
    Message {
        at: u64,
        channel: &'a str,
        client: Option<String>,
        data: TrafficData<'a>,
        receivers: u32,
        /// `data` is the beginning of the message, as text.
        truncated: bool,
        user: Option<&'a str>,
    },
    /// A command of a client has begun.
    Command { at: u64, client: Option<String>, op: &'a str, target: Option<&'a str>, user: Option<&'a str> },
    /// A command was refused.
    Refused {
        at: u64,
        client: Option<String>,
        code: &'static str,
        message: &'a str,
        op: Option<&'a str>,
        target: Option<&'a str>,
        user: Option<&'a str>,
    },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum TrafficData<'a> {
    Json(&'a RawValue),
    Text(&'a str),
}

#[cfg(test)]
mod tests {
    use super::super::{encode, raw};
    use super::*;

    #[test]
    fn a_line_has_its_kind_and_the_data_as_it_was_sent() {
        let line = TrafficLine::Message {
            at: 1,
            channel: "game#1",
            client: None,
            data: TrafficData::Json(raw("{\"n\": 1.50}").unwrap()),
            receivers: 2,
            truncated: false,
            user: Some("ann"),
        };
        assert_eq!(
            String::from_utf8(encode(&line)).unwrap(),
            r#"{"kind":"message","at":1,"channel":"game#1","client":null,"data":{"n": 1.50},"receivers":2,"truncated":false,"user":"ann"}"#
        );
    }
}
