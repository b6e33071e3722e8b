//! Bytes that the load sends: commands, publishes, WebSocket frames, HTTP requests. Reads nothing.
//! Must hold: the publishes of one publisher have the same length and differ only in their stamp, and in what is signed over it.

use crate::pusher;
use crate::stamp;
use crate::target::{Protocol, Target};

/// One publish, with the place where its stamp goes.
pub struct Publish {
    pub bytes: Vec<u8>,
    /// Where the payload begins.
    pub at: usize,
    pub size: usize,
    /// The bytes are the body of a signed request to this host.
    signed_for: Option<String>,
}

impl Publish {
    /// To a channel of listeners of this protocol.
    pub fn new(target: &Target, listeners: Protocol, channel: &str, size: usize) -> Self {
        let payload = stamp::blank(size);
        let (mut bytes, tail): (Vec<u8>, &[u8]) = match target.protocol {
            Protocol::Redis => (
                format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{channel}\r\n${size}\r\n", channel.len()).into_bytes(),
                b"\r\n",
            ),
            Protocol::Nats => (format!("PUB {channel} {size}\r\n").into_bytes(), b"\r\n"),
            Protocol::WebSocket if listeners == Protocol::Pusher => {
                let (app, event) = (pusher::APP, pusher::EVENT);
                let data = format!(r#"{{"event":"{event}","data":"#);
                let head =
                    format!(r#"{{"id":1,"op":"publish","channel":"pusher-{app}#{channel}","data":{data}"#);
                (text_frame(&head, size + 2), b"}}")
            }
            Protocol::WebSocket | Protocol::Poll => {
                let head = format!(r#"{{"id":1,"op":"publish","channel":"{channel}","data":"#);
                (text_frame(&head, size + 1), b"}")
            }
            Protocol::Pusher | Protocol::PusherApi => {
                let event = pusher::EVENT;
                (format!(r#"{{"name":"{event}","channel":"{channel}","data":"#).into_bytes(), b"}")
            }
        };
        let at = bytes.len();
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(tail);
        let signs = matches!(target.protocol, Protocol::Pusher | Protocol::PusherApi);
        let signed_for = signs.then(|| target.authority.clone());
        Self { bytes, at, size, signed_for }
    }

    /// Appends this publish with its stamp.
    pub fn append(&self, stamp: stamp::Stamp, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        stamp.write(&mut out[start + self.at..start + self.at + self.size]);
        if let Some(authority) = &self.signed_for {
            let request = pusher::request(authority, &out[start..]);
            out.truncate(start);
            out.extend_from_slice(&request);
        }
    }
}

/// The bytes before the payload of a delivered message, where every message has the same ones.
pub fn delivery_head(protocol: Protocol, channel: &str, size: usize) -> Option<Vec<u8>> {
    match protocol {
        Protocol::Redis => Some(
            format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${size}\r\n", channel.len()).into_bytes(),
        ),
        Protocol::Nats => Some(format!("MSG {channel} {NATS_SID} {size}\r\n").into_bytes()),
        Protocol::WebSocket | Protocol::Poll | Protocol::Pusher | Protocol::PusherApi => None,
    }
}

/// The subscription id of every NATS listener: each connection holds one subscription.
pub const NATS_SID: u32 = 1;

pub fn redis(arguments: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len());
    for argument in arguments {
        out.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
    }
    out.into_bytes()
}

pub const TEXT: u8 = 1;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;

/// The head of a client's frame. The mask is zero: legal, and the payload needs no pass over it.
fn masked_head(opcode: u8, size: usize) -> Vec<u8> {
    assert!(size <= usize::from(u16::MAX));
    let mut out = vec![0x80 | opcode];
    match size {
        0..=125 => out.push(0x80 | size as u8),
        _ => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(size as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(&[0; 4]);
    out
}

/// The beginning of a text frame, of which so many bytes follow.
fn text_frame(head: &str, more: usize) -> Vec<u8> {
    let mut out = masked_head(TEXT, head.len() + more);
    out.extend_from_slice(head.as_bytes());
    out
}

pub fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = masked_head(opcode, payload.len());
    out.extend_from_slice(payload);
    out
}

/// A POST with a JSON body on a connection that stays open.
pub fn post(authority: &str, path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A poll request whose cursor is replaced in place: JSON lets spaces stand before a number.
#[derive(Clone, Debug)]
pub struct PollRequest {
    pub bytes: Vec<u8>,
    at: usize,
}

const CURSOR_WIDTH: usize = 12;
/// The longest park the server grants.
const PARK_MS: u32 = 25_000;

impl PollRequest {
    pub fn new(authority: &str, query: &str, session: &str) -> Self {
        let body =
            format!(r#"{{"session":"{session}","timeout_ms":{PARK_MS},"cursor":{:>CURSOR_WIDTH$}}}"#, 0);
        let bytes = post(authority, &format!("/v1/poll{query}"), &body);
        let at = bytes.len() - 1 - CURSOR_WIDTH;
        Self { bytes, at }
    }

    pub fn set_cursor(&mut self, cursor: u64) {
        let text = format!("{cursor:>CURSOR_WIDTH$}");
        assert_eq!(text.len(), CURSOR_WIDTH);
        self.bytes[self.at..self.at + CURSOR_WIDTH].copy_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::Stamp;

    fn publish(to: Protocol, listeners: Protocol, channel: &str, size: usize) -> Publish {
        Publish::new(&Target { protocol: to, authority: "h:1".into() }, listeners, channel, size)
    }

    #[test]
    fn pusher_clients_are_published_to_in_two_ways() {
        let of = |to| {
            let mut out = Vec::new();
            publish(to, Protocol::Pusher, "a", 16).append(Stamp { number: 1, at_ns: 0 }, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        let data = r#""00000100000000""#;
        let message = format!(r#""channel":"pusher-1#a","data":{{"event":"bench","data":{data}}}}}"#);
        assert!(of(Protocol::WebSocket).ends_with(&message));
        let body = format!(r#"{{"name":"bench","channel":"a","data":{data}}}"#);
        assert!(of(Protocol::PusherApi).ends_with(&format!("Content-Length: {}\r\n\r\n{body}", body.len())));
    }

    #[test]
    fn a_publish_is_stamped_in_place() {
        for protocol in [Protocol::Redis, Protocol::Nats, Protocol::WebSocket] {
            let publish = publish(protocol, protocol, "game#A", 256);
            let stamp = Stamp { number: 7, at_ns: 9 };
            let mut out = b"before".to_vec();
            publish.append(stamp, &mut out);
            assert_eq!(out.len(), 6 + publish.bytes.len());
            assert_eq!(Stamp::read(&out[6 + publish.at..]), Some(stamp));
        }
    }

    #[test]
    fn commands_look_as_the_servers_read_them() {
        assert_eq!(redis(&["SUBSCRIBE", "a"]), b"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n");
        let publish = self::publish(Protocol::Redis, Protocol::Redis, "ab", 16);
        assert!(publish.bytes.starts_with(b"*3\r\n$7\r\nPUBLISH\r\n$2\r\nab\r\n$16\r\n\""));
        let publish = self::publish(Protocol::Nats, Protocol::Nats, "ab", 16);
        assert!(publish.bytes.starts_with(b"PUB ab 16\r\n\""));
        assert!(publish.bytes.ends_with(b"\"\r\n"));
    }

    #[test]
    fn a_websocket_publish_is_one_masked_text_frame() {
        let publish = publish(Protocol::WebSocket, Protocol::WebSocket, "game#A", 256);
        let size = usize::from(u16::from_be_bytes([publish.bytes[2], publish.bytes[3]]));
        assert_eq!(publish.bytes[..2], [0x81, 0xfe]);
        assert_eq!(publish.bytes.len(), 8 + size);
        let object: serde_json::Value = serde_json::from_slice(&publish.bytes[8..]).unwrap();
        assert_eq!(object["op"], "publish");
        assert_eq!(object["data"].as_str().unwrap().len(), 254);
        assert_eq!(masked(PONG, b"ab"), [0x8a, 0x82, 0, 0, 0, 0, b'a', b'b']);
    }

    #[test]
    fn a_poll_request_keeps_its_length_as_the_cursor_grows() {
        let mut request = PollRequest::new("h:1", "?user=a", "s3cret");
        let length = request.bytes.len();
        request.set_cursor(123_456);
        assert_eq!(request.bytes.len(), length);
        let text = String::from_utf8(request.bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["cursor"], 123_456);
    }
}
