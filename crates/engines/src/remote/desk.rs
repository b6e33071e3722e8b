//! What waits to be said, what is asked of the server, and which questions are under way. Knows no socket and no
//! thread: callers put in, the link takes out. Must hold: what waits is bounded; a ticket is answered once, by the
//! pong of the flight that carries it or of the first one of a later connection.

use super::book::Book;
use std::collections::VecDeque;
use tavern_store::bus::BusMessage;
use tavern_store::interest::Interest;
use tavern_store::limits;
use tavern_store::store::Ticket;
use tavern_store::subject::Subject;

/// Beyond this many times the bound at which it is full, words are not taken.
const OVERFULL: usize = 2;

#[derive(Default)]
pub struct Desk {
    pub book: Book,
    words: VecDeque<BusMessage>,
    bytes: usize,
    orders: Vec<Order>,
    /// What the next ping will confirm.
    next: Flight,
    under_way: VecDeque<Flight>,
    /// Pings of the server that are not answered.
    pub pongs: usize,
    is_connected: bool,
    /// Taken out and not known to be written.
    writing: usize,
    /// Words of this connection that were written, and how many of them a pong has followed.
    written: u64,
    proved: u64,
    /// Words were lost that others may have waited for.
    torn: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    Subscribe(Subject),
    Unsubscribe(Subject),
}

/// A ping, and what its pong will confirm.
#[derive(Default)]
pub struct Flight {
    number: u64,
    pub tickets: Vec<Ticket>,
    interests: Vec<Interest>,
    /// The server did not do what was asked before this ping.
    pub is_refused: bool,
    /// The first one of a connection that is not the first.
    pub is_return: bool,
    /// The last one before the node leaves.
    pub is_last: bool,
    written: u64,
}

impl Desk {
    /// Gives how many were not taken.
    pub fn say(&mut self, batch: Vec<BusMessage>) -> usize {
        if !self.is_connected || self.fullness() >= OVERFULL {
            self.torn = true;
            return batch.len();
        }
        self.bytes += batch.iter().map(weight).sum::<usize>();
        self.words.extend(batch);
        0
    }

    pub fn is_full(&self) -> bool {
        self.fullness() >= 1
    }

    fn fullness(&self) -> usize {
        (self.words.len() / limits::QUEUED_ITEMS).max(self.bytes / limits::QUEUED_BYTES)
    }

    /// True: all of it holds.
    pub fn subscribe(&mut self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        if self.is_connected && self.book.holds(&interests) {
            return true;
        }
        for interest in &interests {
            let fresh = self.book.add(interest, self.next.number);
            self.orders.extend(fresh.into_iter().map(Order::Subscribe));
        }
        self.next.tickets.push(ticket);
        self.next.interests.extend(interests);
        false
    }

    pub fn unsubscribe(&mut self, interests: &[Interest]) {
        for interest in interests {
            let unneeded = self.book.remove(interest);
            self.orders.extend(unneeded.into_iter().map(Order::Unsubscribe));
        }
    }

    pub fn orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    pub fn next_word(&mut self) -> Option<BusMessage> {
        let word = self.words.pop_front()?;
        self.bytes -= weight(&word);
        self.writing += 1;
        Some(word)
    }

    /// The word that was taken out last cannot be carried.
    pub fn drop_word(&mut self) {
        self.writing -= 1;
    }

    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// Somebody waits for a ping.
    pub fn is_asked(&self) -> bool {
        !self.next.tickets.is_empty() || self.next.is_return
    }

    /// A ping goes out after all orders so far.
    pub fn take_off(&mut self, is_last: bool) {
        let number = self.next.number + 1;
        let mut flight = std::mem::replace(&mut self.next, Flight { number, ..Flight::default() });
        flight.is_last = is_last;
        flight.written = self.written + self.writing as u64;
        self.under_way.push_back(flight);
    }

    /// Its pong came.
    pub fn land(&mut self) -> Option<Flight> {
        let flight = self.under_way.pop_front()?;
        self.proved = flight.written;
        // After a return one refusal among many must not end all the others, which were granted before.
        if flight.is_refused && !flight.is_return {
            // Asked for again, it is asked of the server again.
            self.unsubscribe(&flight.interests);
        } else {
            self.book.confirm(&flight.interests, flight.number);
        }
        Some(flight)
    }

    /// The server did not do something that it was asked before the next pong.
    pub fn refuse(&mut self) {
        if let Some(flight) = self.under_way.front_mut() {
            flight.is_refused = true;
        }
    }

