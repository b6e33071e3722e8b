//! WebSocket frames (RFC 6455) of a client, without extensions: heads of received frames, masked frames to send.
//! Must hold: a bad head is refused as soon as its bytes are there; a payload above the caller's limit is refused.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opcode {
    /// A message, or a part of one: the bits of a text, a binary or a continuation.
    Data(u8),
    Close,
    Ping,
    Pong,
}

pub(super) const TEXT: Opcode = Opcode::Data(1);
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
/// The largest payload of a control frame, by the standard.
const CONTROL_BYTES: usize = 125;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub fin: bool,
    pub opcode: Opcode,
    pub head_len: usize,
    pub payload_len: usize,
}

/// Parses the head of the frame at the start of `input`. None: more bytes are needed.
pub(super) fn read_head(input: &[u8], max_payload: usize) -> Result<Option<FrameHead>, &'static str> {
    let &[first, second, ref rest @ ..] = input else { return Ok(None) };
    let opcode = match first & 0x7f {
        bits @ 0..=2 => Opcode::Data(bits),
        8 => Opcode::Close,
        9 => Opcode::Ping,
        10 => Opcode::Pong,
        _ => return Err("the server sent a frame of an unknown kind"),
    };
    if second & MASKED != 0 {
        return Err("the server sent a masked frame");
    }
    let (announced, rest) = match second {
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
    let is_data = matches!(opcode, Opcode::Data(_));
    let max = if is_data { max_payload } else { CONTROL_BYTES };
    let payload_len = usize::try_from(announced).ok().filter(|len| *len <= max);
    let payload_len = payload_len.ok_or("the server sent a message that is too large")?;
    let fin = first & FIN != 0;
    if !fin && !is_data {
        return Err("the server sent a part of a control frame");
    }
    Ok(Some(FrameHead { fin, opcode, head_len: input.len() - rest.len(), payload_len }))
}

/// Appends a masked frame.
pub(super) fn write(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    let bits = match opcode {
        Opcode::Data(bits) => bits,
        Opcode::Close => 8,
        Opcode::Ping => 9,
        Opcode::Pong => 10,
    };
    out.push(FIN | bits);
    if payload.len() <= CONTROL_BYTES {
        out.push(MASKED | payload.len() as u8);
    } else if let Ok(len) = u16::try_from(payload.len()) {
        out.push(MASKED | 126);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(MASKED | 127);
        out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
    }
    out.extend_from_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
}

/// The code and reason of a close frame, if it has one.
pub(super) fn parse_close(payload: &[u8]) -> Option<(u16, &str)> {
    let (code, reason) = payload.split_first_chunk::<2>()?;
    Some((u16::from_be_bytes(*code), std::str::from_utf8(reason).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    #[test]
    fn heads_of_every_length_are_read() {
        for len in [0, 1, 125, 126, 65_535, 65_536, MAX] {
            let mut frame = Vec::new();
            write(&mut frame, TEXT, &vec![b'x'; len], [1, 2, 3, 4]);
            let masked_head = frame.len() - len;
            assert_eq!(frame[masked_head..].first(), (len > 0).then_some(&(b'x' ^ 1)));
            // As a server sends it: without the mask.
            frame[1] &= 0x7f;
            frame.drain(masked_head - 4..masked_head);
            let head = FrameHead { fin: true, opcode: TEXT, head_len: masked_head - 4, payload_len: len };
            assert_eq!(read_head(&frame, MAX), Ok(Some(head)));
            for part in 0..masked_head - 4 {
                assert_eq!(read_head(&frame[..part], MAX), Ok(None));
            }
        }
    }

    #[test]
    fn frames_that_no_server_may_send_are_refused() {
        let too_large = [&[0x81, 127][..], &(MAX as u64 + 1).to_be_bytes()].concat();
        let endless = [&[0x81, 127][..], &[0xff; 8]].concat();
        for bad in
            [&[0x83, 0][..], &[0xc1, 0], &[0x81, 0x80], &[0x08, 0], &[0x89, 126, 1, 0], &too_large, &endless]
        {
            assert!(read_head(bad, MAX).is_err(), "{bad:02x?}");
        }
        assert_eq!(parse_close(&[0x0f, 0xa0, b'a']), Some((4000, "a")));
        assert_eq!(parse_close(&[1]), None);
    }
}
