//! Replies and events as JSON bytes, appended to a buffer.
//! Must hold: no raw line break is written except inside unchanged `data`; `seq` is the first member of an event.
//!
//! An event is a head with the session's own `seq` and a tail that is the same for every session.

use super::scan::is_json;
use crate::error::Refusal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tavern_domain::HistoryStamp;

/// `{"id":7,"ok":{…}}`; without an id `{"ok":{…}}`. `body` is a JSON object.
pub fn reply_ok(out: &mut Vec<u8>, id: Option<&str>, body: &[u8]) {
    reply_head(out, id);
    out.extend_from_slice(b"\"ok\":");
    out.extend_from_slice(body);
    out.push(b'}');
}

/// `{"id":7,"error":{"code":…,"message":…,"retry_after_ms":…}}`; the last only if there is one.
pub fn reply_error(out: &mut Vec<u8>, id: Option<&str>, refusal: &Refusal) {
    reply_head(out, id);
    out.extend_from_slice(b"\"error\":{\"code\":\"");
    out.extend_from_slice(refusal.code.as_str().as_bytes());
    out.extend_from_slice(b"\",\"message\":");
    string(out, &refusal.message);
    if let Some(ms) = refusal.retry_after_ms {
        out.extend_from_slice(b",\"retry_after_ms\":");
        number(out, ms);
    }
    if let Some(party) = &refusal.party {
        out.extend_from_slice(b",\"party\":");
        out.extend_from_slice(party.as_bytes());
    }
    out.extend_from_slice(b"}}");
}

fn reply_head(out: &mut Vec<u8>, id: Option<&str>) {
    out.push(b'{');
    if let Some(id) = id {
        out.extend_from_slice(b"\"id\":");
        out.extend_from_slice(id.as_bytes());
        out.push(b',');
    }
}

/// `{"seq":18`: the part of an event that differs between sessions.
pub fn seq_head(out: &mut Vec<u8>, seq: u64) {
    out.extend_from_slice(b"{\"seq\":");
    number(out, seq);
}

/// Who published a message. Unknown parts are omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageSender<'a> {
    pub user: Option<&'a str>,
    pub client: Option<&'a str>,
}

/// The payload of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Known to be valid JSON; written byte for byte.
    Json(&'a [u8]),
    /// Any bytes: JSON if they are valid JSON within the nesting limit, else a string, else base64.
    Bytes(&'a [u8]),
}

/// `,"event":"message","channel":…,"data":…,"from":{…}}`; bytes that are not UTF-8 add `"encoding":"base64"` after `data`.
pub fn message_tail(
    out: &mut Vec<u8>,
    channel: &str,
    payload: Payload<'_>,
    from: Option<MessageSender<'_>>,
    history: Option<HistoryStamp>,
) {
    out.extend_from_slice(b",\"event\":\"message\",\"channel\":");
    string(out, channel);
    out.push(b',');
    message_content(out, payload, from);
    if let Some(HistoryStamp { position, at }) = history {
        for (name, value) in [("epoch", position.epoch), ("offset", position.offset), ("at", at.ms())] {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":");
            number(out, value);
        }
    }
    out.push(b'}');
}

/// The members `data`, `encoding` and `from` of a message.
pub(super) fn message_content(out: &mut Vec<u8>, payload: Payload<'_>, from: Option<MessageSender<'_>>) {
    out.extend_from_slice(b"\"data\":");
    match payload {
        Payload::Json(json) => out.extend_from_slice(json),
        Payload::Bytes(bytes) if is_json(bytes) => out.extend_from_slice(bytes),
        Payload::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => string(out, text),
            Err(_) => {
                base64(out, bytes);
                out.extend_from_slice(b",\"encoding\":\"base64\"");
            }
        },
    }
    if let Some(from) = from {
        sender(out, from);
    }
}

fn sender(out: &mut Vec<u8>, from: MessageSender<'_>) {
    out.extend_from_slice(b",\"from\":{");
    if let Some(user) = from.user {
        out.extend_from_slice(b"\"user\":");
        string(out, user);
    }
    if let Some(client) = from.client {
        if from.user.is_some() {
            out.push(b',');
        }
        out.extend_from_slice(b"\"client\":");
        string(out, client);
    }
    out.push(b'}');
}

