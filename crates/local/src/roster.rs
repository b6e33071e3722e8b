//! Who in this process listens to what. In memory only; the database holds the same for others to see.
//! Must hold: a subscriber hears nothing that was said before it subscribed or after it unsubscribed.

use crate::message::{Interest, Kind, Message, Space, Words};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tavern_domain::pattern;

#[derive(Clone, Copy, Debug)]
struct Seat {
    subscriber: u64,
    /// It hears what comes after this message.
    since: i64,
    /// And nothing after this one.
    until: i64,
}

#[derive(Debug, Default)]
pub struct Roster {
    channels: [HashMap<Arc<[u8]>, Vec<Seat>>; 2],
    patterns: [BTreeMap<Arc<[u8]>, Vec<Seat>>; 2],
    everything: [Vec<Seat>; 2],
}

/// How often one subscriber itself would hear a message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    pub listeners: u32,
    pub recipients: u32,
}

impl Roster {
    pub fn add(&mut self, subscriber: u64, interest: &Interest, since: i64) {
        self.seats(interest).push(Seat { subscriber, since, until: i64::MAX });
    }

    /// It hears what was said up to this message, and nothing after it.
    pub fn end(&mut self, subscriber: u64, interest: &Interest, until: i64) {
        for seat in self.seats(interest).iter_mut().filter(|seat| seat.subscriber == subscriber) {
            seat.until = seat.until.min(until);
        }
    }

    pub fn remove(&mut self, subscriber: u64, interest: &Interest) {
        self.seats(interest).retain(|seat| seat.subscriber != subscriber);
        let space = interest.space as usize;
        match interest.kind {
            Kind::Channel if self.channels[space].get(&interest.name).is_some_and(Vec::is_empty) => {
                self.channels[space].remove(&interest.name);
            }
            Kind::Pattern if self.patterns[space].get(&interest.name).is_some_and(Vec::is_empty) => {
                self.patterns[space].remove(&interest.name);
            }
            _ => {}
        }
    }

    fn seats(&mut self, interest: &Interest) -> &mut Vec<Seat> {
        let space = interest.space as usize;
        match interest.kind {
            Kind::Channel => self.channels[space].entry(interest.name.clone()).or_default(),
            Kind::Pattern => self.patterns[space].entry(interest.name.clone()).or_default(),
            Kind::Everything => &mut self.everything[space],
        }
    }

    /// Calls for everybody who hears these words: by channel first, then by pattern, then those who hear everything.
    pub fn hearers(&self, words: &Arc<Words>, mut tell: impl FnMut(u64, Message)) {
        let space = words.space as usize;
        let hears = |seat: &&Seat| seat.since < words.id && words.id <= seat.until;
        for seat in self.channels[space].get(&*words.channel).into_iter().flatten().filter(hears) {
            tell(seat.subscriber, Message::Message(words.clone()));
        }
        for (pattern, seats) in &self.patterns[space] {
            if pattern::matches(pattern, &words.channel) {
                for seat in seats.iter().filter(hears) {
                    let message = Message::Pattern { pattern: pattern.clone(), words: words.clone() };
                    tell(seat.subscriber, message);
                }
            }
        }
        for seat in self.everything[space].iter().filter(hears) {
            tell(seat.subscriber, Message::Message(words.clone()));
        }
    }

    /// How often a subscriber hears everything that is said in a space.
    pub fn wide(&self, subscriber: u64, space: Space) -> u32 {
        count_of(subscriber, &self.everything[space as usize])
    }

    pub fn own(&self, subscriber: u64, space: Space, channel: &[u8]) -> Own {
        let space = space as usize;
        let mut recipients = self.channels[space].get(channel).map_or(0, |seats| count_of(subscriber, seats));
        for (pattern, seats) in &self.patterns[space] {
            if pattern::matches(pattern, channel) {
                recipients += count_of(subscriber, seats);
            }
        }
        Own { recipients, listeners: recipients + count_of(subscriber, &self.everything[space]) }
    }
}

fn count_of(subscriber: u64, seats: &[Seat]) -> u32 {
    let is_own = |seat: &&Seat| seat.subscriber == subscriber && seat.until == i64::MAX;
    seats.iter().filter(is_own).count() as u32
}
