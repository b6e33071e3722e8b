//! Server-sent events: a JSON frame as lines of an event stream.
//! Must hold: one frame is one `data` line, so a reader never has to join lines.

use memchr::memchr2;

/// How long a browser waits before it reconnects: shorter than the resume window.
pub const RETRY_MS: u64 = 1_000;

/// Appends one event. Line breaks are only between JSON tokens, where a space is equivalent.
pub fn event(out: &mut Vec<u8>, id: Option<u64>, json: &[u8]) {
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(itoa::Buffer::new().format(id).as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    let mut rest = json;
    while let Some(at) = memchr2(b'\n', b'\r', rest) {
        out.extend_from_slice(&rest[..at]);
        out.push(b' ');
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(b"\n\n");
}

/// Appends a comment, which keeps the connection alive through proxies and is not an event.
pub fn comment(out: &mut Vec<u8>) {
    out.extend_from_slice(b": \n\n");
}

/// Appends the time after which a browser reconnects.
pub fn retry(out: &mut Vec<u8>, ms: u64) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(itoa::Buffer::new().format(ms).as_bytes());
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: Option<u64>, json: &str, expected: &str) {
        let mut out = Vec::new();
        event(&mut out, id, json.as_bytes());
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn an_event_is_an_id_line_and_a_data_line() {
        check(Some(18), r#"{"seq":18}"#, "id: 18\ndata: {\"seq\":18}\n\n");
        check(None, "{}", "data: {}\n\n");
    }

    #[test]
    fn raw_line_breaks_become_spaces() {
        check(None, "{\r\n\"a\":\n1\r}\n", "data: {  \"a\": 1 } \n\n");
    }

    #[test]
    fn comment_and_retry_are_whole_blocks() {
        let mut out = Vec::new();
        comment(&mut out);
        retry(&mut out, RETRY_MS);
        assert_eq!(out, b": \n\nretry: 1000\n\n");
    }
}
