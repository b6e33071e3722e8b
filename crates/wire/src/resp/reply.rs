//! Reads one reply, RESP2 or RESP3: the client's side. Starts over when more bytes come, so it is for clients and
//! tests, not for the server's input.
//! Must hold: nesting is bounded; nothing is allocated from an announced length.

use super::RespError;
use super::parse::integer;
use memchr::memchr;

/// No reply of Redis comes near this.
pub const REPLY_DEPTH: usize = 32;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    /// `_`, and the null string and null array of RESP2.
    Null,
    Array(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Set(Vec<Value>),
    Push(Vec<Value>),
    Bool(bool),
    Double(f64),
    BigNumber(String),
    Verbatim {
        format: String,
        text: Vec<u8>,
    },
}

/// Reads the value that `buf` begins with, and how many bytes it takes. `None`: more bytes are needed.
pub fn read_value(buf: &[u8]) -> Result<Option<(Value, usize)>, RespError> {
    let mut input = Input { buf, at: 0 };
    Ok(input.value(REPLY_DEPTH)?.map(|value| (value, input.at)))
}

struct Input<'a> {
    buf: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn value(&mut self, depth: usize) -> Result<Option<Value>, RespError> {
        if depth == 0 {
            return Err(RespError::Reply("the reply nests too deep"));
        }
        let Some(line) = self.line()? else { return Ok(None) };
        let Some((mark, rest)) = line.split_first() else {
            return Err(RespError::Reply("an empty line is no reply"));
        };
        Ok(Some(match mark {
            b'+' => Value::Simple(text(rest)),
            b'-' => Value::Error(text(rest)),
            b':' => Value::Int(integer(rest).ok_or(RespError::Reply("invalid integer"))?),
            b'(' => Value::BigNumber(text(rest)),
            b',' => Value::Double(double(rest)?),
            b'#' => Value::Bool(match rest {
                b"t" => true,
                b"f" => false,
                _ => return Err(RespError::Reply("invalid boolean")),
            }),
            b'_' if rest.is_empty() => Value::Null,
            b'$' | b'!' | b'=' => return self.string(*mark, rest),
            b'*' if rest == b"-1" => Value::Null,
            b'*' | b'~' | b'>' => {
                let Some(items) = self.items(length(rest)?, depth)? else { return Ok(None) };
                match mark {
                    b'*' => Value::Array(items),
                    b'~' => Value::Set(items),
                    _ => Value::Push(items),
                }
            }
            b'%' => {
                let Some(pairs) = self.pairs(length(rest)?, depth)? else { return Ok(None) };
                Value::Map(pairs)
            }
            // Attributes are remarks about the value that follows; nobody here reads them.
            b'|' => {
                let Some(_) = self.pairs(length(rest)?, depth)? else { return Ok(None) };
                return self.value(depth - 1);
            }
            _ => return Err(RespError::Reply("unknown reply type")),
        }))
    }

    fn string(&mut self, mark: u8, len: &[u8]) -> Result<Option<Value>, RespError> {
        if mark == b'$' && len == b"-1" {
            return Ok(Some(Value::Null));
        }
        let len = length(len)?;
        let rest = &self.buf[self.at..];
        if rest.len() < len.saturating_add(2) {
            return Ok(None);
        }
        let (bytes, rest) = rest.split_at(len);
        if !rest.starts_with(b"\r\n") {
            return Err(RespError::Reply("a string does not end where it should"));
        }
        self.at += len + 2;
        Ok(Some(match mark {
            b'$' => Value::Bulk(bytes.to_vec()),
            b'!' => Value::Error(text(bytes)),
            _ => match bytes {
                [a, b, c, b':', rest @ ..] => {
                    Value::Verbatim { format: text(&[*a, *b, *c]), text: rest.to_vec() }
                }
                _ => return Err(RespError::Reply("a verbatim string without a format")),
            },
        }))
    }

    fn items(&mut self, len: usize, depth: usize) -> Result<Option<Vec<Value>>, RespError> {
        let mut items = Vec::new();
        for _ in 0..len {
            match self.value(depth - 1)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(items))
    }

    fn pairs(&mut self, len: usize, depth: usize) -> Result<Option<Vec<(Value, Value)>>, RespError> {
        let mut pairs = Vec::new();
        for _ in 0..len {
            let Some(key) = self.value(depth - 1)? else { return Ok(None) };
            let Some(value) = self.value(depth - 1)? else { return Ok(None) };
            pairs.push((key, value));
        }
        Ok(Some(pairs))
    }

    fn line(&mut self) -> Result<Option<&'a [u8]>, RespError> {
        let rest = &self.buf[self.at..];
        let Some(end) = memchr(b'\r', rest) else { return Ok(None) };
        match rest.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(Some(&rest[..end]))
            }
            Some(_) => Err(RespError::Reply("a CR without an LF")),
        }
    }
}