/// `,"event":"gap","from":3,"to":9}`: these events of the mailbox were dropped.
pub fn gap_tail(out: &mut Vec<u8>, from: u64, to: u64) {
    out.extend_from_slice(b",\"event\":\"gap\",\"from\":");
    number(out, from);
    out.extend_from_slice(b",\"to\":");
    number(out, to);
    out.push(b'}');
}

/// `,"event":"gap","channel":…}`: messages of this channel were lost before they reached the mailbox.
pub fn channel_gap_tail(out: &mut Vec<u8>, channel: &str) {
    out.extend_from_slice(b",\"event\":\"gap\",\"channel\":");
    string(out, channel);
    out.push(b'}');
}

/// `,"event":"gap","pattern":…}`: messages of channels that match this pattern were lost.
pub fn pattern_gap_tail(out: &mut Vec<u8>, pattern: &str) {
    out.extend_from_slice(b",\"event\":\"gap\",\"pattern\":");
    string(out, pattern);
    out.push(b'}');
}

/// `,"event":"revoked","verb":…,"channel":…}`: a fresh token does not allow this any more, and it has ended.
pub fn revoked_tail(out: &mut Vec<u8>, verb: &str, place: &str, name: &str) {
    out.extend_from_slice(b",\"event\":\"revoked\",\"verb\":");
    string(out, verb);
    out.push(b',');
    string(out, place);
    out.push(b':');
    string(out, name);
    out.push(b'}');
}

/// The app has subscribed the session to a channel.
pub fn subscribed_tail(channel: &str) -> Vec<u8> {
    channel_tail(b",\"event\":\"subscribed\",\"channel\":", channel)
}

/// The app has ended the session's subscription to a channel.
pub fn unsubscribed_tail(channel: &str) -> Vec<u8> {
    channel_tail(b",\"event\":\"unsubscribed\",\"channel\":", channel)
}

fn channel_tail(front: &[u8], channel: &str) -> Vec<u8> {
    let mut out = front.to_vec();
    string(&mut out, channel);
    out.push(b'}');
    out
}

/// For a transport that a newer one has replaced. It has no `seq`: it concerns the transport, not the mailbox.
pub fn superseded(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"event\":\"superseded\"}");
}

/// Sent before the server stops. It has no `seq` either.
pub fn closing(out: &mut Vec<u8>, reconnect_after_ms: u64) {
    out.extend_from_slice(b"{\"event\":\"closing\",\"reconnect_after_ms\":");
    number(out, reconnect_after_ms);
    out.push(b'}');
}

/// A JSON string. Text without escapes is copied at once.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut clean = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[clean..at]);
        clean = at + 1;
        escape(out, byte);
    }
    out.extend_from_slice(&bytes[clean..]);
    out.push(b'"');
}

