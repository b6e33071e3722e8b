//! Queued messages and subscriptions, and the pings in flight. Knows no socket and no thread: callers add, the
//! connection removes. Must hold: the queue is bounded; a ticket is answered once, by the pong of its ping or of the
//! first ping of a later connection.

use super::interests::InterestTable;
use std::collections::VecDeque;
use tavern_store::{BusPacket, Interest, Subject, Ticket, limits};

/// Messages are refused above this many times the limit at which the queue is full.
const OVERFULL: usize = 2;

#[derive(Default)]
pub struct Outbox {
    pub interests: InterestTable,
    messages: VecDeque<BusPacket>,
    bytes: usize,
    commands: Vec<OutboxCommand>,
    /// What the next ping will confirm.
    next: PendingPing,
    in_flight: VecDeque<PendingPing>,
    /// Pings of the server that are not answered.
    pub pongs: usize,
    is_connected: bool,
    /// Removed from the queue and not written yet.
    writing: usize,
    /// Messages of this connection that were written, and how many of them a pong has confirmed.
    written: u64,
    confirmed: u64,
    /// Messages were lost and the other nodes do not know it yet.
    has_lost: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum OutboxCommand {
    Subscribe(Subject),
    Unsubscribe(Subject),
}

/// A ping, and what its pong will confirm.
#[derive(Default)]
pub struct PendingPing {
    number: u64,
    pub tickets: Vec<Ticket>,
    interests: Vec<Interest>,
    /// The server refused a command before this ping.
    pub is_refused: bool,
    /// The first one after a reconnect.
    pub is_reconnect: bool,
    /// The last one before the bus stops.
    pub is_last: bool,
    written: u64,
}

impl Outbox {
    /// Returns how many were refused.
    pub fn publish(&mut self, batch: Vec<BusPacket>) -> usize {
        if !self.is_connected || self.fullness() >= OVERFULL {
            self.has_lost = true;
            return batch.len();
        }
        self.bytes += batch.iter().map(weight).sum::<usize>();
        self.messages.extend(batch);
        0
    }

    pub fn is_full(&self) -> bool {
        self.fullness() >= 1
    }

    fn fullness(&self) -> usize {
        (self.messages.len() / limits::QUEUED_ITEMS).max(self.bytes / limits::QUEUED_BYTES)
    }

    /// True: all of it is already confirmed.
    pub fn subscribe(&mut self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        if self.is_connected && self.interests.holds(&interests) {
            return true;
        }
        for interest in &interests {
            let fresh = self.interests.add(interest, self.next.number);
            self.commands.extend(fresh.into_iter().map(OutboxCommand::Subscribe));
        }
        self.next.tickets.push(ticket);
        self.next.interests.extend(interests);
        false
    }

    pub fn unsubscribe(&mut self, interests: &[Interest]) {
        for interest in interests {
            let unneeded = self.interests.remove(interest);
            self.commands.extend(unneeded.into_iter().map(OutboxCommand::Unsubscribe));
        }
    }

    pub fn commands(&mut self) -> Vec<OutboxCommand> {
        std::mem::take(&mut self.commands)
    }

    pub fn next_message(&mut self) -> Option<BusPacket> {
        let message = self.messages.pop_front()?;
        self.bytes -= weight(&message);
        self.writing += 1;
        Some(message)
    }

    /// The message that was removed last cannot be sent.
    pub fn drop_message(&mut self) {
        self.writing -= 1;
    }

    pub fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// A ticket waits for a ping.
    pub fn needs_ping(&self) -> bool {
        !self.next.tickets.is_empty() || self.next.is_reconnect
    }

    /// A ping is written after all commands so far.
    pub fn ping_sent(&mut self, is_last: bool) {
        let number = self.next.number + 1;
        let mut ping = std::mem::replace(&mut self.next, PendingPing { number, ..PendingPing::default() });
        ping.is_last = is_last;
        ping.written = self.written + self.writing as u64;
        self.in_flight.push_back(ping);
    }

    /// The pong of the oldest ping has arrived.
    pub fn pong_received(&mut self) -> Option<PendingPing> {
        let ping = self.in_flight.pop_front()?;
        self.confirmed = ping.written;
        // After a reconnect, one refusal must not end all the others, which were granted before.
        if ping.is_refused && !ping.is_reconnect {
            // A later subscribe sends it again.
            self.unsubscribe(&ping.interests);
        } else {
            self.interests.confirm(&ping.interests, ping.number);
        }
        Some(ping)
    }

    /// The server refused a command before the next pong.
    pub fn refuse(&mut self) {
        if let Some(ping) = self.in_flight.front_mut() {
            ping.is_refused = true;
        }
    }

