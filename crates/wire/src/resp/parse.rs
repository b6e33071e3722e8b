//! Parses commands from a byte stream: multibulk and inline. Bounded, zero-copy, resumable.
//! Must hold: each byte is examined once, however small the pieces it arrives in, and the heads of the arguments once more at
//! the end; the result does not depend on the pieces; no announced length is allocated in advance; an unfinished command
//! holds nothing besides its bytes.

use super::RespError;
use super::inline::{self, InlineLine};
use memchr::memchr;
use std::ops::Range;

/// Limits for a client that has not authenticated, as in Redis.
pub const UNAUTHENTICATED_ARGS: usize = 10;
pub const UNAUTHENTICATED_ARG_BYTES: usize = 16384;

/// The limits of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub arg_bytes: usize,
    pub args: usize,
    /// The whole command with its framing: what a connection may have buffered.
    pub total_bytes: usize,
    /// An inline command, and a line with a length.
    pub inline_bytes: usize,
    /// The client has not authenticated: the smaller limits above apply too.
    pub unauthenticated: bool,
}

impl Limits {
    pub const fn new(arg_bytes: usize, args: usize, total_bytes: usize, inline_bytes: usize) -> Limits {
        Limits { arg_bytes, args, total_bytes, inline_bytes, unauthenticated: false }
    }
}

/// The result of parsing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The command is not complete.
    Need,
    /// A command whose arguments are ranges of the input. Without arguments it was an empty line or array: skip it.
    Command { consumed: usize },
    /// An inline command with quotes, whose arguments are copies.
    Inline { consumed: usize, args: Vec<Vec<u8>> },
}

/// The parser of one connection. It owns no memory: many short arguments would take more than their bytes.
#[derive(Debug, Default)]
pub struct Parser {
    /// The start of the current line or argument.
    at: usize,
    /// There is no line end before this.
    scanned: usize,
    /// Arguments to come; 0 until the head of a multibulk is parsed.
    left: usize,
    /// The length of the argument at `at`; `None` until its head is parsed.
    bulk: Option<usize>,
}

impl Parser {
    /// Whether it is between two commands.
    pub fn is_idle(&self) -> bool {
        self.scanned == 0
    }

    /// Parses the command at the start of `buf`. After `Need`, call again with the same bytes and more after them. After an error
    /// the connection must be closed: there is no known position to continue from.
    pub fn parse(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        args: &mut Vec<Range<usize>>,
    ) -> Result<Parsed, RespError> {
        args.clear();
        let Some(first) = buf.first() else { return Ok(Parsed::Need) };
        let resumed = self.left > 0;
        let result = match first {
            b'*' => self.multibulk(buf, limits, args),
            _ => self.inline(buf, limits, args),
        };
        match result {
            Ok(Parsed::Need) => args.clear(),
            _ => *self = Parser::default(),
        }
        if let Ok(Parsed::Command { consumed }) = result
            && resumed
        {
            find_args(&buf[..consumed], args);
        }
        result
    }

    fn multibulk(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        args: &mut Vec<Range<usize>>,
    ) -> Result<Parsed, RespError> {
        if self.left == 0 {
            let Some(line) = self.line(buf, limits, RespError::MultibulkCount)? else {
                return Ok(Parsed::Need);
            };
            let consumed = line.end + 2;
            let count = integer(&buf[line.start + 1..line.end]).ok_or(RespError::MultibulkLength)?;
            if count <= 0 {
                return Ok(Parsed::Command { consumed });
            }
            self.left = usize::try_from(count).map_err(|_| RespError::MultibulkLength)?;
            if self.left > limits.args {
                return Err(RespError::MultibulkLength);
            }
            if limits.unauthenticated && self.left > UNAUTHENTICATED_ARGS {
                return Err(RespError::UnauthenticatedMultibulkLength);
            }
            self.advance(consumed);
        }
        while self.left > 0 {
            let len = match self.bulk {
                Some(len) => len,
                None => {
                    let Some(len) = self.bulk_len(buf, limits)? else { return Ok(Parsed::Need) };
                    self.bulk = Some(len);
                    len
                }
            };
            // As in Redis, the two bytes after the argument are skipped without a check.
            if buf.len() - self.at < len.saturating_add(2) {
                return Ok(Parsed::Need);
            }
            let end = self.at + len;
            args.push(self.at..end);
            self.advance(end + 2);
            self.bulk = None;
            self.left -= 1;
        }
        Ok(Parsed::Command { consumed: self.at })
    }

