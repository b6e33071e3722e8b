//! Reading: frames of the server become deliveries to the receiver. Knows no socket. Must hold: copies of a message,
//! the node's own messages and those it did not subscribe to are dropped; what arrived before a confirmation is
//! delivered before it.

use super::fragment::{Reassembled, Reassembler};
use super::line::broken;
use super::protocol::{BusFrame, BusProtocol};
use super::shared::{RemoteShared, unavailable};
use bytes::BytesMut;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tavern_store::{BusError, BusLoss, BusPacket, Subject, Ticket};

/// Messages delivered together.
const DELIVER_BATCH: usize = 256;
/// Messages held until the loss before them is reported: more than arrive while a server answers one ping.
const HELD_MESSAGES: usize = 4096;

/// What the receiver gets, in order.
pub enum BusDelivery {
    Messages(Vec<BusPacket>),
    Confirmed(Vec<Ticket>, Result<(), BusError>),
    Lost(BusLoss),
}

/// What was read and is not delivered yet. It outlives the connection: the answer to a ticket must not be lost with
/// it.
#[derive(Default)]
pub struct FrameReader {
    pub reassembler: Reassembler,
    pub deliveries: VecDeque<BusDelivery>,
    messages: Vec<BusPacket>,
    /// Arrived after a reconnect, before the loss was reported.
    held: Vec<BusPacket>,
    pub is_last: bool,
    /// A message without a prefix was logged.
    has_logged_foreign: bool,
}

impl FrameReader {
    /// True: no complete frame is left in the input.
    pub fn read<P: BusProtocol>(&mut self, shared: &RemoteShared, input: &mut BytesMut) -> io::Result<bool> {
        let outbox = &mut *shared.outbox();
        while self.messages.len() < DELIVER_BATCH {
            match P::read(input)? {
                None => return Ok(true),
                Some(BusFrame::Message { subject, body }) => {
                    let subject =
                        std::str::from_utf8(&subject).ok().and_then(|text| Subject::parse(text).ok());
                    let Some(subject) = subject.filter(|subject| outbox.interests.matches(subject)) else {
                        continue;
                    };
                    let read = self.reassembler.read(&subject, &body);
                    let is_reconnecting = outbox.is_reconnecting();
                    self.take_read(shared, read, is_reconnecting);
                }
                Some(BusFrame::Ping) => {
                    outbox.pongs += 1;
                    shared.changed.notify_one();
                }
                Some(BusFrame::Pong) => {
                    let Some(ping) = outbox.pong_received() else {
                        return Err(broken("a pong without a ping"));
                    };
                    self.is_last |= ping.is_last;
                    if ping.is_reconnect {
                        self.report_loss();
                    }
                    let refused = || unavailable(Arc::new(broken("the server refused the subscription")));
                    let outcome = if ping.is_refused { Err(refused()) } else { Ok(()) };
                    if !ping.tickets.is_empty() {
                        self.add(BusDelivery::Confirmed(ping.tickets, outcome));
                    }
                    shared.changed.notify_one();
                }
                Some(BusFrame::Refused(text)) => {
                    tracing::warn!(bus = P::NAME, text, "bus server refused a command");
                    outbox.refuse();
                }
                Some(BusFrame::Other) => {}
            }
        }
        Ok(false)
    }

    fn take_read(&mut self, shared: &RemoteShared, read: Reassembled, is_reconnecting: bool) {
        match read {
            Reassembled::Message(message) => self.take_from(shared, message, is_reconnecting),
            Reassembled::MessageAfterIncomplete(subject, message) => {
                self.add(BusDelivery::Lost(BusLoss::On(subject)));
                self.take_from(shared, message, is_reconnecting);
            }
            Reassembled::Nothing => {}
            Reassembled::Incomplete(subject) => self.add(BusDelivery::Lost(BusLoss::On(subject))),
            Reassembled::Loss => self.add(BusDelivery::Lost(BusLoss::Everything)),
            Reassembled::Foreign => {
                if !std::mem::replace(&mut self.has_logged_foreign, true) {
                    tracing::warn!("ignoring bus message without a Tavern prefix");
                }
            }
        }
    }

    fn take_from(&mut self, shared: &RemoteShared, message: BusPacket, is_reconnecting: bool) {
        if message.from.node != shared.node {
            self.take(message, is_reconnecting);
        }
    }

    fn take(&mut self, message: BusPacket, is_reconnecting: bool) {
        if !is_reconnecting {
            return self.messages.push(message);
        }
        self.held.push(message);
        if self.held.len() >= HELD_MESSAGES {
            // It is reported again when all subscriptions are confirmed.
            self.report_loss();
        }
    }

    /// Messages that arrived since follow the loss.
    fn report_loss(&mut self) {
        self.add(BusDelivery::Lost(BusLoss::Everything));
        self.messages.append(&mut self.held);
    }

    fn add(&mut self, delivery: BusDelivery) {
        self.end_batch();
        self.deliveries.push_back(delivery);
    }

    pub fn end_batch(&mut self) {
        if !self.messages.is_empty() {
            self.deliveries.push_back(BusDelivery::Messages(std::mem::take(&mut self.messages)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Epoch;
    use tavern_store::node::Writer;

    fn message(n: u64) -> BusPacket {
        let subject = Subject::of_channel("tavern", b"game#A").unwrap();
        BusPacket {
            subject,
            from: Writer::new("one", Epoch(1)),
            n,
            header: Arc::from([]),
            payload: Arc::from([]),
        }
    }

    fn delivered(reader: &mut FrameReader) -> Vec<String> {
        reader.end_batch();
        let text = |delivery| match delivery {
            BusDelivery::Messages(messages) => {
                format!("{:?}", messages.iter().map(|message| message.n).collect::<Vec<u64>>())
            }
            BusDelivery::Lost(_) => "lost".to_owned(),
            BusDelivery::Confirmed(..) => "confirmed".to_owned(),
        };
        reader.deliveries.drain(..).map(text).collect()
    }

    #[test]
    fn messages_that_come_before_the_loss_is_reported_follow_it() {
        let mut reader = FrameReader::default();
        reader.take(message(1), false);
        reader.take(message(5), true);
        reader.take(message(6), true);
        assert_eq!(delivered(&mut reader), ["[1]"]);
        reader.report_loss();
        reader.take(message(7), false);
        assert_eq!(delivered(&mut reader), ["lost", "[5, 6, 7]"]);
    }

    #[test]
    fn held_messages_are_bounded() {
        let mut reader = FrameReader::default();
        (0..HELD_MESSAGES as u64 + 1).for_each(|n| reader.take(message(n), true));
        assert_eq!((delivered(&mut reader)[0].as_str(), reader.held.len()), ("lost", 1));
    }
}
