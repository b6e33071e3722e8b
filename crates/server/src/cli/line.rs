//! A message of a folder as one JSON line, with the same members as a message of a server. Payloads that are not UTF-8
//! are written in base64. Must hold: a line has no line break inside; readers can tell base64 from text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tavern_local::{Message, Publication};
use tavern_wire::json::{is_json, string};

/// `{"event":"message","pattern":…,"channel":…,"data":…}` or `{"event":"gap","lost":…}`.
pub fn line_of(message: &Message) -> String {
    let (pattern, publication) = match message {
        Message::Channel(publication) => (None, publication),
        Message::Pattern { pattern, publication } => (Some(&**pattern), publication),
        Message::Gap { lost } => return format!(r#"{{"event":"gap","lost":{lost}}}"#),
    };
    one_line(&String::from_utf8_lossy(&object(pattern, publication)))
}

/// A raw newline in JSON is always between tokens, so a space is equivalent.
pub fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn object(pattern: Option<&[u8]>, publication: &Publication) -> Vec<u8> {
    let mut out = br#"{"event":"message""#.to_vec();
    if let Some(pattern) = pattern {
        name(&mut out, "pattern", pattern);
    }
    name(&mut out, "channel", publication.channel());
    out.extend_from_slice(br#","data":"#);
    let payload = publication.payload();
    match std::str::from_utf8(payload) {
        Ok(json) if is_json(payload) => out.extend_from_slice(json.as_bytes()),
        Ok(text) => string(&mut out, text),
        Err(_) => {
            string(&mut out, &STANDARD.encode(payload));
            out.extend_from_slice(br#","encoding":"base64""#);
        }
    }
    out.push(b'}');
    out
}

fn name(out: &mut Vec<u8>, member: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            out.extend_from_slice(format!(r#","{member}":"#).as_bytes());
            string(out, text);
        }
        Err(_) => {
            out.extend_from_slice(format!(r#","{member}_base64":"#).as_bytes());
            string(out, &STANDARD.encode(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_wire::json::{Payload, message_tail};

    /// The line that a subscriber of a new folder prints for this message.
    fn printed(channel: &[u8], payload: &[u8], pattern: Option<&[u8]>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let local = tavern_local::open(folder.path()).unwrap();
        match pattern {
            Some(pattern) => local.psubscribe([pattern]).unwrap(),
            None => local.subscribe([channel]).unwrap(),
        };
        assert_eq!(local.publish(channel, payload).unwrap(), 1);
        line_of(&local.poll().unwrap().expect("it was published"))
    }

    #[test]
    fn line_has_the_members_of_a_server_event() {
        for payload in [
            &b"{\"a\": 1.50}"[..],
            b"hello",
            b"",
            b"\"quoted\"",
            b"line\nbreak",
            b"\xff\x00",
            b"[[1]",
            b"null",
        ] {
            let mut server = b"{".to_vec();
            message_tail(&mut server, "game#1", Payload::Bytes(payload), None, None);
            server.remove(1);
            assert_eq!(printed(b"game#1", payload, None), String::from_utf8(server).unwrap());
        }
    }

    #[test]
    fn names_that_are_not_utf8_are_base64() {
        let line = printed(b"game#1", b"7", Some(b"game#*"));
        assert_eq!(line, r#"{"event":"message","pattern":"game#*","channel":"game#1","data":7}"#);
        let line = printed(b"\xff", b"x", None);
        assert_eq!(line, r#"{"event":"message","channel_base64":"/w==","data":"x"}"#);
        let line = printed(b"\xff\n", b"x", Some(b"\xff*"));
        assert!(line.contains(r#""pattern_base64":"/yo=","channel_base64":"/wo=""#), "{line}");
        assert_eq!(line_of(&Message::Gap { lost: 3 }), r#"{"event":"gap","lost":3}"#);
    }

    #[test]
    fn message_is_one_line() {
        assert_eq!(one_line("{\"data\":{\n \"a\": \"x\\ny\"\r\n}}"), "{\"data\":{  \"a\": \"x\\ny\"  }}");
        assert_eq!(printed(b"a\nb", b"[1,\n2]", None).lines().count(), 1);
    }
}
