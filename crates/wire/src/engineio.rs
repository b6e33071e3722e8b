//! Engine.IO, revision 4: packets, the payload of a poll, the `open` packet and the errors of the handshake. Text only: a
//! binary packet is refused.
//! Must hold: a payload has no more packets than the caller allows; a packet is read without a copy.

use crate::json::string;

/// Between the packets of a payload.
pub const SEPARATOR: u8 = 0x1e;
/// What a probe carries.
pub const PROBE: &str = "probe";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    Open,
    Close,
    Ping,
    Pong,
    Message,
    Upgrade,
    Noop,
}

impl PacketKind {
    fn digit(self) -> u8 {
        match self {
            PacketKind::Open => b'0',
            PacketKind::Close => b'1',
            PacketKind::Ping => b'2',
            PacketKind::Pong => b'3',
            PacketKind::Message => b'4',
            PacketKind::Upgrade => b'5',
            PacketKind::Noop => b'6',
        }
    }

    fn of_digit(digit: u8) -> Option<PacketKind> {
        Some(match digit {
            b'0' => PacketKind::Open,
            b'1' => PacketKind::Close,
            b'2' => PacketKind::Ping,
            b'3' => PacketKind::Pong,
            b'4' => PacketKind::Message,
            b'5' => PacketKind::Upgrade,
            b'6' => PacketKind::Noop,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub kind: PacketKind,
    pub data: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("a packet is empty")]
    Empty,
    #[error("binary packets are not supported")]
    Binary,
    #[error("unknown packet type")]
    UnknownType,
    #[error("a payload holds too many packets")]
    TooMany,
}

/// One packet: a digit and its data. A WebSocket frame holds one.
pub fn read_packet(text: &str) -> Result<Packet<'_>, PacketError> {
    let first = *text.as_bytes().first().ok_or(PacketError::Empty)?;
    if first == b'b' {
        return Err(PacketError::Binary);
    }
    let kind = PacketKind::of_digit(first).ok_or(PacketError::UnknownType)?;
    Ok(Packet { kind, data: &text[1..] })
}

/// The packets in the body of a `POST`.
pub fn read_payload(text: &str, max: usize) -> Result<Vec<Packet<'_>>, PacketError> {
    let mut packets = Vec::new();
    for part in text.split(char::from(SEPARATOR)) {
        if packets.len() == max {
            return Err(PacketError::TooMany);
        }
        packets.push(read_packet(part)?);
    }
    Ok(packets)
}

pub fn write_packet(out: &mut Vec<u8>, packet: Packet<'_>) {
    out.push(packet.kind.digit());
    out.extend_from_slice(packet.data.as_bytes());
}

/// Appends a packet to the answer of a poll.
pub fn append_to_payload(out: &mut Vec<u8>, packet: &[u8]) {
    if !out.is_empty() {
        out.push(SEPARATOR);
    }
    out.extend_from_slice(packet);
}

/// The handshake of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Handshake<'a> {
    pub sid: &'a str,
    /// Whether the client may go on with a WebSocket.
    pub upgrades: bool,
    pub ping_interval_ms: u64,
    pub ping_timeout_ms: u64,
    pub max_payload: usize,
}

/// The `open` packet.
pub fn write_open(out: &mut Vec<u8>, handshake: &Handshake<'_>) {
    out.extend_from_slice(b"0{\"sid\":");
    string(out, handshake.sid);
    let upgrades = if handshake.upgrades { "[\"websocket\"]" } else { "[]" };
    let Handshake { ping_interval_ms, ping_timeout_ms, max_payload, .. } = handshake;
    let rest = format!(
        ",\"upgrades\":{upgrades},\"pingInterval\":{ping_interval_ms},\"pingTimeout\":{ping_timeout_ms},\
         \"maxPayload\":{max_payload}}}"
    );
    out.extend_from_slice(rest.as_bytes());
}

