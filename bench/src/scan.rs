//! Counting what arrived, reading no more of it than the count needs. Holds no socket and no state: bytes in,
//! a `ScanResult` of the whole frames among them out; the rest is scanned again with what follows.
//! Must hold: an error, a refusal or a close from the server is never counted as a message.

use anyhow::{Context, bail, ensure};
use memchr::memmem;

use crate::frame;

/// What stands in a stretch of bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ScanResult {
    /// Bytes that are done with.
    pub consumed: usize,
    /// Messages for a listener, replies for a publisher.
    pub count: u64,
    /// Where the payload of the first and of the last message begins.
    pub first: Option<usize>,
    pub last: Option<usize>,
    /// The server asked for a sign of life with these bytes.
    pub ping: Option<Vec<u8>>,
    /// The cursor of a poll's answer; its presence means that the poll was answered.
    pub cursor: Option<u64>,
    /// The server closes the connection after this reply.
    pub closes: bool,
    /// The recipients that the last reply named.
    pub receivers: Option<u64>,
}

/// Messages of one length (Redis protocol, NATS): counted by striding. Between them NATS may ask for a pong.
pub fn fixed(bytes: &[u8], head: &[u8], size: usize) -> anyhow::Result<ScanResult> {
    let mut scanned = ScanResult::default();
    let stride = head.len() + size + 2;
    let mut at = 0;
    loop {
        let run = at;
        while bytes.len() - at >= stride && bytes[at] == head[0] {
            at += stride;
            scanned.count += 1;
        }
        if at > run {
            ensure!(bytes[run..].starts_with(head), "unexpected bytes: {}", quote(&bytes[run..]));
            ensure!(
                bytes[at - stride..].starts_with(head),
                "unexpected bytes: {}",
                quote(&bytes[at - stride..])
            );
            scanned.first.get_or_insert(run + head.len());
            scanned.last = Some(at - stride + head.len());
        }
        if at == bytes.len() || bytes[at] == head[0] {
            break;
        }
        let Some(line) = line(&bytes[at..]) else { break };
        match line {
            b"PING" => scanned.ping = Some(Vec::new()),
            b"PONG" | b"+OK" => {}
            _ => bail!("unexpected bytes: {}", quote(line)),
        }
        at += line.len() + 2;
    }
    scanned.consumed = at;
    Ok(scanned)
}

/// A server's WebSocket frame: opcode, payload, and its length with the head.
pub fn websocket_frame(bytes: &[u8]) -> anyhow::Result<Option<(u8, &[u8], usize)>> {
    let [first, second, ..] = *bytes else { return Ok(None) };
    ensure!(first & 0xf0 == 0x80 && second & 0x80 == 0, "a fragmented, compressed or masked WebSocket frame");
    let (head, size) = match second {
        126 => match bytes.get(2..4) {
            Some(size) => (4, usize::from(u16::from_be_bytes([size[0], size[1]]))),
            None => return Ok(None),
        },
        127 => match bytes.get(2..10) {
            Some(size) => {
                let size = u64::from_be_bytes(size.try_into().context("eight bytes")?);
                ensure!(size < 1 << 24, "a WebSocket frame of {size} bytes");
                (10, size as usize)
            }
            None => return Ok(None),
        },
        size => (2, usize::from(size)),
    };
    Ok(bytes.get(head..head + size).map(|payload| (first & 15, payload, head + size)))
}

