//! Scans JSON text without building values: what some parser would not accept, its validity, the id of an invalid frame.
//! Must hold: it never recurses, and reads each byte a bounded number of times.

use super::request::ID_BYTES;
use memchr::memchr2;
use serde::de::IgnoredAny;
use tavern_domain::limits::JSON_DEPTH;

/// Why JSON that may be well formed is refused: some parser of a client would not accept it, or read it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unportable {
    #[error("JSON is nested deeper than {JSON_DEPTH} levels")]
    Depth,
    #[error("a string contains an unpaired surrogate")]
    Surrogate,
    #[error("a number is too large; the maximum is 1.8e308")]
    Number,
}

/// Whether every parser can read this JSON: nesting within the limit, whole surrogate pairs, finite numbers. Does not
/// check validity otherwise.
pub fn check_portable(json: &[u8]) -> Result<(), Unportable> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => match skip_string(json, at)? {
                Some(end) => at = end,
                None => return Ok(()),
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > JSON_DEPTH {
                    return Err(Unportable::Depth);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'0'..=b'9' => at = skip_number(json, at - 1)?,
            _ => {}
        }
    }
    Ok(())
}

/// The position after the closing quote of a string whose content begins at `at`. None: it is never closed.
fn skip_string(json: &[u8], mut at: usize) -> Result<Option<usize>, Unportable> {
    while let Some(found) = json.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if json[at] == b'"' {
            return Ok(Some(at + 1));
        }
        at = match escaped_unit(json, at) {
            Some(0xd800..=0xdbff) if matches!(escaped_unit(json, at + 6), Some(0xdc00..=0xdfff)) => at + 12,
            Some(0xd800..=0xdfff) => return Err(Unportable::Surrogate),
            _ => at + 2,
        };
    }
    Ok(None)
}

/// The UTF-16 unit of the escape `\uXXXX` at `at`, if there is one.
fn escaped_unit(json: &[u8], at: usize) -> Option<u16> {
    let hex = json.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// A number with fewer bytes than this and no exponent is finite: the largest double has 309 digits.
const FINITE_BYTES: usize = 300;

/// The position after the number that begins at `start`.
fn skip_number(json: &[u8], start: usize) -> Result<usize, Unportable> {
    let rest = &json[start..];
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let len = rest.iter().position(|byte| !is_number(byte)).unwrap_or(rest.len());
    let number = &rest[..len];
    let plain = len < FINITE_BYTES && !number.iter().any(|byte| matches!(byte, b'e' | b'E'));
    let is_finite = || {
        let value = std::str::from_utf8(number).ok().and_then(|text| text.parse::<f64>().ok());
        // What is no number at all is refused by the parser.
        value.is_none_or(f64::is_finite)
    };
    if plain || is_finite() { Ok(start + len) } else { Err(Unportable::Number) }
}

/// Whether it is one valid JSON value that every parser can read, in UTF-8; surrounding space is allowed.
pub fn is_json(bytes: &[u8]) -> bool {
    check_portable(bytes).is_ok()
        && std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// The id of a frame that is invalid, or of which only the beginning is there. It skips what it cannot parse.
pub fn find_id(frame: &[u8]) -> Option<&str> {
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
            assert_eq!(check_portable(nested(depth).as_bytes()).is_ok(), ok, "{depth}");
            assert_eq!(is_json(nested(depth).as_bytes()), ok, "{depth}");
        }
        let siblings = format!("[{}]", ["[]"; 1000].join(","));
        assert_eq!(check_portable(siblings.as_bytes()), Ok(()), "siblings do not add up");
    }

    #[test]
    fn brackets_inside_strings_do_not_nest() {
        let check = |text: &str, expected| assert_eq!(check_portable(text.as_bytes()), expected, "{text}");
        check(&format!(r#"{{"a":"\"{}","b":"\\"}}"#, "[".repeat(500)), Ok(()));
        check(&format!(r#"["\\",{}"#, nested(64)), Err(Unportable::Depth));
        check(&format!("\"{}", "[".repeat(500)), Ok(()));
    }

    #[test]
    fn half_surrogate_pairs_and_infinite_numbers_are_found_at_any_depth() {
        let check = |text: &str, expected| {
            assert_eq!(check_portable(text.as_bytes()), expected, "{text}");
            assert_eq!(is_json(text.as_bytes()), expected.is_ok(), "{text}");
        };
        for good in
            [r#""\ud83d\ude00""#, r#"["\\ud800"]"#, "1e308", "-1.7976931348623157e308", "1e-999", "0.0e0"]
        {
            check(good, Ok(()));
        }
        for half in [
            r#""\ud800""#,
            r#"{"a":["\udc00"]}"#,
            r#""\ud83dx\ude00""#,
            r#""\ude00\ud83d""#,
            r#""\uD83D\u0041""#,
        ] {
            check(half, Err(Unportable::Surrogate));
        }
        for infinite in ["1e999", "-1e999", "[1E+400]", r#"{"a":{"b":1e309}}"#, &"9".repeat(400)] {
            check(infinite, Err(Unportable::Number));
        }
        check(&"9".repeat(305), Ok(()));
    }

    #[test]
    fn only_complete_values_are_json() {
        for good in ["0", "-1.5e9", "null", "\"\"", " {} ", "[1,\n2]", "\"\\u00e4\""] {
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
