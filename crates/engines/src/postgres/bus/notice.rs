//! The text of a notification: `stream.serial.kind.rest`. A stream is one connection of a node, chosen at random; a serial
//! counts its notifications on one lane, so that a listener sees a hole. Must hold: a notification is at most as long as
//! Postgres accepts, and a text that no node wrote is not one.

use super::lane::{EVERYBODY, LANES};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Postgres accepts payloads of less than 8,000 bytes.
const TEXT_BYTES: usize = 7_999;
/// The longest batch that travels in a notification: base64 makes four bytes out of three.
pub const INLINE_BYTES: usize = (TEXT_BYTES - 64) / 4 * 3;

#[derive(Debug, PartialEq, Eq)]
pub struct BusNotice {
    pub stream: u64,
    pub serial: u64,
    pub body: NoticeBody,
}

#[derive(Debug, PartialEq, Eq)]
pub enum NoticeBody {
    /// Messages.
    Batch(Vec<u8>),
    /// Messages in the ring.
    Stored { turn: u64, batch: u64 },
    /// Earlier messages of this node, on another connection, may be lost. With the subject of the cluster's losses.
    Loss(String),
    /// The last serial on each of these lanes: sent after the stream became quiet, because a hole at the end shows only so.
    Heads(Vec<(usize, u64)>),
}

/// Numbers the notifications of one connection.
pub struct NoticeWriter {
    stream: u64,
    serials: [u64; LANES + 1],
    /// As the last notification with heads had them.
    told: [u64; LANES + 1],
}

impl NoticeWriter {
    pub fn new(stream: u64) -> NoticeWriter {
        NoticeWriter { stream, serials: [0; LANES + 1], told: [0; LANES + 1] }
    }

    /// The text of a notification with the heads of all lanes, for the lane of all nodes. None: nothing was sent since the last
    /// one.
    pub fn heads(&mut self) -> Option<String> {
        if self.serials == self.told {
            return None;
        }
        let heads =
            self.serials[..LANES].iter().copied().enumerate().filter(|&(_, serial)| serial > 0).collect();
        let text = self.notice(EVERYBODY, NoticeBody::Heads(heads));
        self.told = self.serials;
        Some(text)
    }

    /// The text of the next notification on a lane.
    pub fn notice(&mut self, lane: usize, body: NoticeBody) -> String {
        self.serials[lane] += 1;
        BusNotice { stream: self.stream, serial: self.serials[lane], body }.write()
    }
}

impl BusNotice {
    pub fn write(&self) -> String {
        let BusNotice { stream, serial, body } = self;
        let (kind, rest) = match body {
            NoticeBody::Batch(bytes) => ('m', STANDARD.encode(bytes)),
            NoticeBody::Stored { turn, batch } => ('r', format!("{turn:x}.{batch:x}")),
            NoticeBody::Loss(subject) => ('l', subject.clone()),
            NoticeBody::Heads(heads) => {
                let heads = heads.iter().map(|(lane, serial)| format!("{lane:x}.{serial:x}"));
                ('h', heads.collect::<Vec<_>>().join(","))
            }
        };
        let text = format!("{stream:016x}.{serial:x}.{kind}.{rest}");
        assert!(text.len() <= TEXT_BYTES, "a notification of {} bytes", text.len());
        text
    }

    /// None: no node wrote it.
    pub fn read(text: &str) -> Option<BusNotice> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut parts = text.splitn(4, '.');
        let (stream, serial) = (number(parts.next()?)?, number(parts.next()?)?);
        let (kind, rest) = (parts.next()?, parts.next()?);
        let body = match kind {
            "m" => NoticeBody::Batch(STANDARD.decode(rest).ok()?),
            "r" => {
                let (turn, batch) = rest.split_once('.')?;
                NoticeBody::Stored { turn: number(turn)?, batch: number(batch)? }
            }
            "l" => NoticeBody::Loss(rest.to_owned()),
            "h" => {
                let head = |head: &str| {
                    let (lane, serial) = head.split_once('.')?;
                    let lane = usize::try_from(number(lane)?).ok().filter(|&lane| lane < LANES)?;
                    Some((lane, number(serial)?))
                };
                NoticeBody::Heads(
                    rest.split(',').filter(|head| !head.is_empty()).map(head).collect::<Option<_>>()?,
                )
            }
            _ => return None,
        };
        Some(BusNotice { stream, serial, body })
    }

    /// Whether a text is of this stream, before it is read.
    pub fn is_of(text: &str, stream: u64) -> bool {
        text.get(..16).is_some_and(|front| u64::from_str_radix(front, 16) == Ok(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_as_it_was_written() {
        let bodies = [
            NoticeBody::Batch(vec![0xff; INLINE_BYTES]),
            NoticeBody::Batch(Vec::new()),
            NoticeBody::Stored { turn: 7, batch: u64::MAX },
            NoticeBody::Loss("tavern._bus.%".into()),
            NoticeBody::Heads((0..LANES).map(|lane| (lane, u64::MAX)).collect()),
            NoticeBody::Heads(Vec::new()),
        ];
        for body in bodies {
            let notice = BusNotice { stream: 0xabc, serial: u64::MAX, body };
            let text = notice.write();
            assert!(BusNotice::is_of(&text, 0xabc) && !BusNotice::is_of(&text, 0xabd));
            assert_eq!(BusNotice::read(&text), Some(notice));
        }
    }

    #[test]
    fn a_text_that_no_node_wrote_is_no_notice() {
        for text in [
            "",
            "hello",
            "1.2.m.***",
            "1.2.r.5",
            "1.2.x.5",
            "1.2.m",
            "x.2.l.a",
            "1.-2.l.a",
            "1.2.h.1f.1",
            "1.2.h.1",
        ] {
            assert_eq!(BusNotice::read(text), None, "{text}");
        }
    }

    #[test]
    fn heads_are_sent_once_after_notifications() {
        let mut out = NoticeWriter::new(1);
        assert_eq!(out.heads(), None);
        out.notice(3, NoticeBody::Batch(Vec::new()));
        out.notice(3, NoticeBody::Batch(Vec::new()));
        let heads = BusNotice { stream: 1, serial: 1, body: NoticeBody::Heads(vec![(3, 2)]) };
        assert_eq!(out.heads(), Some(heads.write()));
        assert_eq!(out.heads(), None);
        out.notice(EVERYBODY, NoticeBody::Batch(Vec::new()));
        assert!(out.heads().is_some());
    }
}
