//! Writing: what the desk has, in the server's own words. Knows no socket. Must hold: what one connection says is numbered in
//! the order in which it was said, and a subscription is written before the ping that confirms it.

use super::bus::Shared;
use super::desk::Order;
use super::dialect::Dialect;
use super::envelope::{self, Voice};
use super::link::{BYTES_TOGETHER, PING_EVERY};
use std::sync::atomic::Ordering;
use std::time::Instant;
use tavern_store::bus::BusMessage;
use tavern_store::subject::Subject;

/// Puts down in the server's words what the desk has.
pub struct Pen {
    voice: Voice,
    /// Where to tell that words were lost before this connection.
    torn: Option<Subject>,
    pinged_at: Instant,
    is_last: bool,
}

impl Pen {
    pub fn new(voice: u64, torn: Option<Subject>) -> Pen {
        Pen { voice: Voice::new(voice), torn, pinged_at: Instant::now(), is_last: false }
    }

    pub fn fill<D: Dialect>(&mut self, shared: &Shared, dialect: &mut D) -> Vec<u8> {
        let mut out = Vec::new();
        let desk = &mut *shared.desk();
        for order in desk.orders() {
            match order {
                Order::Subscribe(subject) => dialect.subscribe(&subject, &mut out),
                Order::Unsubscribe(subject) => dialect.unsubscribe(&subject, &mut out),
            }
        }
        (0..std::mem::take(&mut desk.pongs)).for_each(|_| D::pong(&mut out));
        if let Some(subject) = self.torn.take() {
            dialect.begin(&subject, envelope::HEAD_BYTES, &mut out);
            self.voice.torn(&mut out);
            out.extend_from_slice(b"\r\n");
        }
        while out.len() < BYTES_TOGETHER
            && let Some(word) = desk.next_word()
        {
            if !self.write(&word, dialect, &mut out) {
                desk.drop_word();
                shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.note_fullness(desk);
        let is_last = shared.is_stopping() && !desk.has_words() && !self.is_last;
        if desk.is_asked() || is_last || self.pinged_at.elapsed() >= PING_EVERY {
            self.pinged_at = Instant::now();
            self.is_last |= is_last;
            desk.take_off(is_last);
            D::ping(&mut out);
        }
        out
    }

    /// False: it is longer than any bound.
    fn write<D: Dialect>(&mut self, word: &BusMessage, dialect: &D, out: &mut Vec<u8>) -> bool {
        if word.from.is_outsider() {
            return plain(word, dialect, out);
        }
        let length = envelope::body_bytes(word);
        let Some(pieces) = Voice::pieces(length, dialect.longest()) else {
            tracing::warn!(bytes = length, "a word is too long for the bus");
            return false;
        };
        let pieces: Vec<usize> = pieces.collect();
        let mut body = Vec::new();
        if pieces.len() > 1 {
            envelope::body(word, &mut body);
        }
        let mut rest = &body[..];
        for (at, &bytes) in pieces.iter().enumerate() {
            dialect.begin(&word.subject, envelope::HEAD_BYTES + bytes, out);
            self.voice.head(at == 0, at + 1 == pieces.len(), out);
            if pieces.len() == 1 {
                envelope::body(word, out);
            } else {
                let (piece, after) = rest.split_at(bytes);
                out.extend_from_slice(piece);
                rest = after;
            }
            out.extend_from_slice(b"\r\n");
        }
        true
    }
}

/// For those who are no nodes: the payload alone.
fn plain<D: Dialect>(word: &BusMessage, dialect: &D, out: &mut Vec<u8>) -> bool {
    if word.payload.len() > dialect.longest() {
        tracing::warn!(bytes = word.payload.len(), "a word for other services is too long for the bus");
        return false;
    }
    dialect.begin(&word.subject, word.payload.len(), out);
    out.extend_from_slice(&word.payload);
    out.extend_from_slice(b"\r\n");
    true
}