/// Why a request is refused, with the codes of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeError {
    UnknownTransport,
    UnknownSession,
    BadMethod,
    BadRequest,
    Forbidden,
    UnsupportedVersion,
}

impl HandshakeError {
    pub fn http_status(self) -> u16 {
        if self == HandshakeError::Forbidden { 403 } else { 400 }
    }

    /// `{"code":1,"message":"Session ID unknown"}`.
    pub fn body(self) -> Vec<u8> {
        let (code, message) = match self {
            HandshakeError::UnknownTransport => (0, "Transport unknown"),
            HandshakeError::UnknownSession => (1, "Session ID unknown"),
            HandshakeError::BadMethod => (2, "Bad handshake method"),
            HandshakeError::BadRequest => (3, "Bad request"),
            HandshakeError::Forbidden => (4, "Forbidden"),
            HandshakeError::UnsupportedVersion => (5, "Unsupported protocol version"),
        };
        format!("{{\"code\":{code},\"message\":\"{message}\"}}").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packets_are_a_digit_and_their_data() {
        for (text, kind, data) in [
            ("0{}", PacketKind::Open, "{}"),
            ("1", PacketKind::Close, ""),
            ("2probe", PacketKind::Ping, "probe"),
            ("3probe", PacketKind::Pong, "probe"),
            ("4ü", PacketKind::Message, "ü"),
            ("5", PacketKind::Upgrade, ""),
            ("6", PacketKind::Noop, ""),
        ] {
            let packet = read_packet(text).unwrap();
            assert_eq!(packet, Packet { kind, data });
            let mut out = Vec::new();
            write_packet(&mut out, packet);
            assert_eq!(out, text.as_bytes());
        }
        for (text, error) in [
            ("", PacketError::Empty),
            ("bAQ==", PacketError::Binary),
            ("7", PacketError::UnknownType),
            ("ü", PacketError::UnknownType),
        ] {
            assert_eq!(read_packet(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_payload_is_packets_with_separators() {
        let packets = read_payload("4a\u{1e}3\u{1e}4b", 3).unwrap();
        assert_eq!(packets.iter().map(|packet| packet.data).collect::<Vec<_>>(), ["a", "", "b"]);
        let mut out = Vec::new();
        for packet in ["4a", "3", "4b"] {
            append_to_payload(&mut out, packet.as_bytes());
        }
        assert_eq!(out, b"4a\x1e3\x1e4b");
        assert_eq!(read_payload("4a\u{1e}4b", 1), Err(PacketError::TooMany));
        assert_eq!(read_payload("4a\u{1e}", 9), Err(PacketError::Empty));
        assert_eq!(read_payload("4a\u{1e}bAQ==", 9), Err(PacketError::Binary));
    }

    #[test]
    fn the_open_packet_names_the_session_and_the_heartbeat() {
        let mut out = Vec::new();
        let handshake = Handshake {
            sid: "abc",
            upgrades: true,
            ping_interval_ms: 25_000,
            ping_timeout_ms: 20_000,
            max_payload: 1_000_000,
        };
        write_open(&mut out, &handshake);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"0{"sid":"abc","upgrades":["websocket"],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#
        );
        let error = HandshakeError::UnknownSession;
        assert_eq!(error.body(), br#"{"code":1,"message":"Session ID unknown"}"#);
        assert_eq!((error.http_status(), HandshakeError::Forbidden.http_status()), (400, 403));
    }

    proptest! {
        #[test]
        fn no_payload_panics_and_every_packet_is_written_as_it_was_read(text in "\\PC{0,40}") {
            if let Ok(packets) = read_payload(&text, 8) {
                let mut out = Vec::new();
                for packet in packets {
                    let mut one = Vec::new();
                    write_packet(&mut one, packet);
                    append_to_payload(&mut out, &one);
                }
                prop_assert_eq!(out, text.into_bytes());
            }
        }
    }
}
