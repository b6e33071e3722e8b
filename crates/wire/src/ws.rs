//! WebSocket frames (RFC 6455), both sides, without extensions. Single frames only; the connection joins fragments and
//! answers pings.
//! Must hold: a bad head is refused as soon as its bytes are there; a length above the caller's limit is refused.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    pub fn is_control(self) -> bool {
        matches!(self, Opcode::Close | Opcode::Ping | Opcode::Pong)
    }

    fn bits(self) -> u8 {
        match self {
            Opcode::Continuation => 0,
            Opcode::Text => 1,
            Opcode::Binary => 2,
            Opcode::Close => 8,
            Opcode::Ping => 9,
            Opcode::Pong => 10,
        }
    }

    fn from_bits(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }
}

/// Which side is reading. A server expects masked frames, a client unmasked ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Server,
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub fin: bool,
    pub opcode: Opcode,
    pub mask: Option<[u8; 4]>,
    pub head_len: usize,
    pub payload_len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WsError {
    #[error("{0}")]
    Protocol(&'static str),
    #[error("the text is not UTF-8")]
    NotUtf8,
    #[error("the message is too large")]
    TooLarge,
}

impl WsError {
    /// The code for the close frame.
    pub fn close_code(&self) -> u16 {
        match self {
            WsError::Protocol(_) => 1002,
            WsError::NotUtf8 => 1007,
            WsError::TooLarge => 1009,
        }
    }
}

/// The largest payload of a control frame, by the standard.
pub const CONTROL_BYTES: usize = 125;
/// The longest head: two bytes, a 64-bit length, a mask.
pub const HEAD_BYTES: usize = 14;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// Parses the head of the frame at the start of `buf`. `None`: more bytes are needed.
pub fn read_head(buf: &[u8], role: Role, max_payload: usize) -> Result<Option<Head>, WsError> {
    let &[first, second, ref rest @ ..] = buf else { return Ok(None) };
    let fin = first & FIN != 0;
    let masked = second & MASKED != 0;
    if first & RESERVED != 0 {
        return Err(WsError::Protocol("a reserved bit is set"));
    }
    let opcode = Opcode::from_bits(first & 0x0f).ok_or(WsError::Protocol("unknown opcode"))?;
    match role {
        Role::Server if !masked => return Err(WsError::Protocol("a client's frame must be masked")),
        Role::Client if masked => return Err(WsError::Protocol("a server's frame must not be masked")),
        _ => {}
    }
    let short = second & 0x7f;
    if opcode.is_control() {
        if !fin {
            return Err(WsError::Protocol("a control frame must not be fragmented"));
        }
        if usize::from(short) > CONTROL_BYTES {
            return Err(WsError::Protocol("a control frame has more than 125 bytes"));
        }
    }
    let (announced, rest) = match short {
        126 => match rest.split_first_chunk::<2>() {
            Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), rest),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk::<8>() {
            Some((len, rest)) => (u64::from_be_bytes(*len), rest),
            None => return Ok(None),
        },
        len => (u64::from(len), rest),
    };
    if announced >> 63 != 0 {
        return Err(WsError::Protocol("the top bit of the length is set"));
    }
    let payload_len = usize::try_from(announced).map_err(|_| WsError::TooLarge)?;
    if payload_len > max_payload && !opcode.is_control() {
        return Err(WsError::TooLarge);
    }
    let (mask, rest) = match masked {
        false => (None, rest),
        true => match rest.split_first_chunk::<4>() {
            Some((mask, rest)) => (Some(*mask), rest),
            None => return Ok(None),
        },
    };
    Ok(Some(Head { fin, opcode, mask, head_len: buf.len() - rest.len(), payload_len }))
}

/// Applies or removes the mask. `payload` begins where the frame's payload begins.
pub fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = payload.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// Appends the head of an unfragmented, unmasked frame, as a server sends it.
pub fn write_head(out: &mut Vec<u8>, opcode: Opcode, len: usize) {
    write_any_head(out, opcode, len, 0);
}

