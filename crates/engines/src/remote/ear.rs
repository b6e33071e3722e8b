//! Reading: what the server said becomes what the inbox will hear. Knows no socket. Must hold: copies of a word, the node's own
//! words and what nobody here asked for end here; what was said before a confirmation is handed over before it.

use super::bus::{Shared, unavailable};
use super::dialect::{Dialect, Frame, broken};
use super::envelope::{Read, Reader};
use bytes::BytesMut;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tavern_store::bus::{BusError, BusMessage, Lost};
use tavern_store::store::Ticket;
use tavern_store::subject::Subject;

/// Words handed over together.
const WORDS_TOGETHER: usize = 256;
/// Words kept until the loss before them is told: more than come while a server answers one ping.
const HELD_WORDS: usize = 4096;

/// What the inbox hears, in this order.
pub enum Delivery {
    Words(Vec<BusMessage>),
    Confirmed(Vec<Ticket>, Result<(), BusError>),
    Lost(Lost),
}

/// What was read and is not handed over. It outlives the connection: a ticket that was answered there has no other answer.
#[derive(Default)]
pub struct Ear {
    pub reader: Reader,
    pub deliveries: VecDeque<Delivery>,
    words: Vec<BusMessage>,
    /// Came over a connection that is back before the loss was told: the loss was before them.
    held: Vec<BusMessage>,
    pub is_last: bool,
    /// Words that are no node's were mentioned in the log.
    is_foreign: bool,
}

impl Ear {
    /// True: nothing whole is left in the input.
    pub fn read<D: Dialect>(&mut self, shared: &Shared, input: &mut BytesMut) -> io::Result<bool> {
        let desk = &mut *shared.desk();
        while self.words.len() < WORDS_TOGETHER {
            match D::read(input)? {
                None => return Ok(true),
                Some(Frame::Word { subject, body }) => {
                    let subject =
                        std::str::from_utf8(&subject).ok().and_then(|text| Subject::parse(text).ok());
                    let Some(subject) = subject.filter(|subject| desk.book.hears(subject)) else { continue };
                    let read = self.reader.read(&subject, &body);
                    let is_returning = desk.is_returning();
                    self.open(shared, read, is_returning);
                }
                Some(Frame::Ping) => {
                    desk.pongs += 1;
                    shared.stirred.notify_one();
                }
                Some(Frame::Pong) => {
                    let Some(flight) = desk.land() else {
                        return Err(broken("an answer without a question"));
                    };
                    self.is_last |= flight.is_last;
                    if flight.is_return {
                        self.tell_loss();
                    }
                    let refused = || unavailable(Arc::new(broken("the server refused it")));
                    let outcome = if flight.is_refused { Err(refused()) } else { Ok(()) };
                    if !flight.tickets.is_empty() {
                        self.add(Delivery::Confirmed(flight.tickets, outcome));
                    }
                    shared.stirred.notify_one();
                }
                Some(Frame::Refused(text)) => {
                    tracing::warn!(bus = D::NAME, text, "the server of the bus refused something");
                    desk.refuse();
                }
                Some(Frame::Other) => {}
            }
        }
        Ok(false)
    }

    fn open(&mut self, shared: &Shared, read: Read, is_returning: bool) {
        match read {
            Read::Word(parcel) if parcel.from.node == shared.node => {}
            Read::Word(parcel) => self.take(parcel, is_returning),
            Read::Nothing => {}
            Read::Incomplete(subject) => self.add(Delivery::Lost(Lost::On(subject))),
            Read::Torn => self.add(Delivery::Lost(Lost::Everything)),
            Read::Foreign => {
                if !std::mem::replace(&mut self.is_foreign, true) {
                    tracing::warn!("somebody who is no node speaks on the bus; it is not heard");
                }
            }
        }
    }

    fn take(&mut self, parcel: BusMessage, is_returning: bool) {
        if !is_returning {
            return self.words.push(parcel);
        }
        self.held.push(parcel);
        if self.held.len() >= HELD_WORDS {
            // Once more when it is sure that nothing else is lost.
            self.tell_loss();
        }
    }

    /// Words that came meanwhile follow what was lost.
    fn tell_loss(&mut self) {
        self.add(Delivery::Lost(Lost::Everything));
        self.words.append(&mut self.held);
    }

    fn add(&mut self, delivery: Delivery) {
        self.end_words();
        self.deliveries.push_back(delivery);
    }

    pub fn end_words(&mut self) {
        if !self.words.is_empty() {
            self.deliveries.push_back(Delivery::Words(std::mem::take(&mut self.words)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Epoch;
    use tavern_store::node::Writer;

    fn word(n: u64) -> BusMessage {
        let subject = Subject::of_channel("tavern", b"game#A").unwrap();
        BusMessage {
            subject,
            from: Writer::new("one", Epoch(1)),
            n,
            note: Arc::from([]),
            payload: Arc::from([]),
        }
    }

    fn told(ear: &mut Ear) -> Vec<String> {
        ear.end_words();
        let told = |delivery| match delivery {
            Delivery::Words(words) => format!("{:?}", words.iter().map(|word| word.n).collect::<Vec<u64>>()),
            Delivery::Lost(_) => "lost".to_owned(),
            Delivery::Confirmed(..) => "confirmed".to_owned(),
        };
        ear.deliveries.drain(..).map(told).collect()
    }

    #[test]
    fn words_that_come_before_the_loss_is_told_follow_it() {
        let mut ear = Ear::default();
        ear.take(word(1), false);
        ear.take(word(5), true);
        ear.take(word(6), true);
        assert_eq!(told(&mut ear), ["[1]"]);
        ear.tell_loss();
        ear.take(word(7), false);
        assert_eq!(told(&mut ear), ["lost", "[5, 6, 7]"]);
    }

    #[test]
    fn what_waits_for_the_loss_to_be_told_is_bounded() {
        let mut ear = Ear::default();
        (0..HELD_WORDS as u64 + 1).for_each(|n| ear.take(word(n), true));
        assert_eq!((told(&mut ear)[0].as_str(), ear.held.len()), ("lost", 1));
    }
}
