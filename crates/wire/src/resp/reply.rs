//! Parses one reply, RESP2 or RESP3, for clients and tests. It starts over when more bytes arrive, so it is not for the server's
//! input. Strings are ranges of the input, not copies.
//! Must hold: nesting is bounded; no announced length is allocated in advance.

use super::RespError;
use super::parse::integer;
use memchr::memchr;
use std::ops::Range;

/// More than any reply of Redis has.
pub const REPLY_DEPTH: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RespValue {
    Simple(Range<usize>),
    Error(Range<usize>),
    Int(i64),
    /// A string; of a verbatim string the text after its format.
    Bulk(Range<usize>),
    /// `_`, and the null string and null array of RESP2.
    Null,
    /// Arrays, sets and pushes; maps as alternating keys and values.
    List(Vec<RespValue>),
    /// Booleans, doubles and big numbers, as they are written.
    Scalar(Range<usize>),
}

/// Parses the value at the start of `buf`, and returns how many bytes it has. `None`: more bytes are needed.
pub fn read_value(buf: &[u8]) -> Result<Option<(RespValue, usize)>, RespError> {
    let mut input = ReplyInput { buf, at: 0 };
    Ok(input.value(REPLY_DEPTH)?.map(|value| (value, input.at)))
}

struct ReplyInput<'a> {
    buf: &'a [u8],
    at: usize,
}

impl ReplyInput<'_> {
    fn value(&mut self, depth: usize) -> Result<Option<RespValue>, RespError> {
        if depth == 0 {
            return Err(RespError::Reply("the reply nests too deep"));
        }
        let Some(line) = self.line()? else { return Ok(None) };
        let Some((mark, rest)) = self.buf[line.clone()].split_first() else {
            return Err(RespError::Reply("an empty line is not a reply"));
        };
        let text = line.start + 1..line.end;
        Ok(Some(match mark {
            b'+' => RespValue::Simple(text),
            b'-' => RespValue::Error(text),
            b':' => RespValue::Int(integer(rest).ok_or(RespError::Reply("invalid integer"))?),
            b'(' | b',' | b'#' => RespValue::Scalar(text),
            b'_' if rest.is_empty() => RespValue::Null,
            b'$' | b'*' if rest == b"-1" => RespValue::Null,
            b'$' | b'!' | b'=' => return self.string(*mark, length(rest)?),
            b'*' | b'~' | b'>' => return self.list(length(rest)?, depth),
            b'%' => return self.list(length(rest)?.saturating_mul(2), depth),
            // Attributes annotate the next value; no caller uses them.
            b'|' => {
                let Some(_) = self.list(length(rest)?.saturating_mul(2), depth)? else { return Ok(None) };
                return self.value(depth - 1);
            }
            _ => return Err(RespError::Reply("unknown reply type")),
        }))
    }

    fn string(&mut self, mark: u8, len: usize) -> Result<Option<RespValue>, RespError> {
        let rest = &self.buf[self.at..];
        if rest.len() < len.saturating_add(2) {
            return Ok(None);
        }
        if !rest[len..].starts_with(b"\r\n") {
            return Err(RespError::Reply("a string does not end where it should"));
        }
        let text = self.at..self.at + len;
        self.at += len + 2;
        Ok(Some(match mark {
            b'$' => RespValue::Bulk(text),
            b'!' => RespValue::Error(text),
            _ if rest[..len].get(3) == Some(&b':') => RespValue::Bulk(text.start + 4..text.end),
            _ => return Err(RespError::Reply("a verbatim string without a format")),
        }))
    }

    fn list(&mut self, len: usize, depth: usize) -> Result<Option<RespValue>, RespError> {
        let mut items = Vec::new();
        for _ in 0..len {
            match self.value(depth - 1)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(RespValue::List(items)))
    }

    /// The next line, without its line break.
    fn line(&mut self) -> Result<Option<Range<usize>>, RespError> {
        let Some(found) = memchr(b'\r', &self.buf[self.at..]) else { return Ok(None) };
        let line = self.at..self.at + found;
        match self.buf.get(line.end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                self.at = line.end + 2;
                Ok(Some(line))
            }
            Some(_) => Err(RespError::Reply("a CR without an LF")),
        }
    }
}

fn length(digits: &[u8]) -> Result<usize, RespError> {
    integer(digits).and_then(|len| usize::try_from(len).ok()).ok_or(RespError::Reply("invalid length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: RespValue) {
        assert_eq!(read_value(input.as_bytes()), Ok(Some((expected, input.len()))), "{input:?}");
        for len in 0..input.len() {
            assert_eq!(read_value(&input.as_bytes()[..len]), Ok(None), "{:?}", &input[..len]);
        }
    }

    #[test]
    fn every_type_is_parsed() {
        check("+OK\r\n", RespValue::Simple(1..3));
        check("-ERR no\r\n", RespValue::Error(1..7));
        check("!6\r\nERR no\r\n", RespValue::Error(4..10));
        check(":-7\r\n", RespValue::Int(-7));
        check("$3\r\na\r\n\r\n", RespValue::Bulk(4..7));
        check("$-1\r\n", RespValue::Null);
        check("*-1\r\n", RespValue::Null);
        check("_\r\n", RespValue::Null);
        check(
            "*2\r\n$1\r\na\r\n*0\r\n",
            RespValue::List(vec![RespValue::Bulk(8..9), RespValue::List(vec![])]),
        );
        check("~1\r\n:1\r\n", RespValue::List(vec![RespValue::Int(1)]));
        check(">1\r\n+x\r\n", RespValue::List(vec![RespValue::Simple(5..6)]));
        check("%1\r\n+a\r\n:1\r\n", RespValue::List(vec![RespValue::Simple(5..6), RespValue::Int(1)]));
        check("#t\r\n", RespValue::Scalar(1..2));
        check(",-inf\r\n", RespValue::Scalar(1..5));
        check("(123456789012345678901\r\n", RespValue::Scalar(1..22));
        check("=6\r\ntxt:hi\r\n", RespValue::Bulk(8..10));
        check("|1\r\n+ttl\r\n:1\r\n+OK\r\n", RespValue::Simple(15..17));
    }

    #[test]
    fn invalid_replies_are_refused() {
        for input in [
            "\r\n",
            "hello\r\n",
            "+OK\rx",
            ":x\r\n",
            ":\r\n",
            "$x\r\n",
            "$-2\r\n",
            "*-2\r\n",
            "%-1\r\n",
            "~-1\r\n",
            "$1\r\nabc",
            "=2\r\nhi\r\n",
            "=3\r\ntxt\r\n",
            "=4\r\ntxt-\r\n",
            "_x\r\n",
            "$?\r\n",
            "*?\r\n",
            "!-1\r\n",
            "HTTP/1.1\r\n",
        ] {
            assert!(matches!(read_value(input.as_bytes()), Err(RespError::Reply(_))), "{input:?}");
        }
    }

    #[test]
    fn depth_and_announced_lengths_are_bounded() {
        assert!(read_value("*1\r\n".repeat(100_000).as_bytes()).is_err());
        assert!(read_value("|0\r\n".repeat(100_000).as_bytes()).is_err());
        assert_eq!(read_value(b"*9223372036854775807\r\n"), Ok(None));
        assert_eq!(read_value(b"%9223372036854775807\r\n"), Ok(None));
        assert_eq!(read_value(b"$9223372036854775807\r\n"), Ok(None));
    }
}
