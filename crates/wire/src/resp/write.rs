//! Replies and pushed messages in RESP2 or RESP3, appended to a buffer.
//! Must hold: a type that RESP2 lacks is written as Redis does.

/// The protocol version that the client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proto {
    #[default]
    Resp2,
    Resp3,
}

/// `+OK`. Line breaks in the text become spaces.
pub fn simple(out: &mut Vec<u8>, text: &str) {
    line(out, b'+', text);
}

/// `-ERR …`. Line breaks in the text become spaces.
pub fn error(out: &mut Vec<u8>, text: &str) {
    line(out, b'-', text);
}

fn line(out: &mut Vec<u8>, mark: u8, text: &str) {
    out.push(mark);
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

pub fn int(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// A command, as a client sends it.
pub fn command(out: &mut Vec<u8>, parts: &[&[u8]]) {
    array(out, parts.len());
    parts.iter().for_each(|part| bulk(out, part));
}

/// The head of a string; `len` bytes and a line break follow.
pub fn bulk_head(out: &mut Vec<u8>, len: usize) {
    head(out, b'$', len);
}

pub fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    bulk_head(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Null instead of a string.
pub fn null_bulk(out: &mut Vec<u8>, proto: Proto) {
    out.extend_from_slice(match proto {
        Proto::Resp2 => b"$-1\r\n",
        Proto::Resp3 => b"_\r\n",
    });
}

/// Null instead of an array.
pub fn null_array(out: &mut Vec<u8>, proto: Proto) {
    out.extend_from_slice(match proto {
        Proto::Resp2 => b"*-1\r\n",
        Proto::Resp3 => b"_\r\n",
    });
}

/// The head of an array; `len` values follow.
pub fn array(out: &mut Vec<u8>, len: usize) {
    head(out, b'*', len);
}

/// The head of a push message; in RESP2 an array.
pub fn push(out: &mut Vec<u8>, len: usize, proto: Proto) {
    head(out, pick(proto, b'*', b'>'), len);
}

/// The head of a map; `pairs` times a key and a value follow.
pub fn map(out: &mut Vec<u8>, pairs: usize, proto: Proto) {
    match proto {
        Proto::Resp2 => head(out, b'*', pairs * 2),
        Proto::Resp3 => head(out, b'%', pairs),
    }
}

/// The head of a set; `len` values follow.
pub fn set(out: &mut Vec<u8>, len: usize, proto: Proto) {
    head(out, pick(proto, b'*', b'~'), len);
}

pub fn boolean(out: &mut Vec<u8>, value: bool, proto: Proto) {
    out.extend_from_slice(match (proto, value) {
        (Proto::Resp2, false) => b":0\r\n",
        (Proto::Resp2, true) => b":1\r\n",
        (Proto::Resp3, false) => b"#f\r\n",
        (Proto::Resp3, true) => b"#t\r\n",
    });
}

pub fn double(out: &mut Vec<u8>, value: f64, proto: Proto) {
    let text = if value.is_nan() {
        "nan".to_string()
    } else if value.is_infinite() {
        if value > 0.0 { "inf".to_string() } else { "-inf".to_string() }
    } else {
        value.to_string()
    };
    match proto {
        Proto::Resp2 => bulk(out, text.as_bytes()),
        Proto::Resp3 => line(out, b',', &text),
    }
}

/// Text with its format of three letters, such as `txt`; in RESP2 the text alone.
pub fn verbatim(out: &mut Vec<u8>, proto: Proto, format: &str, bytes: &[u8]) {
    assert_eq!(format.len(), 3, "the format of a verbatim string has three letters");
    match proto {
        Proto::Resp2 => bulk(out, bytes),
        Proto::Resp3 => {
            head(out, b'=', bytes.len() + 4);
            out.extend_from_slice(format.as_bytes());
            out.push(b':');
            out.extend_from_slice(bytes);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A message to a subscriber of its channel, in RESP2. `kind` is `message` or `smessage`.
/// The RESP3 form differs only in its first byte: `>` instead of `*`. Reserves exactly what it writes; returns where the
/// channel and the payload begin.
pub fn message_frame(out: &mut Vec<u8>, kind: &str, channel: &[u8], payload: &[u8]) -> (usize, usize) {
    let bulks = [kind.as_bytes(), channel, payload].map(|bytes| bulk_bytes(bytes.len()));
    out.reserve_exact("*3\r\n".len() + bulks.iter().sum::<usize>());
    array(out, 3);
    bulk(out, kind.as_bytes());
    bulk(out, channel);
    let channel_at = out.len() - 2 - channel.len();
    bulk(out, payload);
    (channel_at, out.len() - 2 - payload.len())
}

/// How many bytes a string of this length takes: its head, itself and a line break.
fn bulk_bytes(len: usize) -> usize {
    let digits = len.checked_ilog10().unwrap_or(0) as usize + 1;
    "$".len() + digits + "\r\n".len() + len + "\r\n".len()
}

/// A message to a subscriber of a pattern, in RESP2; in RESP3 the first byte is `>`.
pub fn pmessage_frame(out: &mut Vec<u8>, pattern: &[u8], channel: &[u8], payload: &[u8]) {
    out.reserve(64 + pattern.len() + channel.len() + payload.len());
    array(out, 4);
    bulk(out, b"pmessage");
    bulk(out, pattern);
    bulk(out, channel);
    bulk(out, payload);
}

fn head(out: &mut Vec<u8>, mark: u8, len: usize) {
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(len).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn pick(proto: Proto, two: u8, three: u8) -> u8 {
    match proto {
        Proto::Resp2 => two,
        Proto::Resp3 => three,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(write: impl Fn(&mut Vec<u8>, Proto), two: &str, three: &str) {
        for (proto, expected) in [(Proto::Resp2, two), (Proto::Resp3, three)] {
            let mut out = Vec::new();
            write(&mut out, proto);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{proto:?}");
        }
    }

    #[test]
    fn both_protocols_share_the_simple_types() {
        check(|out, _| simple(out, "OK"), "+OK\r\n", "+OK\r\n");
        check(|out, _| error(out, "ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(|out, _| int(out, i64::MIN), ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
        check(|out, _| bulk(out, b"a\r\n"), "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n");
        check(|out, _| bulk(out, b""), "$0\r\n\r\n", "$0\r\n\r\n");
        check(|out, _| array(out, 12), "*12\r\n", "*12\r\n");
    }

    #[test]
    fn a_command_is_an_array_of_strings() {
        check(
            |out, _| command(out, &[b"GET", b"a"]),
            "*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
            "*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
        );
        check(|out, _| bulk_head(out, 12), "$12\r\n", "$12\r\n");
    }

    #[test]
    fn resp3_types_have_a_resp2_form() {
        check(null_bulk, "$-1\r\n", "_\r\n");
        check(null_array, "*-1\r\n", "_\r\n");
        check(|out, proto| push(out, 3, proto), "*3\r\n", ">3\r\n");
        check(|out, proto| map(out, 3, proto), "*6\r\n", "%3\r\n");
        check(|out, proto| set(out, 3, proto), "*3\r\n", "~3\r\n");
        check(|out, proto| boolean(out, true, proto), ":1\r\n", "#t\r\n");
        check(|out, proto| boolean(out, false, proto), ":0\r\n", "#f\r\n");
        check(|out, proto| double(out, 1.5, proto), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(|out, proto| double(out, f64::NEG_INFINITY, proto), "$4\r\n-inf\r\n", ",-inf\r\n");
        check(|out, proto| double(out, f64::NAN, proto), "$3\r\nnan\r\n", ",nan\r\n");
        check(|out, proto| verbatim(out, proto, "txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
    }

    #[test]
    fn a_message_frame_takes_exactly_its_bytes() {
        for len in [0, 1, 9, 10, 99, 100, 1_000] {
            let (channel, payload) = (vec![b'c'; len], vec![b'p'; len * 10]);
            let mut out = Vec::new();
            let (channel_at, payload_at) = message_frame(&mut out, "message", &channel, &payload);
            assert_eq!(out.capacity(), out.len());
            assert_eq!(&out[channel_at..][..len], channel);
            assert_eq!(&out[payload_at..][..len * 10], payload);
        }
    }

    #[test]
    fn pushed_messages_are_complete_frames() {
        let mut out = Vec::new();
        message_frame(&mut out, "message", b"ch", b"hi");
        assert_eq!(out, b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$2\r\nhi\r\n");
        out.clear();
        message_frame(&mut out, "smessage", b"", b"\r\n");
        assert_eq!(out, b"*3\r\n$8\r\nsmessage\r\n$0\r\n\r\n$2\r\n\r\n\r\n");
        out.clear();
        pmessage_frame(&mut out, b"c*", b"ch", b"hi");
        assert_eq!(out, b"*4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$2\r\nch\r\n$2\r\nhi\r\n");
    }
}