/// Numbered events on a WebSocket.
pub fn events(bytes: &[u8]) -> anyhow::Result<ScanResult> {
    counted(bytes, |payload| payload.starts_with(br#"{"seq":"#))
}

/// Events of a Pusher client, of the name that loads use.
pub fn pusher_events(bytes: &[u8]) -> anyhow::Result<ScanResult> {
    counted(bytes, |payload| memmem::find(payload, br#""event":"bench""#).is_some())
}

fn counted(bytes: &[u8], is_message: impl Fn(&[u8]) -> bool) -> anyhow::Result<ScanResult> {
    let mut scanned = ScanResult::default();
    let (mut first, mut last) = (None, None);
    while let Some((opcode, payload, length)) = websocket_frame(&bytes[scanned.consumed..])? {
        match opcode {
            frame::TEXT if is_message(payload) => {
                scanned.count += 1;
                let end = scanned.consumed + length;
                let range = (end - payload.len(), end);
                first.get_or_insert(range);
                last = Some(range);
            }
            frame::PING => scanned.ping = Some(payload.to_vec()),
            frame::PONG => {}
            _ => bail!("unexpected frame: {}", quote(payload)),
        }
        scanned.consumed += length;
    }
    let payload_in = |(start, end): (usize, usize)| payload(&bytes[start..end]).map(|at| start + at);
    scanned.first = first.and_then(payload_in);
    scanned.last = last.and_then(payload_in);
    Ok(scanned)
}

/// One answer to a poll, with the events in it.
pub fn poll_answer(bytes: &[u8]) -> anyhow::Result<ScanResult> {
    let Some(HttpAnswer { head, body, length }) = http_answer(bytes)? else {
        return Ok(ScanResult::default());
    };
    ensure!(head.starts_with(b"HTTP/1.1 200"), "a poll was refused: {} {}", quote(head), quote(body));
    let cursor =
        number_after(body, br#""cursor":"#).with_context(|| format!("no cursor: {}", quote(body)))?;
    for sign in [&br#""gap":true"#[..], br#""reset":true"#, br#""superseded":true"#] {
        ensure!(memmem::find(body, sign).is_none(), "a poll lost events: {}", quote(body));
    }
    let start = length - body.len();
    let first = payload(body).map(|at| start + at);
    let last = memmem::rfind(body, DATA).map(|at| start + at + DATA.len() - 1);
    let count = memmem::find_iter(body, br#""event":"message""#).count() as u64;
    Ok(ScanResult { consumed: length, count, first, last, cursor: Some(cursor), ..ScanResult::default() })
}

/// A whole HTTP answer.
pub struct HttpAnswer<'a> {
    pub head: &'a [u8],
    pub body: &'a [u8],
    /// Of both.
    pub length: usize,
}

/// The answer that these bytes begin with, once it has come whole.
pub fn http_answer(bytes: &[u8]) -> anyhow::Result<Option<HttpAnswer<'_>>> {
    let Some(end) = memmem::find(bytes, b"\r\n\r\n") else { return Ok(None) };
    let head = &bytes[..end + 2];
    let mut size = None;
    for line in head.split(|byte| *byte == b'\n') {
        let Some((name, value)) = line.split_at_checked(15) else { continue };
        if name.eq_ignore_ascii_case(b"content-length:") {
            size = std::str::from_utf8(value)?.trim().parse::<usize>().ok();
        }
    }
    let size = size.with_context(|| format!("an answer without length: {}", quote(head)))?;
    ensure!(size < 1 << 24, "an answer of {size} bytes");
    let start = end + 4;
    Ok(bytes.get(start..start + size).map(|body| HttpAnswer { head, body, length: start + size }))
}

/// Replies to `PUBLISH`: integers.
pub fn redis_replies(bytes: &[u8]) -> anyhow::Result<ScanResult> {
    let mut scanned = ScanResult::default();
    while let Some(line) = line(&bytes[scanned.consumed..]) {
        ensure!(line.first() == Some(&b':'), "a publish was refused: {}", quote(line));
        scanned.receivers = std::str::from_utf8(&line[1..])?.parse().ok();
        scanned.count += 1;
        scanned.consumed += line.len() + 2;
    }
    Ok(scanned)
}

/// Answers of the HTTP API of Pusher's protocol.
pub fn api_replies(bytes: &[u8]) -> anyhow::Result<ScanResult> {
    let mut scanned = ScanResult::default();
    while let Some(HttpAnswer { head, body, length }) = http_answer(&bytes[scanned.consumed..])? {
        ensure!(head.starts_with(b"HTTP/1.1 200"), "a publish was refused: {} {}", quote(head), quote(body));
        scanned.closes = head.to_ascii_lowercase().windows(17).any(|text| text == b"connection: close");
        scanned.count += 1;
        scanned.consumed += length;
    }
    Ok(scanned)
}

/// `PONG`s, one for each batch of publishes.
pub fn nats_replies(bytes: &[u8]) -> anyhow::Result<ScanResult> {
    let mut scanned = ScanResult::default();
    while let Some(line) = line(&bytes[scanned.consumed..]) {
        match line {
            b"PONG" => scanned.count += 1,
            b"PING" => scanned.ping = Some(Vec::new()),
            _ if line.starts_with(b"INFO ") || line == b"+OK" => {}
            _ => bail!("a publish was refused: {}", quote(line)),
        }
        scanned.consumed += line.len() + 2;
    }
    Ok(scanned)
}

/// Replies to publishes on a WebSocket.
pub fn websocket_replies(bytes: &[u8]) -> anyhow::Result<ScanResult> {
    let mut scanned = ScanResult::default();
    while let Some((opcode, payload, length)) = websocket_frame(&bytes[scanned.consumed..])? {
        match opcode {
            frame::TEXT => {
                ensure!(memmem::find(payload, br#""ok":"#).is_some(), "refused: {}", quote(payload));
                scanned.receivers = number_after(payload, br#""receivers":"#);
                scanned.count += 1;
            }
            frame::PING => scanned.ping = Some(payload.to_vec()),
            frame::PONG => {}
            _ => bail!("unexpected frame: {}", quote(payload)),
        }
        scanned.consumed += length;
    }
    Ok(scanned)
}

/// The line that these bytes begin with, without its end, if it has come whole.
pub fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = memchr::memchr(b'\n', bytes)?;
    Some(bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]))
}

/// The beginning of foreign bytes, fit to be printed.
pub fn quote(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(160)].escape_ascii().to_string()
}

const DATA: &[u8] = br#""data":""#;

/// Where the first payload begins: at the quote after `"data":`.
fn payload(object: &[u8]) -> Option<usize> {
    memmem::find(object, DATA).map(|at| at + DATA.len() - 1)
}

fn number_after(object: &[u8], name: &[u8]) -> Option<u64> {
    let rest = &object[memmem::find(object, name)? + name.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::delivery_head;
    use crate::stamp::{Stamp, blank};
    use crate::target::Protocol;

    fn messages(head: &[u8], size: usize, numbers: std::ops::Range<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        for number in numbers {
            let mut payload = blank(size);
            Stamp { number, at_ns: 5 }.write(&mut payload);
            out.extend_from_slice(head);
            out.extend_from_slice(&payload);
            out.extend_from_slice(b"\r\n");
        }
        out
    }

    fn server_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0x80 | opcode];
        if payload.len() < 126 {
            out.push(payload.len() as u8);
        } else {
            out.push(126);
            out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        }
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn messages_of_one_length_are_counted_at_every_cut() {
        let head = delivery_head(Protocol::Redis, "game#A", 16).unwrap();
        let bytes = messages(&head, 16, 0..4);
        let stride = bytes.len() / 4;
        for cut in 0..=bytes.len() {
            let scanned = fixed(&bytes[..cut], &head, 16).unwrap();
            assert_eq!(scanned.count as usize, cut / stride);
            assert_eq!(scanned.consumed, cut / stride * stride);
            let last = scanned.last.map(|at| Stamp::read(&bytes[at..]).unwrap().number + 1);
            assert_eq!(last.unwrap_or(0) as usize, cut / stride);
        }
    }

    #[test]
    fn a_nats_ping_between_messages_is_heard() {
        let head = delivery_head(Protocol::Nats, "game.A", 16).unwrap();
        let mut bytes = messages(&head, 16, 0..2);
        bytes.extend_from_slice(b"PING\r\n");
        bytes.extend(messages(&head, 16, 2..3));
        let scanned = fixed(&bytes, &head, 16).unwrap();
        assert_eq!((scanned.count, scanned.consumed), (3, bytes.len()));
        assert_eq!(scanned.ping, Some(Vec::new()));
        assert_eq!(Stamp::read(&bytes[scanned.first.unwrap()..]).unwrap().number, 0);
        assert_eq!(Stamp::read(&bytes[scanned.last.unwrap()..]).unwrap().number, 2);
    }

    #[test]
    fn an_error_is_no_message() {
        let head = delivery_head(Protocol::Redis, "a", 16).unwrap();
        assert!(fixed(b"-ERR no\r\n", &head, 16).is_err());
        assert!(fixed(&[b'*'; 100], &head, 16).is_err());
        assert!(redis_replies(b":1\r\n-ERR no\r\n").is_err());
        assert!(nats_replies(b"-ERR 'no'\r\n").is_err());
        assert!(events(&server_frame(8, b"")).is_err());
        assert!(events(&server_frame(frame::TEXT, br#"{"event":"superseded"}"#)).is_err());
        assert!(websocket_replies(&server_frame(frame::TEXT, br#"{"id":1,"error":{}}"#)).is_err());
    }

    #[test]
    fn websocket_events_are_counted_and_their_stamps_found() {
        let mut bytes = Vec::new();
        for number in 1..=12u64 {
            let mut payload = blank(256);
            Stamp { number, at_ns: 5 }.write(&mut payload);
            let text = format!(
                r#"{{"seq":{number},"event":"message","channel":"game#A","data":{},"from":{{"user":"a"}}}}"#,
                String::from_utf8(payload).unwrap()
            );
            bytes.extend(server_frame(frame::TEXT, text.as_bytes()));
        }
        bytes.extend(server_frame(frame::PING, b"hi"));
        let whole = bytes.len();
        bytes.extend_from_slice(&[0x81]);
        let scanned = events(&bytes).unwrap();
        assert_eq!((scanned.count, scanned.consumed), (12, whole));
        assert_eq!(Stamp::read(&bytes[scanned.first.unwrap()..]).unwrap().number, 1);
        assert_eq!(Stamp::read(&bytes[scanned.last.unwrap()..]).unwrap().number, 12);
        assert_eq!(scanned.ping.as_deref(), Some(&b"hi"[..]));
    }

    #[test]
    fn events_of_pusher_are_counted_and_errors_are_not() {
        let event = br#"{"event":"bench","channel":"a","data":"000001000000000x"}"#;
        let bytes = [server_frame(frame::TEXT, event), server_frame(frame::TEXT, event)].concat();
        let scanned = pusher_events(&bytes).unwrap();
        assert_eq!((scanned.count, scanned.consumed), (2, bytes.len()));
        assert_eq!(Stamp::read(&bytes[scanned.last.unwrap()..]).unwrap().number, 1);
        let error = br#"{"event":"pusher:error","data":{"code":4100,"message":"no"}}"#;
        assert!(pusher_events(&server_frame(frame::TEXT, error)).is_err());
        let answers = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200";
        let scanned = api_replies(answers).unwrap();
        assert_eq!((scanned.count, scanned.consumed, scanned.closes), (1, answers.len() - 12, false));
        let last = b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n";
        assert!(api_replies(last).unwrap().closes);
        assert!(api_replies(b"HTTP/1.1 401 no\r\ncontent-length: 0\r\n\r\n").is_err());
    }

    #[test]
    fn replies_are_counted_with_their_recipients() {
        let scanned = redis_replies(b":10\r\n:10\r\n:1").unwrap();
        assert_eq!((scanned.count, scanned.consumed, scanned.receivers), (2, 10, Some(10)));
        let scanned = nats_replies(b"PONG\r\nPON").unwrap();
        assert_eq!((scanned.count, scanned.consumed), (1, 6));
        let bytes = server_frame(frame::TEXT, br#"{"id":1,"ok":{"receivers":7}}"#);
        let scanned = websocket_replies(&bytes).unwrap();
        assert_eq!((scanned.count, scanned.receivers), (1, Some(7)));
    }

    #[test]
    fn a_poll_answer_gives_its_events_and_its_cursor() {
        let body = r#"{"session":"s","cursor":18,"events":[{"seq":17,"event":"message","data":"000001000000000x"},{"seq":18,"event":"message","data":"000002000000000x"}],"more":false}"#;
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        for cut in 0..text.len() {
            assert_eq!(poll_answer(&text.as_bytes()[..cut]).unwrap().cursor, None);
        }
        let scanned = poll_answer(text.as_bytes()).unwrap();
        assert_eq!((scanned.count, scanned.cursor, scanned.consumed), (2, Some(18), text.len()));
        assert_eq!(Stamp::read(&text.as_bytes()[scanned.first.unwrap()..]).unwrap().number, 1);
        assert_eq!(Stamp::read(&text.as_bytes()[scanned.last.unwrap()..]).unwrap().number, 2);
    }

    #[test]
    fn a_poll_that_lost_events_is_a_fault() {
        for body in [r#"{"cursor":1,"events":[],"gap":true}"#, r#"{"events":[]}"#] {
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            assert!(poll_answer(text.as_bytes()).is_err());
        }
        assert!(poll_answer(b"HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n").is_err());
    }
}
