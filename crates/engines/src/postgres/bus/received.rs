//! Notifications between the connection, which must always be read, and the deliveries, which may have to wait for the node;
//! and what has been seen of each stream. Must hold: bounded; what is dropped or missing is reported as a loss.

use super::lane::LANES;
use super::notice::{BusNotice, NoticeBody};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tavern_store::BusPacket;
use tokio::sync::Notify;

/// Bytes of notifications that wait. A server that cannot send keeps a snapshot, which holds up VACUUM, so the node reads
/// on and drops what it cannot take.
const WAITING_BYTES: usize = 32 * 1024 * 1024;
/// Streams that are remembered: nodes, and their earlier connections up to this many.
const STREAMS: usize = 4096;
/// Batches of the ring that are read together.
const READ_BATCHES: usize = 4;
/// Messages, and batches of the ring, that are delivered before more notifications are read.
const ARRIVAL_ITEMS: usize = 256;

/// Notifications that wait for the node.
#[derive(Default)]
pub struct Notices {
    waiting: Mutex<WaitingNotices>,
    arrived: Notify,
}

#[derive(Default)]
struct WaitingNotices {
    /// Channel and text.
    notices: VecDeque<(String, String)>,
    bytes: usize,
    has_dropped: bool,
    is_closed: bool,
}

pub enum ReceivedNotice {
    Notices(VecDeque<(String, String)>),
    /// The node was too slow: these notifications are dropped.
    Dropped,
    Closed,
}

impl Notices {
    pub fn push(&self, channel: String, text: String) {
        let mut waiting = self.lock();
        if waiting.bytes + text.len() > WAITING_BYTES {
            (waiting.bytes, waiting.has_dropped) = (0, true);
            waiting.notices.clear();
        }
        waiting.bytes += channel.len() + text.len();
        waiting.notices.push_back((channel, text));
        drop(waiting);
        self.arrived.notify_one();
    }