fn length(digits: &[u8]) -> Result<usize, RespError> {
    integer(digits).and_then(|len| usize::try_from(len).ok()).ok_or(RespError::Reply("invalid length"))
}

fn double(rest: &[u8]) -> Result<f64, RespError> {
    std::str::from_utf8(rest)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(RespError::Reply("invalid double"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: Value) {
        assert_eq!(read_value(input.as_bytes()), Ok(Some((expected, input.len()))), "{input:?}");
        for len in 0..input.len() {
            assert_eq!(read_value(&input.as_bytes()[..len]), Ok(None), "{:?}", &input[..len]);
        }
    }

    #[test]
    fn every_type_is_read() {
        let bulk = |text: &str| Value::Bulk(text.into());
        check("+OK\r\n", Value::Simple("OK".into()));
        check("-ERR no\r\n", Value::Error("ERR no".into()));
        check("!6\r\nERR no\r\n", Value::Error("ERR no".into()));
        check(":-7\r\n", Value::Int(-7));
        check("$3\r\na\r\n\r\n", bulk("a\r\n"));
        check("$-1\r\n", Value::Null);
        check("*-1\r\n", Value::Null);
        check("_\r\n", Value::Null);
        check("*2\r\n$1\r\na\r\n*0\r\n", Value::Array(vec![bulk("a"), Value::Array(vec![])]));
        check("~1\r\n:1\r\n", Value::Set(vec![Value::Int(1)]));
        check(">1\r\n+x\r\n", Value::Push(vec![Value::Simple("x".into())]));
        check("%1\r\n+a\r\n:1\r\n", Value::Map(vec![(Value::Simple("a".into()), Value::Int(1))]));
        check("#t\r\n", Value::Bool(true));
        check("#f\r\n", Value::Bool(false));
        check(",1.5\r\n", Value::Double(1.5));
        check(",-inf\r\n", Value::Double(f64::NEG_INFINITY));
        check(
            "(123456789012345678901234567890\r\n",
            Value::BigNumber("123456789012345678901234567890".into()),
        );
        check("=6\r\ntxt:hi\r\n", Value::Verbatim { format: "txt".into(), text: b"hi".to_vec() });
        check("|1\r\n+ttl\r\n:1\r\n+OK\r\n", Value::Simple("OK".into()));
    }

    #[test]
    fn nonsense_is_refused() {
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
            "#x\r\n",
            ",x\r\n",
            "_x\r\n",
            "$?\r\n",
            "*?\r\n",
            "!-1\r\n",
        ] {
            assert!(matches!(read_value(input.as_bytes()), Err(RespError::Reply(_))), "{input:?}");
        }
    }

    #[test]
    fn depth_and_announced_lengths_are_bounded() {
        assert!(read_value("*1\r\n".repeat(100_000).as_bytes()).is_err());
        assert!(read_value("|0\r\n".repeat(100_000).as_bytes()).is_err());
        assert_eq!(read_value(b"*9223372036854775807\r\n"), Ok(None));
        assert_eq!(read_value(b"$9223372036854775807\r\n"), Ok(None));
    }
}
