//! What the command parser accepts and refuses, and what it costs.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits::new(1 << 20, 1024, 4 << 20, 65536);

type Commands = Vec<Vec<Vec<u8>>>;

/// Feeds `input` in pieces that end at `cuts`, as a connection would, and collects commands until an error.
fn read(input: &[u8], limits: &Limits, cuts: &[usize]) -> (Commands, Option<RespError>, bool) {
    let mut parser = Parser::default();
    let (mut commands, mut args) = (Vec::new(), Vec::new());
    let mut start = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        loop {
            let buf = &input[start.min(end)..end];
            match parser.parse(buf, limits, &mut args) {
                Ok(Parsed::Need) => break,
                Ok(Parsed::Command { consumed }) => {
                    commands.push(args.iter().map(|arg| buf[arg.clone()].to_vec()).collect());
                    start += consumed;
                }
                Ok(Parsed::Inline { consumed, args }) => {
                    commands.push(args);
                    start += consumed;
                }
                Err(error) => return (commands, Some(error), parser.is_idle()),
            }
            assert!(parser.is_idle());
        }
    }
    (commands, None, parser.is_idle())
}

fn check(input: &str, expected: &[&[&str]]) {
    let (commands, error, idle) = read(input.as_bytes(), &LIMITS, &[]);
    let expected: Commands =
        expected.iter().map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect()).collect();
    assert_eq!((commands, error, idle), (expected, None, true), "{input:?}");
    let every: Vec<_> = (0..input.len()).collect();
    assert_eq!(read(input.as_bytes(), &LIMITS, &every), read(input.as_bytes(), &LIMITS, &[]), "{input:?}");
}

fn check_refused(input: impl AsRef<[u8]>, limits: &Limits, expected: &str) {
    let input = input.as_ref();
    let shown = String::from_utf8_lossy(&input[..input.len().min(60)]);
    let (_, error, _) = read(input, limits, &[]);
    assert_eq!(
        error.map(|error| error.to_string()),
        Some(format!("ERR Protocol error: {expected}")),
        "{shown}"
    );
    let every: Vec<_> = (0..input.len()).collect();
    assert_eq!(read(input, limits, &every).1, error, "{shown}");
}

#[test]
fn commands_follow_each_other() {
    check("", &[]);
    check("*1\r\n$4\r\nPING\r\n", &[&["PING"]]);
    check("*2\r\n$4\r\nECHO\r\n$0\r\n\r\nPING\r\n*1\r\n$1\r\nx\r\n", &[&["ECHO", ""], &["PING"], &["x"]]);
    check("*1\r\n$2\r\n\r\n\r\n", &[&["\r\n"]]);
    check("PING\n ECHO 'a b'\r\n", &[&["PING"], &["ECHO", "a b"]]);
}

#[test]
fn empty_commands_have_no_arguments() {
    check("*0\r\n*-1\r\n*-9223372036854775808\r\n\r\n\n   \r\n", &[&[], &[], &[], &[], &[], &[]]);
}

#[test]
fn line_ends_are_parsed_like_redis() {
    check("*1\rX$1\rXaXX", &[&["a"]]);
    check("PING\r\r\n", &[&["PING"]]);
}

#[test]
fn incomplete_input_asks_for_more() {
    let whole = b"*2\r\n$3\r\nfoo\r\n$3\r\nbar\r\n";
    for len in 1..whole.len() {
        assert_eq!(read(&whole[..len], &LIMITS, &[]), (vec![], None, false), "{len}");
    }
    assert_eq!(read(b"PIN", &LIMITS, &[]), (vec![], None, false));
    assert_eq!(Parser::default().parse(b"", &LIMITS, &mut vec![]), Ok(Parsed::Need));
}

#[test]
fn bad_counts_are_refused() {
    for count in
        ["", "x", "1x", "+1", "01", "-0", " 1", "1 ", "1025", "2147483648", "9223372036854775808", "--1"]
    {
        check_refused(format!("*{count}\r\n"), &LIMITS, "invalid multibulk length");
    }
}

#[test]
fn bad_lengths_are_refused() {
    for len in
        ["", "x", "-1", "+1", "01", "1048577", "18446744073709551616", "4294967296", "9223372036854775807"]
    {
        check_refused(format!("*1\r\n${len}\r\n"), &LIMITS, "invalid bulk length");
    }
    check_refused("*1\r\n:1\r\n", &LIMITS, "expected '$', got ':'");
    check_refused("*1\r\n\r\n", &LIMITS, "expected '$', got ' '");
    check_refused("*2\r\n$1\r\na\r\n*1\r\n", &LIMITS, "expected '$', got '*'");
    check_refused("*1\r\n$3\r\nab\r\n$1\r\nx\r\n*1\r\nG", &LIMITS, "expected '$', got 'G'");
}

