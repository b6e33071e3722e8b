//! Writing: the content of the outbox as commands for the server. Knows no socket. Must hold: messages of one
//! connection are numbered in the order in which they are written, and a subscription is written before the ping that
//! confirms it.

use super::fragment::{self, PacketNumbers};
use super::outbox::OutboxCommand;
use super::protocol::BusProtocol;
use super::shared::RemoteShared;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tavern_store::{BusPacket, Subject};

/// How often the server is pinged.
pub const PING_EVERY: Duration = Duration::from_secs(5);
/// Bytes in one write.
const WRITE_BYTES: usize = 256 * 1024;

pub struct FrameWriter {
    stream: PacketNumbers,
    /// Where to report that messages were lost before this connection.
    loss_subject: Option<Subject>,
    pinged_at: Instant,
    is_last: bool,
}

impl FrameWriter {
    pub fn new(stream: u64, loss_subject: Option<Subject>) -> FrameWriter {
        FrameWriter {
            stream: PacketNumbers::new(stream),
            loss_subject,
            pinged_at: Instant::now(),
            is_last: false,
        }
    }

    pub fn fill<P: BusProtocol>(&mut self, shared: &RemoteShared, protocol: &mut P) -> Vec<u8> {
        let mut out = Vec::new();
        let outbox = &mut *shared.outbox();
        for command in outbox.commands() {
            match command {
                OutboxCommand::Subscribe(subject) => protocol.subscribe(&subject, &mut out),
                OutboxCommand::Unsubscribe(subject) => protocol.unsubscribe(&subject, &mut out),
            }
        }
        (0..std::mem::take(&mut outbox.pongs)).for_each(|_| P::pong(&mut out));
        if let Some(subject) = self.loss_subject.take() {
            protocol.begin(&subject, fragment::PREFIX_BYTES, &mut out);
            self.stream.loss(&mut out);
            out.extend_from_slice(b"\r\n");
        }
        while out.len() < WRITE_BYTES
            && let Some(message) = outbox.next_message()
        {
            if !self.write(&message, protocol, &mut out) {
                outbox.drop_message();
                shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.note_fullness(outbox);
        let is_last = shared.is_stopping() && !outbox.has_messages() && !self.is_last;
        if outbox.needs_ping() || is_last || self.pinged_at.elapsed() >= PING_EVERY {
            self.pinged_at = Instant::now();
            self.is_last |= is_last;
            outbox.ping_sent(is_last);
            P::ping(&mut out);
        }
        out
    }

    /// False: it is too long.
    fn write<P: BusProtocol>(&mut self, message: &BusPacket, protocol: &P, out: &mut Vec<u8>) -> bool {
        if message.from.is_outsider() {
            return write_plain(message, protocol, out);
        }
        let length = fragment::body_bytes(message);
        let Some(parts) = PacketNumbers::parts(length, protocol.max_message()) else {
            tracing::warn!(bytes = length, "bus message too long");
            return false;
        };
        let parts: Vec<usize> = parts.collect();
        let mut body = Vec::new();
        if parts.len() > 1 {
            fragment::body(message, &mut body);
        }
        let mut rest = &body[..];
        for (at, &bytes) in parts.iter().enumerate() {
            protocol.begin(&message.subject, fragment::PREFIX_BYTES + bytes, out);
            self.stream.prefix(at == 0, at + 1 == parts.len(), out);
            if parts.len() == 1 {
                fragment::body(message, out);
            } else {
                let (part, after) = rest.split_at(bytes);
                out.extend_from_slice(part);
                rest = after;
            }
            out.extend_from_slice(b"\r\n");
        }
        true
    }
}

/// For programs that are not nodes: the payload alone.
fn write_plain<P: BusProtocol>(message: &BusPacket, protocol: &P, out: &mut Vec<u8>) -> bool {
    if message.payload.len() > protocol.max_message() {
        tracing::warn!(bytes = message.payload.len(), "bus message for services too long");
        return false;
    }
    protocol.begin(&message.subject, message.payload.len(), out);
    out.extend_from_slice(&message.payload);
    out.extend_from_slice(b"\r\n");
    true
}
