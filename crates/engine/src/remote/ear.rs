//! Reading: what the server said becomes what the inbox will hear. Knows no socket. Must hold: copies of a word, the node's own
//! words and what nobody here asked for end here; what was said before a confirmation is handed over before it.

use super::bus::{Shared, unavailable};
use super::dialect::{Dialect, Frame, broken};
use super::envelope::{Read, Reader};
use crate::bus::{BusError, Lost, Parcel};
use crate::store::Ticket;
use crate::subject::Subject;
use bytes::BytesMut;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Words handed over together.
const WORDS_TOGETHER: usize = 256;

/// What the inbox hears, in this order.
pub enum Delivery {
    Words(Vec<Parcel>),
    Confirmed(Vec<Ticket>, Result<(), BusError>),
    Lost(Lost),
}

/// What was read and is not handed over. It outlives the connection: a ticket that was answered there has no other answer.
#[derive(Default)]
pub struct Ear {
    pub reader: Reader,
    pub deliveries: VecDeque<Delivery>,
    words: Vec<Parcel>,
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
                    self.open(shared, read);
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
                        self.add(Delivery::Lost(Lost::Everything));
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

    fn open(&mut self, shared: &Shared, read: Read) {
        match read {
            Read::Word(parcel) if parcel.from.node == shared.node => {}
            Read::Word(parcel) => self.words.push(parcel),
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
