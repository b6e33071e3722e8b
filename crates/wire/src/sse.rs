//! Server-sent events: how a JSON frame becomes lines of an event stream. Knows nothing of HTTP.
//! Must hold: one frame is one `data` line, so a reader never joins lines back together.

use memchr::memchr2;

/// What a browser is told to wait before it connects again: below the time in which a loss is told to nobody.
pub const RETRY_MS: u64 = 1_000;

/// Appends one event. A line break can stand between tokens of the JSON only, where a space means the same.
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

/// Appends a comment: keeps proxies and the peer's clock content, and is no event.
pub fn comment(out: &mut Vec<u8>) {
    out.extend_from_slice(b": \n\n");
}

/// Appends the time after which a browser connects again.
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