/// Appends an unfragmented, masked frame, as a client sends it.
pub fn write_frame_masked(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    write_any_head(out, opcode, payload.len(), MASKED);
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    unmask(&mut out[start..], mask);
}

fn write_any_head(out: &mut Vec<u8>, opcode: Opcode, len: usize, masked: u8) {
    assert!(len <= CONTROL_BYTES || !opcode.is_control(), "a control frame has more than 125 bytes");
    let first = FIN | opcode.bits();
    if len <= 125 {
        out.extend_from_slice(&[first, masked | len as u8]);
    } else if let Ok(len) = u16::try_from(len) {
        let [high, low] = len.to_be_bytes();
        out.extend_from_slice(&[first, masked | 126, high, low]);
    } else {
        out.extend_from_slice(&[first, masked | 127]);
        out.extend_from_slice(&(len as u64).to_be_bytes());
    }
}

/// Appends a server's close frame. A reason that is too long is cut at a character boundary.
pub fn write_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    let reason = &reason[..reason.floor_char_boundary(CONTROL_BYTES - 2)];
    write_head(out, Opcode::Close, 2 + reason.len());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// The code and reason of a close frame; `None`: it has none.
pub fn parse_close(payload: &[u8]) -> Result<Option<(u16, &str)>, WsError> {
    if payload.is_empty() {
        return Ok(None);
    }
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return Err(WsError::Protocol("a close frame has an incomplete code"));
    };
    let code = u16::from_be_bytes(*code);
    // 1004 to 1006 and 1015 must not be sent; the others are unassigned.
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(WsError::Protocol("a close code that must not be sent"));
    }
    let reason = std::str::from_utf8(reason).map_err(|_| WsError::NotUtf8)?;
    Ok(Some((code, reason)))
}