    /// The connection ended.
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.arrived.notify_one();
    }

    pub async fn next(&self) -> ReceivedNotice {
        loop {
            {
                let mut waiting = self.lock();
                if std::mem::take(&mut waiting.has_dropped) {
                    return ReceivedNotice::Dropped;
                }
                if !waiting.notices.is_empty() {
                    waiting.bytes = 0;
                    return ReceivedNotice::Notices(std::mem::take(&mut waiting.notices));
                }
                if waiting.is_closed {
                    return ReceivedNotice::Closed;
                }
            }
            self.arrived.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, WaitingNotices> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What some notifications brought, in their order.
#[derive(Default)]
pub struct ArrivedNotices {
    pub parts: Vec<ArrivedPart>,
    items: usize,
}

pub enum ArrivedPart {
    Messages(Vec<BusPacket>),
    /// Batches of the ring, of one stream.
    Stored {
        stream: u64,
        turn: u64,
        batches: Vec<u64>,
    },
    Lost,
}

impl ArrivedNotices {
    pub fn add(&mut self, messages: Vec<BusPacket>) {
        self.items += messages.len();
        match self.parts.last_mut() {
            Some(ArrivedPart::Messages(last)) => last.extend(messages),
            _ => self.parts.push(ArrivedPart::Messages(messages)),
        }
    }

    pub fn add_stored(&mut self, stream: u64, turn: u64, batch: u64) {
        self.items += 1;
        match self.parts.last_mut() {
            Some(ArrivedPart::Stored { stream: of, turn: at, batches })
                if (*of, *at) == (stream, turn) && batches.len() < READ_BATCHES =>
            {
                batches.push(batch);
            }
            _ => self.parts.push(ArrivedPart::Stored { stream, turn, batches: vec![batch] }),
        }
    }

    pub fn lose(&mut self) {
        self.parts.push(ArrivedPart::Lost);
    }

    /// So much that it should be delivered before more is read.
    pub fn is_enough(&self) -> bool {
        self.items >= ARRIVAL_ITEMS
    }
}

/// What has been seen of the streams of other nodes.
#[derive(Default)]
pub struct SeenStreams {
    streams: HashMap<u64, SeenStream>,
    /// The lanes that the node listens to.
    heard: [bool; LANES],
}

#[derive(Default)]
struct SeenStream {
    /// The last serial on each lane; 0: none since the node listens to it.
    serials: [u64; LANES + 1],
    /// The last batch of the ring: it may be named on several lanes.
    batch: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Sight {
    /// What it tells was not seen before.
    pub is_new: bool,
    /// Something before it was not received.
    pub is_after_hole: bool,
}

impl SeenStreams {
    /// The node begins or ends to listen to a lane.
    pub fn hear(&mut self, lane: usize, is_heard: bool) {
        self.heard[lane] = is_heard;
        self.streams.values_mut().for_each(|stream| stream.serials[lane] = 0);
    }

    pub fn see(&mut self, lane: usize, notice: &BusNotice) -> Sight {
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&notice.stream) {
            self.streams.clear();
        }
        let stream = self.streams.entry(notice.stream).or_default();
        let last = stream.serials[lane];
        if notice.serial <= last {
            return Sight { is_new: false, is_after_hole: false };
        }
        stream.serials[lane] = notice.serial;
        let is_new = match &notice.body {
            NoticeBody::Stored { batch, .. } => *batch > std::mem::replace(&mut stream.batch, *batch),
            NoticeBody::Batch(_) | NoticeBody::Loss(_) | NoticeBody::Heads(_) => true,
        };
        let mut is_after_hole = last > 0 && notice.serial != last + 1;
        if let NoticeBody::Heads(heads) = &notice.body {
            for &(lane, head) in heads.iter().filter(|(lane, _)| self.heard[*lane]) {
                let seen = std::mem::replace(&mut stream.serials[lane], head);
                is_after_hole |= seen > 0 && seen < head;
            }
        }
        Sight { is_new, is_after_hole }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lane::EVERYBODY;
    use super::*;

    const NEXT: Sight = Sight { is_new: true, is_after_hole: false };
    const COPY: Sight = Sight { is_new: false, is_after_hole: false };
    const AFTER_HOLE: Sight = Sight { is_new: true, is_after_hole: true };

    fn notice(stream: u64, serial: u64) -> BusNotice {
        BusNotice { stream, serial, body: NoticeBody::Batch(Vec::new()) }
    }

    #[test]
    fn a_hole_in_a_lane_is_noticed_and_a_copy_dropped() {
        let mut seen = SeenStreams::default();
        let sights: Vec<Sight> =
            [5, 6, 6, 8, 7, 9].iter().map(|&serial| seen.see(0, &notice(1, serial))).collect();
        assert_eq!(sights, [NEXT, NEXT, COPY, AFTER_HOLE, COPY, NEXT]);
        assert_eq!(seen.see(1, &notice(1, 3)), NEXT, "another lane");
        assert_eq!(seen.see(0, &notice(2, 1)), NEXT, "another stream");
        seen.hear(0, true);
        assert_eq!(seen.see(0, &notice(1, 20)), NEXT, "it was not heard meanwhile");
    }

    #[test]
    fn a_hole_at_the_end_of_a_lane_is_noticed_by_the_heads() {
        let mut seen = SeenStreams::default();
        seen.hear(0, true);
        seen.hear(2, true);
        let heads = |serial, heads: &[_]| BusNotice {
            serial,
            body: NoticeBody::Heads(heads.to_vec()),
            ..notice(1, 0)
        };
        seen.see(0, &notice(1, 5));
        assert_eq!(
            seen.see(EVERYBODY, &heads(1, &[(0, 5), (1, 9), (2, 3)])),
            NEXT,
            "nothing is known of lanes 1 and 2"
        );
        assert_eq!(seen.see(EVERYBODY, &heads(2, &[(0, 6), (1, 10)])), AFTER_HOLE);
        assert_eq!(seen.see(EVERYBODY, &heads(3, &[(0, 6), (2, 4)])), AFTER_HOLE, "since the heads before");
        assert_eq!(seen.see(0, &notice(1, 7)), NEXT);
        seen.hear(0, false);
        assert_eq!(seen.see(EVERYBODY, &heads(4, &[(0, 9)])), NEXT, "not heard");
    }

    #[test]
    fn a_batch_that_is_named_on_two_lanes_is_read_once() {
        let mut seen = SeenStreams::default();
        let stored = |batch| BusNotice { body: NoticeBody::Stored { turn: 0, batch }, ..notice(1, batch) };
        assert_eq!([seen.see(0, &stored(1)), seen.see(1, &stored(1))], [NEXT, COPY]);
        assert_eq!([seen.see(1, &stored(2)), seen.see(0, &stored(2))], [NEXT, COPY]);
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_a_drop_is_told_first() {
        let notices = Notices::default();
        let text = "x".repeat(WAITING_BYTES / 2);
        (0..3).for_each(|_| notices.push("a".into(), text.clone()));
        notices.close();
        assert!(matches!(notices.next().await, ReceivedNotice::Dropped));
        assert!(matches!(notices.next().await, ReceivedNotice::Notices(left) if left.len() == 1));
        assert!(matches!(notices.next().await, ReceivedNotice::Closed));
    }
}
