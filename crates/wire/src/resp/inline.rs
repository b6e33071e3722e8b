//! An inline command: a line with quotes and escapes. Must hold: it is parsed as Redis parses it.

use super::RespError;
use super::parse::Limits;
use std::ops::Range;

/// The words of a line: ranges of it, or copies where quotes changed the bytes.
pub(super) enum InlineLine {
    Plain,
    Quoted(Vec<Vec<u8>>),
}

/// Parses a line without its line break. Plain words are ranges of `line`.
pub(super) fn split(
    line: &[u8],
    limits: &Limits,
    args: &mut Vec<Range<usize>>,
) -> Result<InlineLine, RespError> {
    if memchr::memchr2(b'"', b'\'', line).is_some() {
        return split_quoted(line, limits).map(InlineLine::Quoted);
    }
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(is_space) {
            at += 1;
        }
        let start = at;
        while line.get(at).is_some_and(|byte| !ends_word(byte)) {
            at += 1;
        }
        if start == at {
            return Ok(InlineLine::Plain);
        }
        admit(args.len(), at - start, limits)?;
        args.push(start..at);
    }
}

fn split_quoted(line: &[u8], limits: &Limits) -> Result<Vec<Vec<u8>>, RespError> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && is_space(first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Ok(words);
        }
        let mut word = Vec::new();
        rest = read_word(rest, &mut word)?;
        admit(words.len(), word.len(), limits)?;
        words.push(word);
    }
}

/// Parses one word and returns the rest. A quote may open in the middle of a word, but a closing one ends it.
fn read_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], RespError> {
    while let [byte, tail @ ..] = rest {
        match byte {
            b'"' | b'\'' => {
                rest = if *byte == b'"' { read_double(tail, word)? } else { read_single(tail, word)? };
                return if rest.first().is_none_or(is_space) { Ok(rest) } else { Err(RespError::Quotes) };
            }
            byte if ends_word(byte) => return Ok(rest),
            byte => word.push(*byte),
        }
        rest = tail;
    }
    Ok(rest)
}

fn read_double<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], RespError> {
    loop {
        rest = match rest {
            [] => return Err(RespError::Quotes),
            [b'"', tail @ ..] => return Ok(tail),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                tail
            }
            [b'\\', byte, tail @ ..] => {
                word.push(match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        }
    }
}

fn read_single<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], RespError> {
    loop {
        rest = match rest {
            [] => return Err(RespError::Quotes),
            [b'\'', tail @ ..] => return Ok(tail),
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                tail
            }
            [byte, tail @ ..] => {
                word.push(*byte);
                tail
            }
        }
    }
}

fn admit(words: usize, len: usize, limits: &Limits) -> Result<(), RespError> {
    if words >= limits.args || len > limits.arg_bytes { Err(RespError::Inline) } else { Ok(()) }
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Fewer characters than are skipped between words: a vertical tab stays inside a word.
fn ends_word(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits::new(100, 8, 1000, 1000);

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, RespError> {
        let mut args = Vec::new();
        Ok(match split(line, &LIMITS, &mut args)? {
            InlineLine::Plain => args.into_iter().map(|arg| line[arg].to_vec()).collect(),
            InlineLine::Quoted(words) => words,
        })
    }

    #[test]
    fn lines_are_parsed_like_redis() {
        let check =
            |line: &str, expected: &[&[u8]]| assert_eq!(words(line.as_bytes()).unwrap(), expected, "{line}");
        check("", &[]);
        check("  \t ", &[]);
        check("PING", &[b"PING"]);
        check(" PUBLISH  a\tb ", &[b"PUBLISH", b"a", b"b"]);
        check(r#"SET "a b" 'c d'"#, &[b"SET", b"a b", b"c d"]);
        check(r#""\x41\n\r\t\b\a\\\"\q""#, &[b"A\n\r\t\x08\x07\\\"q"]);
        check(r#""\xZZ""#, &[b"xZZ"]);
        check(r#""\x4""#, &[b"x4"]);
        check(r#"'\n\'x'"#, &[b"\\n'x"]);
        check(r#"a"b c""#, &[b"ab c"]);
        check(r#""" ''"#, &[b"", b""]);
        check(r"a\nb", &[b"a\\nb"]);
        check("a\x0bb \x0bc", &[b"a\x0bb", b"c"]);
        check("\"a\"\x0bb", &[b"a", b"b"]);
        check("a\0b", &[b"a\0b"]);
    }

    #[test]
    fn quotes_must_close_before_a_space() {
        for line in [r#"""#, r#"a "b"#, r#""a"b"#, "'", "'a'b", r#""a\""#, r"'a\'", r#""a"'b'"#, r#""\"#] {
            assert_eq!(words(line.as_bytes()), Err(RespError::Quotes), "{line}");
        }
    }

    #[test]
    fn words_are_bounded_in_number_and_length() {
        assert_eq!(words(b"1 2 3 4 5 6 7 8").unwrap().len(), 8);
        assert_eq!(words(b"1 2 3 4 5 6 7 8 9"), Err(RespError::Inline));
        assert_eq!(words(b"'1' 2 3 4 5 6 7 8 9"), Err(RespError::Inline));
        assert_eq!(words(&[b'x'; 101]), Err(RespError::Inline));
        assert_eq!(words(&[&[b'x'; 101][..], b"''"].concat()), Err(RespError::Inline));
    }
}