#[cold]
fn escape(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn base64(out: &mut Vec<u8>, bytes: &[u8]) {
    /// A multiple of three: only the last piece is padded.
    const PIECE: usize = 3 * 256;
    let mut encoded = [0u8; PIECE / 3 * 4];
    out.push(b'"');
    for piece in bytes.chunks(PIECE) {
        let len = STANDARD.encode_slice(piece, &mut encoded).expect("four bytes for every three");
        out.extend_from_slice(&encoded[..len]);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use proptest::prelude::*;
    use serde_json::Value;

    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = b"before".to_vec();
        write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("before{expected}"));
    }

    fn message(payload: Payload<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        seq_head(&mut out, 1);
        message_tail(&mut out, "c", payload, None, None);
        out
    }

    #[test]
    fn replies_carry_the_id_unchanged() {
        check(|out| reply_ok(out, Some("7"), b"{\"receivers\":2}"), r#"{"id":7,"ok":{"receivers":2}}"#);
        check(|out| reply_ok(out, Some("\"a\\u0041\""), b"{}"), r#"{"id":"a\u0041","ok":{}}"#);
        check(|out| reply_ok(out, None, b"{}"), r#"{"ok":{}}"#);
        let refusal = Refusal::new(Code::NotAllowed, "no \"right\"\n");
        let expected = r#""error":{"code":"not_allowed","message":"no \"right\"\n"}}"#;
        check(|out| reply_error(out, Some("7"), &refusal), &format!("{{\"id\":7,{expected}"));
        check(|out| reply_error(out, None, &refusal), &format!("{{{expected}"));
        check(
            |out| reply_error(out, None, &Refusal::new(Code::Busy, "").retry_after(40)),
            r#"{"error":{"code":"busy","message":"","retry_after_ms":40}}"#,
        );
    }

    #[test]
    fn a_message_is_head_and_tail() {
        let both = MessageSender { user: Some("ann"), client: Some("c1") };
        check(
            |out| {
                seq_head(out, 18);
                message_tail(out, "game#A", Payload::Json(b"{ \"a\":1}"), Some(both), None);
            },
            r#"{"seq":18,"event":"message","channel":"game#A","data":{ "a":1},"from":{"user":"ann","client":"c1"}}"#,
        );
    }

    #[test]
    fn unknown_parts_of_the_sender_are_omitted() {
        for (from, expected) in [
            (None, r#""data":1}"#),
            (Some(MessageSender::default()), r#""data":1,"from":{}}"#),
            (Some(MessageSender { user: Some("a"), client: None }), r#""data":1,"from":{"user":"a"}}"#),
            (Some(MessageSender { user: None, client: Some("b") }), r#""data":1,"from":{"client":"b"}}"#),
        ] {
            let expected = format!(r#","event":"message","channel":"c",{expected}"#);
            check(|out| message_tail(out, "c", Payload::Json(b"1"), from, None), &expected);
        }
    }

    #[test]
    fn other_events_have_their_fields_at_top_level() {
        check(|out| gap_tail(out, 3, u64::MAX), r#","event":"gap","from":3,"to":18446744073709551615}"#);
        check(|out| channel_gap_tail(out, "a\"b"), r#","event":"gap","channel":"a\"b"}"#);
        check(|out| pattern_gap_tail(out, "a*"), r#","event":"gap","pattern":"a*"}"#);
        check(superseded, r#"{"event":"superseded"}"#);
        check(|out| closing(out, 0), r#"{"event":"closing","reconnect_after_ms":0}"#);
    }

    #[test]
    fn redis_payloads_become_json_text_or_base64() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for (payload, data) in [
            (&b"{\"a\": 1}"[..], r#""data":{"a": 1}}"#.to_string()),
            (b"12", r#""data":12}"#.into()),
            (b"[1,\n2]", "\"data\":[1,\n2]}".into()),
            (b"", r#""data":""}"#.into()),
            (b"hello", r#""data":"hello"}"#.into()),
            (b"a\nb", r#""data":"a\nb"}"#.into()),
            (b"{", r#""data":"{"}"#.into()),
            (b"\x00", r#""data":"\u0000"}"#.into()),
            (b"\xff", r#""data":"/w==","encoding":"base64"}"#.into()),
            (b"\"\xff\"", r#""data":"Iv8i","encoding":"base64"}"#.into()),
            (deep(64).as_bytes(), format!(r#""data":{}}}"#, deep(64))),
            (deep(65).as_bytes(), format!(r#""data":"{}"}}"#, deep(65))),
        ] {
            let out = String::from_utf8(message(Payload::Bytes(payload))).unwrap();
            assert!(out.ends_with(&data), "{out}");
        }
    }

    #[test]
    fn the_encoding_is_between_data_and_from() {
        let from = Some(MessageSender { user: Some("a"), client: None });
        let expected =
            r#","event":"message","channel":"c","data":"/w==","encoding":"base64","from":{"user":"a"}}"#;
        check(|out| message_tail(out, "c", Payload::Bytes(b"\xff"), from, None), expected);
    }

    proptest! {
        #[test]
        fn strings_are_read_back_as_they_were_written(text in any::<String>()) {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert!(out.iter().all(|byte| *byte >= 0x20));
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn any_bytes_make_a_valid_frame_and_are_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let frame: Value = serde_json::from_slice(&message(Payload::Bytes(&bytes))).unwrap();
            if let Ok(value) = serde_json::from_slice::<Value>(&bytes) {
                prop_assert_eq!(&frame["data"], &value);
            } else if frame.get("encoding").is_some() {
                prop_assert_eq!(STANDARD.decode(frame["data"].as_str().unwrap()).unwrap(), bytes);
            } else {
                prop_assert_eq!(frame["data"].as_str().unwrap().as_bytes(), &bytes[..]);
            }
        }
    }
}
