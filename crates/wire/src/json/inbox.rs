//! Messages of a user's inbox, as they are stored and as sessions get them. A message is stored as one JSON object that begins
//! with its event, so that an operator can read it; its number is added when it is sent.

use super::encode::string;

/// A message from an app, as it is stored.
pub fn body(data: &str) -> Vec<u8> {
    let mut out = b"{\"event\":\"inbox\",\"data\":".to_vec();
    out.extend_from_slice(data.as_bytes());
    out.push(b'}');
    out
}

/// The reply to the app that sent the message.
pub fn posted(message_id: u64) -> Vec<u8> {
    format!("{{\"message_id\":{message_id}}}").into_bytes()
}

/// The reply to a request that repeats the idempotency key of an earlier one.
pub fn posted_before() -> Vec<u8> {
    b"{\"message_id\":null,\"duplicate\":true}".to_vec()
}

/// The event after `{"seq":N`: the stored message with its number after the name of its event.
pub fn tail(message_id: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 32);
    let begin = body.strip_prefix(b"{").unwrap_or(body);
    // The name of the event has no quotes in it, so its member ends at the fourth quote.
    let quotes = begin.iter().enumerate().filter(|(_, byte)| **byte == b'"');
    let end = quotes.map(|(at, _)| at + 1).nth(3).unwrap_or(begin.len());
    out.push(b',');
    out.extend_from_slice(&begin[..end]);
    out.extend_from_slice(format!(",\"message_id\":{message_id}").as_bytes());
    out.extend_from_slice(&begin[end..]);
    out
}

/// Messages up to this one were dropped before they were read.
pub fn gap_tail(channel: &str, message_id: u64) -> Vec<u8> {
    let mut out = b",\"event\":\"gap\",\"channel\":".to_vec();
    string(&mut out, channel);
    out.extend_from_slice(format!(",\"message_id\":{message_id}}}").as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_message_carries_its_number() {
        let event = tail(7, &body(r#"{"a":"b"}"#));
        assert_eq!(String::from_utf8(event).unwrap(), r#","event":"inbox","message_id":7,"data":{"a":"b"}}"#);
        let party = tail(8, br#"{"event":"party","cmd":"invite"}"#);
        assert_eq!(String::from_utf8(party).unwrap(), r#","event":"party","message_id":8,"cmd":"invite"}"#);
    }

    #[test]
    fn dropped_inbox_messages_are_reported() {
        let event = String::from_utf8(gap_tail("user#a\"b", 3)).unwrap();
        assert_eq!(event, r#","event":"gap","channel":"user#a\"b","message_id":3}"#);
    }
}
