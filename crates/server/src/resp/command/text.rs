//! Texts that many commands share: numbers as Redis reads them, errors that quote what was sent, and how
//! HTTP on the wrong port is recognised.

use crate::resp::Args;
use std::sync::Once;

/// How much of an unknown command is quoted.
const QUOTED_BYTES: usize = 128;

pub const SYNTAX: &str = "ERR syntax error";
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// An error whose text may hold any bytes. Line breaks become spaces.
pub fn error(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'-');
    out.extend(text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// A number without spaces, plus sign or leading zeros.
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let value: i64 = text.parse().ok()?;
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = digits == "0" && value == 0 && text == "0" || digits.starts_with(|c| matches!(c, '1'..='9'));
    plain.then_some(value)
}

pub fn unknown_command(args: &Args<'_>) -> Vec<u8> {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(quoted(args.at(0), QUOTED_BYTES));
    text.extend_from_slice(b"', with args beginning with: ");
    let begin = text.len();
    for arg in args.iter().skip(1) {
        let used = text.len() - begin;
        if used >= QUOTED_BYTES {
            break;
        }
        text.push(b'\'');
        text.extend_from_slice(quoted(arg, QUOTED_BYTES - used));
        text.extend_from_slice(b"' ");
    }
    text
}

/// Common Redis commands that do not exist here. A subscribed connection gets the error message of Redis for them,
/// which clients check for.
const ELSEWHERE: [&str; 16] = [
    "get", "set", "del", "incr", "exists", "expire", "keys", "scan", "hget", "hset", "lpush", "rpush",
    "sadd", "zadd", "eval", "watch",
];

pub fn known_elsewhere(name: &[u8]) -> Option<&'static str> {
    ELSEWHERE.into_iter().find(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

pub fn unknown_subcommand(parent: &str, given: &[u8]) -> Vec<u8> {
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend_from_slice(quoted(given, QUOTED_BYTES));
    text.extend_from_slice(format!("'. Try {} HELP.", parent.to_uppercase()).as_bytes());
    text
}

/// For commands that read their subcommands themselves.
pub fn wrong_subcommand(parent: &str, given: &[u8]) -> Vec<u8> {
    let mut text = b"ERR unknown subcommand or wrong number of arguments for '".to_vec();
    text.extend_from_slice(quoted(given, QUOTED_BYTES));
    text.extend_from_slice(format!("'. Try {} HELP.", parent.to_uppercase()).as_bytes());
    text
}

/// Redis quotes up to the first zero byte.
pub fn quoted(bytes: &[u8], max: usize) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end.min(max)]
}

/// Whether text may be a client name: no spaces, nothing that would break a line of `CLIENT LIST`.
pub fn is_label(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'!'..=b'~'))
}

/// The first or second line of an HTTP request. A web page must not be able to run commands here.
pub fn is_http(args: &Args<'_>) -> bool {
    let first = args.at(0);
    first.eq_ignore_ascii_case(b"post")
        || first.eq_ignore_ascii_case(b"host:")
        || args.len() == 3 && args.at(2).starts_with(b"HTTP/1.")
}

/// For people who took this port for the one of HTTP.
pub const HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    this port speaks the Redis protocol; HTTP and WebSocket are at the address of `listen` (7400 unless configured)\n";

pub fn warn_of_http() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::warn!("refused an HTTP request on the Redis port (logged once)");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &str) {
        let args: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        assert_eq!(String::from_utf8(unknown_command(&Args::Owned(&args))).unwrap(), expected);
    }

    #[test]
    fn unknown_commands_are_quoted_as_redis_does() {
        check("FOO", "ERR unknown command 'FOO', with args beginning with: ");
        check("foo a b", "ERR unknown command 'foo', with args beginning with: 'a' 'b' ");
        let long = "x".repeat(200);
        let shown = &long[..128];
        check(
            &format!("FOO {long} y"),
            &format!("ERR unknown command 'FOO', with args beginning with: '{shown}' "),
        );
        check(&long, &format!("ERR unknown command '{shown}', with args beginning with: "));
        let ten = "'abcdefghij' ".repeat(10);
        let line = format!("FOO {}", ["abcdefghij"; 30].join(" "));
        check(&line, &format!("ERR unknown command 'FOO', with args beginning with: {ten}"));
        check("a\0b c\0d", "ERR unknown command 'a', with args beginning with: 'c' ");
    }

    #[test]
    fn numbers_are_plain() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("15", Some(15)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("+1", None),
            ("01", None),
            ("-0", None),
            (" 1", None),
            ("x", None),
        ] {
            assert_eq!(integer(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn http_is_recognised() {
        for (line, expected) in [
            ("POST / HTTP/1.1", true),
            ("GET /x HTTP/1.0", true),
            ("host: example", true),
            ("GET key", false),
            ("PUBLISH a b", false),
        ] {
            let args: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            assert_eq!(is_http(&Args::Owned(&args)), expected, "{line}");
        }
    }
}