    /// What was removed from the queue is written. Returns how many messages that were.
    pub fn wrote(&mut self) -> usize {
        self.written += self.writing as u64;
        std::mem::take(&mut self.writing)
    }

    /// A connection was made. True: messages were lost before it.
    pub fn connect(&mut self, is_reconnect: bool) -> bool {
        let (interests, subjects) = self.interests.restart(self.next.number);
        self.next.interests = interests;
        self.next.is_reconnect = is_reconnect;
        self.commands = subjects.into_iter().map(OutboxCommand::Subscribe).collect();
        (self.written, self.confirmed) = (0, 0);
        self.is_connected = true;
        std::mem::take(&mut self.has_lost)
    }

    /// The server has been down for a while: returns the tickets that wait for it. The next connection still
    /// subscribes to their interests.
    pub fn give_up(&mut self) -> Vec<Ticket> {
        if self.is_connected { Vec::new() } else { std::mem::take(&mut self.next.tickets) }
    }

    /// After a reconnect, and before all subscriptions are confirmed again.
    pub fn is_reconnecting(&self) -> bool {
        self.next.is_reconnect || self.in_flight.iter().any(|ping| ping.is_reconnect)
    }

    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The connection broke. Returns how many messages were not sent.
    pub fn disconnect(&mut self) -> usize {
        self.is_connected = false;
        let failed = self.messages.len() + std::mem::take(&mut self.writing);
        self.has_lost |= failed > 0 || self.written > self.confirmed;
        self.messages.clear();
        (self.bytes, self.pongs) = (0, 0);
        self.commands.clear();
        for ping in self.in_flight.drain(..) {
            self.next.tickets.extend(ping.tickets);
        }
        failed
    }
}

fn weight(message: &BusPacket) -> usize {
    message.payload.len() + message.header.len() + message.subject.as_str().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tavern_store::node::Writer;

    fn game() -> Interest {
        Subject::new("p", "game", b"A").unwrap().into()
    }

    fn message() -> BusPacket {
        let subject = Subject::new("p", "game", b"A").unwrap();
        BusPacket { subject, from: Writer::outsider(), n: 0, header: Arc::from([]), payload: Arc::from([]) }
    }

    #[test]
    fn a_ticket_that_waits_over_a_break_is_answered_once_by_the_next_connection() {
        let mut outbox = Outbox::default();
        outbox.connect(false);
        assert!(!outbox.subscribe(vec![game()], Ticket(1)));
        outbox.ping_sent(false);
        outbox.disconnect();
        assert!(!outbox.subscribe(vec![game()], Ticket(2)));
        outbox.connect(true);
        assert_eq!(outbox.commands().len(), 1, "subscribed to once");
        outbox.ping_sent(false);
        let ping = outbox.pong_received().unwrap();
        assert_eq!((ping.tickets, ping.is_reconnect), (vec![Ticket(1), Ticket(2)], true));
        assert!(outbox.subscribe(vec![game()], Ticket(3)));
    }

    #[test]
    fn given_up_ticket_is_not_answered_again_and_its_interests_are_confirmed_later() {
        let mut outbox = Outbox::default();
        outbox.connect(false);
        outbox.subscribe(vec![game()], Ticket(1));
        assert_eq!(outbox.give_up(), [], "the server is there");
        outbox.ping_sent(false);
        outbox.disconnect();
        assert_eq!(outbox.give_up(), [Ticket(1)]);
        outbox.connect(true);
        outbox.ping_sent(false);
        assert_eq!(outbox.pong_received().unwrap().tickets, []);
        assert!(outbox.subscribe(vec![game()], Ticket(2)), "it holds");
    }

    #[test]
    fn a_refused_subscription_does_not_hold() {
        let mut outbox = Outbox::default();
        outbox.connect(false);
        outbox.subscribe(vec![game()], Ticket(1));
        outbox.ping_sent(false);
        outbox.refuse();
        assert!(outbox.pong_received().unwrap().is_refused);
        assert!(!outbox.subscribe(vec![game()], Ticket(2)));
    }

    #[test]
    fn lost_messages_are_reported_by_the_next_connection() {
        let mut outbox = Outbox::default();
        assert_eq!(outbox.publish(vec![message()]), 1, "not connected");
        assert!(outbox.connect(false), "and that is reported");
        assert_eq!(outbox.publish(vec![message()]), 0);
        outbox.next_message();
        outbox.ping_sent(false);
        assert_eq!(outbox.wrote(), 1);
        outbox.pong_received();
        assert_eq!(outbox.disconnect(), 0);
        assert!(!outbox.connect(true), "the pong confirmed it");
        outbox.publish(vec![message(), message()]);
        outbox.next_message();
        assert_eq!(outbox.disconnect(), 2);
        assert!(outbox.connect(true));
    }
}
