//! RESP3, as much of it as the bus and the store read and write. Values are places in what was read, not copies.
//! Must hold: nothing is reserved because of an announced length, and nesting has an end.

use crate::remote::{broken, line};
use std::io::{self, Write};
use std::ops::Range;

/// The longest string that is read.
const BULK_BYTES: usize = 64 * 1024 * 1024;
/// The longest list: a page with two entries a row, or the slots of a cluster. How deep lists stand in each other: the answer
/// to HELLO is the deepest that comes.
const PARTS: usize = 32 * 1024;
const DEPTH: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub enum Value {
    Simple(Range<usize>),
    Error(Range<usize>),
    Bulk(Range<usize>),
    /// Arrays, sets, pushes; maps with their keys and values in turn.
    List(Vec<Value>),
    Number(i64),
    /// Nulls and the like.
    Scalar,
}

pub fn command(parts: &[&[u8]], out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", parts.len());
    parts.iter().for_each(|part| bulk(&[part], out));
}

/// A command with one more part, of which only the length is written: the part and a line's end follow.
pub fn command_but_last(parts: &[&[u8]], length: usize, out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", parts.len() + 1);
    parts.iter().for_each(|part| bulk(&[part], out));
    let _ = write!(out, "${length}\r\n");
}

/// One string, from its parts.
pub fn bulk(parts: &[&[u8]], out: &mut Vec<u8>) {
    let _ = write!(out, "${}\r\n", parts.iter().map(|part| part.len()).sum::<usize>());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

/// The first value and where it ends. None: it is not complete.
pub fn read(input: &[u8]) -> io::Result<Option<(Value, usize)>> {
    value(input, 0, DEPTH)
}

fn value(input: &[u8], at: usize, depth: usize) -> io::Result<Option<(Value, usize)>> {
    let Some((found, used)) = line(&input[at..])? else { return Ok(None) };
    let Some((&kind, text)) = found.split_first() else { return Err(broken("an empty line")) };
    let (start, end) = (at + 1, at + used);
    let place = start..start + text.len();
    Ok(Some(match kind {
        b'+' => (Value::Simple(place), end),
        b'-' => (Value::Error(place), end),
        b':' => {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            (Value::Number(number.ok_or_else(|| broken("a number is none"))?), end)
        }
        b'_' | b'#' | b',' | b'(' => (Value::Scalar, end),
        b'$' | b'=' | b'!' if text == b"-1" => (Value::Scalar, end),
        b'$' | b'=' | b'!' => {
            let length = number(text, BULK_BYTES)?;
            if input.len() < end + length + 2 {
                return Ok(None);
            }
            let place = end..end + length;
            (if kind == b'!' { Value::Error(place) } else { Value::Bulk(place) }, end + length + 2)
        }
        b'*' if text == b"-1" => (Value::Scalar, end),
        b'*' | b'>' | b'~' | b'%' => {
            let count = number(text, PARTS)? * if kind == b'%' { 2 } else { 1 };
            let mut parts = Vec::new();
            let mut next = end;
            let deeper = depth.checked_sub(1).ok_or_else(|| broken("lists in lists in lists"))?;
            for _ in 0..count {
                let Some((part, after)) = value(input, next, deeper)? else { return Ok(None) };
                parts.push(part);
                next = after;
            }
            (Value::List(parts), next)
        }
        _ => return Err(broken("this is no Redis server")),
    }))
}

fn number(text: &[u8], most: usize) -> io::Result<usize> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|&number| number <= most).ok_or_else(|| broken("a length is wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_where_they_stand() {
        let said = b"%1\r\n$6\r\nserver\r\n*2\r\n+ok\r\n:3\r\n";
        let inner = Value::List(vec![Value::Simple(21..23), Value::Number(3)]);
        let expected = Value::List(vec![Value::Bulk(8..14), inner]);
        assert_eq!(read(said).unwrap(), Some((expected, said.len())));
        (0..said.len()).for_each(|end| assert_eq!(read(&said[..end]).unwrap(), None));
        assert_eq!(read(b"$-1\r\n").unwrap(), Some((Value::Scalar, 5)));
    }

    #[test]
    fn wrong_lengths_and_endless_nesting_are_refused() {
        let nested = "*1\r\n".repeat(100);
        for said in
            ["$x\r\n", "$99999999999\r\n", "*99999\r\n", ":x\r\n", "$-2\r\n", "HTTP/1.1\r\n", "\r\n", &nested]
        {
            assert!(read(said.as_bytes()).is_err(), "{said}");
        }
    }
}