/// One event of a session as a text frame: `{"seq":N` and then its tail.
pub fn write_event(out: &mut Vec<u8>, seq: u64, tail: &[u8]) {
    const HEAD: &[u8] = b"{\"seq\":";
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(seq).as_bytes();
    write_head(out, Opcode::Text, HEAD.len() + digits.len() + tail.len());
    out.extend_from_slice(HEAD);
    out.extend_from_slice(digits);
    out.extend_from_slice(tail);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1 << 20;

    fn check(buf: &[u8], role: Role, expected: Result<Option<Head>, WsError>) {
        assert_eq!(read_head(buf, role, MAX), expected, "{buf:02x?}");
    }

    fn check_refused(buf: &[u8], role: Role, code: u16) {
        let error = read_head(buf, role, MAX).expect_err(&format!("{buf:02x?}"));
        assert_eq!(error.close_code(), code, "{buf:02x?}: {error}");
    }

    #[test]
    fn heads_of_every_length_are_parsed() {
        let head = |opcode, mask, head_len, payload_len| {
            Ok(Some(Head { fin: true, opcode, mask, head_len, payload_len }))
        };
        check(&[0x81, 0x05], Role::Client, head(Opcode::Text, None, 2, 5));
        check(&[0x81, 0x85, 1, 2, 3, 4, 9], Role::Server, head(Opcode::Text, Some([1, 2, 3, 4]), 6, 5));
        check(&[0x82, 126, 0x01, 0x00], Role::Client, head(Opcode::Binary, None, 4, 256));
        check(&[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0], Role::Client, head(Opcode::Binary, None, 10, 65536));
        check(&[0x82, 126, 0, 1], Role::Client, head(Opcode::Binary, None, 4, 1));
        check(&[0x8a, 0x80, 0, 0, 0, 0], Role::Server, head(Opcode::Pong, Some([0; 4]), 6, 0));
        let fragment =
            Head { fin: false, opcode: Opcode::Continuation, mask: None, head_len: 2, payload_len: 0 };
        check(&[0x00, 0x00], Role::Client, Ok(Some(fragment)));
    }

    #[test]
    fn an_incomplete_head_needs_more_bytes() {
        let whole = [0x82, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4];
        for len in 0..whole.len() {
            check(&whole[..len], Role::Server, Ok(None));
        }
        assert!(read_head(&whole, Role::Server, MAX).unwrap().is_some());
    }

    #[test]
    fn bad_heads_are_refused_from_their_first_bytes() {
        for first in [0xc1, 0xa1, 0x91, 0x83, 0x84, 0x85, 0x86, 0x87, 0x8b, 0x8f] {
            check_refused(&[first, 0x80], Role::Server, 1002);
        }
        check_refused(&[0x81, 0x05], Role::Server, 1002);
        check_refused(&[0x81, 0x85], Role::Client, 1002);
        check_refused(&[0x09, 0x80], Role::Server, 1002);
        check_refused(&[0x88, 0x80 | 126], Role::Server, 1002);
        check_refused(&[0x89, 0x80 | 127], Role::Server, 1002);
    }

    #[test]
    fn announced_lengths_are_bounded() {
        check_refused(&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], Role::Client, 1002);
        check_refused(&[0x82, 127, 0x7f, 255, 255, 255, 255, 255, 255, 255], Role::Client, 1009);
        check_refused(&[0x82, 0xff, 0, 0, 0, 0, 0, 0x10, 0, 1], Role::Server, 1009);
        assert_eq!(read_head(&[0x81, 11], Role::Client, 10), Err(WsError::TooLarge));
        assert!(read_head(&[0x81, 10], Role::Client, 10).unwrap().is_some());
        assert!(read_head(&[0x89, 11], Role::Client, 10).unwrap().is_some(), "pings have their own limit");
    }

    #[test]
    fn close_frames_have_a_valid_code() {
        assert_eq!(parse_close(b""), Ok(None));
        assert_eq!(parse_close(&[0x03, 0xe8]), Ok(Some((1000, ""))));
        assert_eq!(parse_close(&[0x0f, 0xa0, b'o', b'k']), Ok(Some((4000, "ok"))));
        assert_eq!(parse_close(&[0x03]).unwrap_err().close_code(), 1002);
        assert_eq!(parse_close(&[0x03, 0xe8, 0xff]), Err(WsError::NotUtf8));
        for code in [0u16, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
            assert_eq!(parse_close(&code.to_be_bytes()).unwrap_err().close_code(), 1002, "{code}");
        }
    }

    #[test]
    fn a_long_close_reason_is_cut_at_a_character_boundary() {
        let mut out = Vec::new();
        write_close(&mut out, 1008, &"ä".repeat(100));
        let head = read_head(&out, Role::Client, MAX).unwrap().unwrap();
        assert_eq!((head.head_len, head.payload_len), (2, out.len() - 2));
        assert_eq!(parse_close(&out[2..]), Ok(Some((1008, &*"ä".repeat(61)))));
    }

    #[test]
    fn each_length_form_begins_where_the_last_ends() {
        for (len, head_len) in [(0, 2), (125, 2), (126, 4), (65535, 4), (65536, 10)] {
            let mut out = Vec::new();
            write_head(&mut out, Opcode::Text, len);
            let head = read_head(&out, Role::Client, MAX).unwrap().unwrap();
            assert_eq!((head.head_len, head.payload_len, out.len()), (head_len, len, head_len));
        }
    }

    proptest! {
        #[test]
        fn masked_frames_read_back(payload in proptest::collection::vec(any::<u8>(), 0..700), mask: [u8; 4]) {
            let mut out = b"x".to_vec();
            write_frame_masked(&mut out, Opcode::Binary, &payload, mask);
            let frame = &mut out[1..];
            let head = read_head(frame, Role::Server, MAX).unwrap().unwrap();
            prop_assert_eq!(head.mask, Some(mask));
            prop_assert_eq!(head.payload_len, payload.len());
            unmask(&mut frame[head.head_len..], mask);
            prop_assert_eq!(&frame[head.head_len..], &payload[..]);
        }

        #[test]
        fn a_prefix_never_contradicts_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            for role in [Role::Server, Role::Client] {
                let whole = read_head(&bytes, role, MAX);
                for len in 0..bytes.len() {
                    let part = read_head(&bytes[..len], role, MAX);
                    prop_assert!(part == Ok(None) || part == whole, "{:?} {:?}", part, whole);
                }
            }
        }
    }
}