    /// What was taken out is written. Gives how many words that were.
    pub fn wrote(&mut self) -> usize {
        self.written += self.writing as u64;
        std::mem::take(&mut self.writing)
    }

    /// A connection stands. True: words were lost before it.
    pub fn connect(&mut self, is_return: bool) -> bool {
        let (interests, subjects) = self.book.restart(self.next.number);
        self.next.interests = interests;
        self.next.is_return = is_return;
        self.orders = subjects.into_iter().map(Order::Subscribe).collect();
        (self.written, self.proved) = (0, 0);
        self.is_connected = true;
        std::mem::take(&mut self.torn)
    }

    /// The server has been away for a while: nobody waits for it any longer. What was asked for is asked again by the next
    /// connection, whoever waits then.
    pub fn give_up(&mut self) -> Vec<Ticket> {
        if self.is_connected { Vec::new() } else { std::mem::take(&mut self.next.tickets) }
    }

    /// A connection came back, and it is not proved yet that everything is subscribed to again.
    pub fn is_returning(&self) -> bool {
        self.next.is_return || self.under_way.iter().any(|flight| flight.is_return)
    }

    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The connection broke. Gives how many words were not carried.
    pub fn disconnect(&mut self) -> usize {
        self.is_connected = false;
        let failed = self.words.len() + std::mem::take(&mut self.writing);
        self.torn |= failed > 0 || self.written > self.proved;
        self.words.clear();
        (self.bytes, self.pongs) = (0, 0);
        self.orders.clear();
        for flight in self.under_way.drain(..) {
            self.next.tickets.extend(flight.tickets);
        }
        failed
    }
}

fn weight(parcel: &BusMessage) -> usize {
    parcel.payload.len() + parcel.note.len() + parcel.subject.as_str().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tavern_store::node::Writer;

    fn game() -> Interest {
        Subject::new("p", "game", b"A").unwrap().into()
    }

    fn word() -> BusMessage {
        let subject = Subject::new("p", "game", b"A").unwrap();
        BusMessage { subject, from: Writer::outsider(), n: 0, note: Arc::from([]), payload: Arc::from([]) }
    }

    #[test]
    fn a_ticket_that_waits_over_a_break_is_answered_once_by_the_next_connection() {
        let mut desk = Desk::default();
        desk.connect(false);
        assert!(!desk.subscribe(vec![game()], Ticket(1)));
        desk.take_off(false);
        desk.disconnect();
        assert!(!desk.subscribe(vec![game()], Ticket(2)));
        desk.connect(true);
        assert_eq!(desk.orders().len(), 1, "asked for once");
        desk.take_off(false);
        let flight = desk.land().unwrap();
        assert_eq!((flight.tickets, flight.is_return), (vec![Ticket(1), Ticket(2)], true));
        assert!(desk.subscribe(vec![game()], Ticket(3)));
    }

    #[test]
    fn who_was_told_that_the_server_is_away_is_not_told_again_and_what_it_asked_for_holds_later() {
        let mut desk = Desk::default();
        desk.connect(false);
        desk.subscribe(vec![game()], Ticket(1));
        assert_eq!(desk.give_up(), [], "the server is there");
        desk.take_off(false);
        desk.disconnect();
        assert_eq!(desk.give_up(), [Ticket(1)]);
        desk.connect(true);
        desk.take_off(false);
        assert_eq!(desk.land().unwrap().tickets, []);
        assert!(desk.subscribe(vec![game()], Ticket(2)), "it holds");
    }

    #[test]
    fn a_refused_subscription_does_not_hold() {
        let mut desk = Desk::default();
        desk.connect(false);
        desk.subscribe(vec![game()], Ticket(1));
        desk.take_off(false);
        desk.refuse();
        assert!(desk.land().unwrap().is_refused);
        assert!(!desk.subscribe(vec![game()], Ticket(2)));
    }

    #[test]
    fn lost_words_are_known_to_be_lost() {
        let mut desk = Desk::default();
        assert_eq!(desk.say(vec![word()]), 1, "nobody is there");
        assert!(desk.connect(false), "and that is told");
        assert_eq!(desk.say(vec![word()]), 0);
        desk.next_word();
        desk.take_off(false);
        assert_eq!(desk.wrote(), 1);
        desk.land();
        assert_eq!(desk.disconnect(), 0);
        assert!(!desk.connect(true), "the pong proved it");
        desk.say(vec![word(), word()]);
        desk.next_word();
        assert_eq!(desk.disconnect(), 2);
        assert!(desk.connect(true));
    }
}