    /// Parses `$len` and moves to the argument.
    fn bulk_len(&mut self, buf: &[u8], limits: &Limits) -> Result<Option<usize>, RespError> {
        match buf.get(self.at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(other) => return Err(RespError::ExpectedBulk(*other)),
        }
        let Some(line) = self.line(buf, limits, RespError::BulkCount)? else { return Ok(None) };
        let len = integer(&buf[line.start + 1..line.end])
            .and_then(|len| usize::try_from(len).ok())
            .filter(|len| *len <= limits.arg_bytes)
            .ok_or(RespError::BulkLength)?;
        if limits.unauthenticated && len > UNAUTHENTICATED_ARG_BYTES {
            return Err(RespError::UnauthenticatedBulkLength);
        }
        self.advance(line.end + 2);
        // Checked with the head, before any of the bytes are buffered.
        if self.at.saturating_add(len).saturating_add(2) > limits.total_bytes {
            return Err(RespError::TooBig);
        }
        Ok(Some(len))
    }

    /// The line at `at` up to its CR; the byte after it is taken as the LF, as in Redis.
    fn line(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        too_long: RespError,
    ) -> Result<Option<Range<usize>>, RespError> {
        let stop = self.stop(buf, limits.inline_bytes);
        match memchr(b'\r', &buf[self.scanned..stop]) {
            Some(found) => {
                let end = self.scanned + found;
                // If the LF has not arrived, the search for the CR continues from here.
                self.scanned = end;
                Ok((end + 1 < buf.len()).then_some(self.at..end))
            }
            None if stop - self.at > limits.inline_bytes => Err(too_long),
            None => {
                self.scanned = stop;
                Ok(None)
            }
        }
    }

    fn inline(
        &mut self,
        buf: &[u8],
        limits: &Limits,
        args: &mut Vec<Range<usize>>,
    ) -> Result<Parsed, RespError> {
        let max = limits.inline_bytes.min(limits.total_bytes);
        let stop = self.stop(buf, max);
        let Some(found) = memchr(b'\n', &buf[self.scanned..stop]) else {
            self.scanned = stop;
            return if stop > max { Err(RespError::Inline) } else { Ok(Parsed::Need) };
        };
        let end = self.scanned + found;
        let line = buf[..end].strip_suffix(b"\r").unwrap_or(&buf[..end]);
        Ok(match inline::split(line, limits, args)? {
            InlineLine::Plain => Parsed::Command { consumed: end + 1 },
            InlineLine::Quoted(args) => Parsed::Inline { consumed: end + 1, args },
        })
    }

    /// Where the search for a line end stops. Never before what is scanned: limits may shrink between calls.
    fn stop(&self, buf: &[u8], max: usize) -> usize {
        buf.len().min(self.at.saturating_add(max).saturating_add(1)).max(self.scanned)
    }

    fn advance(&mut self, at: usize) {
        self.at = at;
        self.scanned = at;
    }
}

/// The arguments of a whole command that arrived in pieces.
fn find_args(command: &[u8], args: &mut Vec<Range<usize>>) {
    args.clear();
    let line = |from: usize| memchr(b'\r', &command[from..]).map_or(command.len(), |found| from + found);
    let mut at = line(0) + 2;
    while at < command.len() {
        let end = line(at);
        let len = integer(&command[at + 1..end]).and_then(|len| usize::try_from(len).ok());
        let len = len.expect("a length that was parsed before");
        args.push(end + 2..end + 2 + len);
        at = end + 2 + len + 2;
    }
}

/// A number as Redis accepts it: no plus sign, no leading zeros, no spaces, at most 64 bits.
pub(super) fn integer(digits: &[u8]) -> Option<i64> {
    let (negative, digits) = match digits {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match digits {
        b"0" if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let mut value = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Counted downwards, because the minimum has no positive counterpart.
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