#[test]
fn lines_without_end_are_refused() {
    let limits = Limits { inline_bytes: 100, ..LIMITS };
    check_refused(format!("*{}", "1".repeat(100)), &limits, "too big mbulk count string");
    check_refused(format!("*1\r\n${}", "1".repeat(100)), &limits, "too big bulk count string");
    check_refused("x".repeat(101), &limits, "too big inline request");
    check_refused(format!("{}\n", "x".repeat(101)), &limits, "too big inline request");
    assert_eq!(read(format!("{}\n", "x".repeat(100)).as_bytes(), &limits, &[]).1, None);
    assert_eq!(read(&[b'x'; 100], &limits, &[]).1, None, "the line break may still come");
    check_refused("\"x\n", &LIMITS, "unbalanced quotes in request");
}

#[test]
fn the_size_of_a_command_is_checked_before_its_bytes_arrive() {
    let limits = Limits { total_bytes: 40, ..LIMITS };
    check_refused("*2\r\n$10\r\n0123456789\r\n$13\r\n", &limits, "too big request");
    check_refused("*1\r\n$1000\r\n", &limits, "too big request");
    assert_eq!(read(b"*2\r\n$10\r\n0123456789\r\n$12\r\n", &limits, &[]).1, None);
}

#[test]
fn unauthenticated_clients_have_smaller_limits() {
    let limits = Limits { unauthenticated: true, ..LIMITS };
    check_refused("*11\r\n", &limits, "unauthenticated multibulk length");
    check_refused("*1\r\n$16385\r\n", &limits, "unauthenticated bulk length");
    check_refused("*1025\r\n", &limits, "invalid multibulk length");
    assert_eq!(read(b"*10\r\n$16384\r\n", &limits, &[]).1, None);
}

#[test]
fn an_announced_size_costs_nothing() {
    let (mut parser, mut args) = (Parser::default(), Vec::new());
    let limits = Limits::new(usize::MAX, usize::MAX, usize::MAX, usize::MAX);
    assert_eq!(parser.parse(b"*9223372036854775807\r\n", &limits, &mut args), Ok(Parsed::Need));
    assert_eq!(args.capacity(), 0);
    let (mut parser, limits) = (Parser::default(), LIMITS);
    assert_eq!(parser.parse(b"*1024\r\n$1048576\r\n", &limits, &mut args), Ok(Parsed::Need));
    assert_eq!(args.capacity(), 0);
}

#[test]
fn a_command_in_many_pieces_is_scanned_once() {
    let count = 1000;
    let mut input = format!("*{count}\r\n").into_bytes();
    input.extend(b"$1\r\na\r\n".repeat(count));
    let (mut parser, mut args) = (Parser::default(), Vec::new());
    for end in 1..input.len() {
        let before = parser.at;
        assert_eq!(parser.parse(&input[..end], &LIMITS, &mut args), Ok(Parsed::Need));
        assert!(parser.at >= before && args.is_empty());
        assert!(end - parser.scanned <= 3, "all but a pending argument was looked at");
    }
    let parsed = parser.parse(&input, &LIMITS, &mut args);
    assert_eq!((parsed, args.len()), (Ok(Parsed::Command { consumed: input.len() }), count));
    assert!(args.iter().all(|arg| &input[arg.clone()] == b"a"));
    assert!(parser.is_idle());
}

#[test]
fn limits_may_shrink_while_a_command_is_pending() {
    for (first, more) in [("*11111111", "1"), ("*1\r\n$00000000", "0"), ("PINGPINGPING", "G")] {
        let (mut parser, mut args) = (Parser::default(), Vec::new());
        assert_eq!(parser.parse(first.as_bytes(), &LIMITS, &mut args), Ok(Parsed::Need));
        let small = Limits::new(4, 4, 4, 4);
        assert!(parser.parse(format!("{first}{more}").as_bytes(), &small, &mut args).is_err(), "{first}");
    }
}

#[test]
fn integers_are_canonical() {
    for (text, value) in [
        ("0", Some(0)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("-", None),
        ("1_0", None),
    ] {
        assert_eq!(integer(text.as_bytes()), value, "{text}");
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6).prop_map(|words| {
            let mut out = Vec::new();
            crate::resp::array(&mut out, words.len());
            words.iter().for_each(|word| crate::resp::bulk(&mut out, word));
            out
        }),
        "[ a-z\"'\\\\\r]{0,12}\r?\n".prop_map(String::into_bytes),
        "[*$][0-9-]{0,3}\r\n".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..8),
    ]
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        pieces in proptest::collection::vec(piece(), 0..6),
        mut cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let input = pieces.concat();
        let mut cuts: Vec<_> = cuts.drain(..).map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        let every: Vec<_> = (0..input.len()).collect();
        for limits in [LIMITS, Limits::new(5, 3, 40, 9), Limits { unauthenticated: true, ..LIMITS }] {
            let whole = read(&input, &limits, &[]);
            prop_assert_eq!(&read(&input, &limits, &cuts), &whole);
            prop_assert_eq!(&read(&input, &limits, &every), &whole);
        }
    }
}
