//! Scans JSON text without building values: its depth, its validity, the id of an invalid frame.
//! Must hold: it never recurses, and reads each byte a bounded number of times.

use super::request::ID_BYTES;
use memchr::memchr2;
use serde::de::IgnoredAny;
use tavern_domain::limits::JSON_DEPTH;

/// Whether arrays and objects nest within the limit. Does not check validity otherwise.
pub fn depth_ok(json: &[u8]) -> bool {
    if json.len() <= JSON_DEPTH {
        return true;
    }
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        match byte {
            b'"' => match string_end(json, at) {
                Some(end) => {
                    at = end;
                    continue;
                }
                None => return true,
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > JSON_DEPTH {
                    return false;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    true
}

/// Whether it is one valid JSON value, in UTF-8, within the nesting limit; surrounding space is allowed.
pub fn is_json(bytes: &[u8]) -> bool {
    depth_ok(bytes)
        && std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// The id of an invalid frame. It skips what it cannot parse.
pub(super) fn find_id(frame: &[u8]) -> Option<&str> {
    let mut at = skip_space(frame, 0);
    if frame.get(at) != Some(&b'{') {
        return None;
    }
    loop {
        at = skip_space(frame, at + 1);
        if frame.get(at) != Some(&b'"') {
            return None;
        }
        let key_end = string_end(frame, at)?;
        let key = &frame[at..key_end];
        at = skip_space(frame, key_end);
        if frame.get(at) != Some(&b':') {
            return None;
        }
        at = skip_space(frame, at + 1);
        let end = value_end(frame, at);
        if key == b"\"id\"" {
            return std::str::from_utf8(&frame[at..end])
                .ok()
                .filter(|token| is_id(token) && is_json(token.as_bytes()));
        }
        at = skip_space(frame, end);
        if frame.get(at) != Some(&b',') {
            return None;
        }
    }
}

/// Whether a JSON token may be an id.
pub(super) fn is_id(token: &str) -> bool {
    token.len() <= ID_BYTES && matches!(token.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

pub(super) fn skip_space(json: &[u8], mut at: usize) -> usize {
    while matches!(json.get(at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
        at += 1;
    }
    at
}

/// The position after the closing quote of the string that opens at `open`.
fn string_end(json: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    while let Some(found) = memchr2(b'"', b'\\', json.get(at..)?) {
        at += found;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
    None
}

/// The position after a value: after the closing quote or bracket, or at the next delimiter.
fn value_end(json: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while let Some(&byte) = json.get(at) {
        match byte {
            b'"' => match string_end(json, at) {
                Some(end) if depth == 0 => return end,
                Some(end) => {
                    at = end;
                    continue;
                }
                None => return json.len(),
            },
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' | b' ' | b'\t' | b'\r' | b'\n' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn sixty_four_levels_are_allowed_and_no_more() {
        for (depth, ok) in [(1, true), (63, true), (64, true), (65, false), (100_000, false)] {
            assert_eq!(depth_ok(nested(depth).as_bytes()), ok, "{depth}");
            assert_eq!(is_json(nested(depth).as_bytes()), ok, "{depth}");
        }
        assert!(depth_ok(format!("[{}]", ["[]"; 1000].join(",")).as_bytes()), "siblings do not add up");
    }

    #[test]
    fn brackets_inside_strings_do_not_nest() {
        let text = format!(r#"{{"a":"\"{}","b":"\\"}}"#, "[".repeat(500));
        assert!(depth_ok(text.as_bytes()));
        assert!(
            !depth_ok(format!(r#"["\\",{}"#, nested(64)).as_bytes()),
            "a string that ends in a backslash ends"
        );
        assert!(depth_ok(format!("\"{}", "[".repeat(500)).as_bytes()), "an open string swallows the rest");
    }

    #[test]
    fn only_complete_values_are_json() {
        for good in ["0", "-1.5e9", "null", "\"\"", " {} ", "[1,\n2]", "\"\\ud800\"", "1e999"] {
            assert!(is_json(good.as_bytes()), "{good}");
        }
        for bad in
            ["", " ", "01", "+1", "nul", "'a'", "{", "{}{}", "[1,]", "NaN", "\"\n\"", "\"\\x\"", "\u{feff}{}"]
        {
            assert!(!is_json(bad.as_bytes()), "{bad}");
        }
        assert!(!is_json(b"\"\xff\""));
    }

    #[test]
    fn the_id_of_an_invalid_frame_is_found_where_possible() {
        let check =
            |frame: &str, expected: Option<&str>| assert_eq!(find_id(frame.as_bytes()), expected, "{frame}");
        check(r#"{"id":7,"op":"#, Some("7"));
        check(r#" { "op" : bogus , "id" : "a\"b" , ] "#, Some(r#""a\"b""#));
        check(r#"{"data":[[[{"id":1}]],"id":2}"#, None);
        check(r#"{"data":[[{"id":1}]],"id":2"#, Some("2"));
        check(r#"{"a":"x,\"id\":3","id":4"#, Some("4"));
        check(r#"{"id":null,"#, None);
        check(r#"{"id":{"a":1},"#, None);
        check(r#"{"id":0x7,"#, None);
        check(r#"{"id"7"#, None);
        check(r#"["id",7]"#, None);
        check(r#"{id:7}"#, None);
        check("", None);
        check(&format!(r#"{{"id":"{}""#, "x".repeat(63)), None);
        check(&format!(r#"{{"id":"{}""#, "x".repeat(62)), Some(&format!("\"{}\"", "x".repeat(62))));
        assert_eq!(find_id(b"{\"id\":\"\xff\","), None);
        assert_eq!(find_id(b"{\"a\":\"\xff\",\"id\":5"), Some("5"));
    }
}
