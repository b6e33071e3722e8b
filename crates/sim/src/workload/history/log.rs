//! The history of the channels as the store had it after each commit, and what must hold for it.
//! Must hold: offsets count by one within an epoch; epochs grow; what has a place keeps it; a message with an id is stored once
//! while the first one is kept.

use super::{CHANNELS, KEEP, TTL_MS};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use serde_json::Value;
use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_store::{Found, HistoryMessage, HistoryPage, Read};

/// Clocks of nodes differ, and an answer is a little older than its arrival.
const MARGIN_MS: u64 = 5_000;

/// An epoch and an offset.
pub type Place = (u64, u64);

/// Who published a message, and which of their messages it is.
pub type Words = (u64, u64);

#[derive(Default)]
pub struct HistoryLog {
    channels: [ChannelLog; CHANNELS],
    pub stored: u64,
    pub epochs: u64,
}

#[derive(Default)]
struct ChannelLog {
    messages: BTreeMap<Place, LoggedMessage>,
    /// The oldest place that is kept, and the end of the history; zeros: there is none.
    first: Place,
    head: Place,
}

#[derive(Clone, Copy, Debug)]
struct LoggedMessage {
    words: Words,
    at: Time,
}

pub fn channel_name(channel: usize) -> String {
    format!("chat#{channel}")
}

pub fn words_of(data: &Value) -> Option<Words> {
    Some((data["p"].as_u64()?, data["c"].as_u64()?))
}

impl HistoryLog {
    /// The store has changed.
    pub fn look(&mut self, cluster: &Cluster) -> Outcome {
        for channel in 0..CHANNELS {
            let name = channel_name(channel);
            let read = Read::History {
                channel: name.as_str().into(),
                after: 0,
                before: u64::MAX,
                newest: false,
                limit: 1_000,
            };
            let Found::History(page) = cluster.peek(read) else { return Err("no page".into()) };
            self.look_at(channel, &page).map_err(|error| format!("the store, {name}: {error}"))?;
        }
        Ok(())
    }

    fn look_at(&mut self, channel: usize, page: &HistoryPage) -> Outcome {
        let log = &mut self.channels[channel];
        let head = (page.head.epoch, page.head.offset);
        let rows = &page.page.rows;
        if rows.len() > KEEP as usize {
            return Err(format!("{} messages are kept", rows.len()));
        }
        let known = log.last();
        if head.0 > 0 && head < known {
            return Err(format!("it ends at {head:?} after {known:?}"));
        }
        let fresh = |row: &&HistoryMessage| (head.0, row.offset) > known;
        let next = if head.0 == known.0 { known.1 + 1 } else { 1 };
        self.epochs += u64::from(head.0 > known.0);
        let mut added = 0;
        for (row, next) in rows.iter().filter(fresh).zip(next..) {
            if row.offset != next {
                return Err(format!("offset {} follows {}", row.offset, next - 1));
            }
            let data: Value = serde_json::from_slice(&row.body).map_err(|error| error.to_string())?;
            let words = words_of(&data).ok_or("a message that no client published")?;
            let kept = (head.0, rows[0].offset)..(head.0, row.offset);
            let again = row.id.is_some() && log.messages.range(kept).any(|(_, other)| other.words == words);
            if again {
                return Err(format!("{words:?} is stored twice"));
            }
            log.messages.insert((head.0, row.offset), LoggedMessage { words, at: row.at });
            added += 1;
        }
        self.stored += added;
        for row in rows {
            let data: Value = serde_json::from_slice(&row.body).map_err(|error| error.to_string())?;
            let kept = log.messages.get(&(head.0, row.offset)).map(|message| message.words);
            if kept != words_of(&data) {
                return Err(format!("offset {} was {kept:?} and is {data}", row.offset));
            }
        }
        log.first = (head.0, rows.first().map_or(head.1 + 1, |row| row.offset));
        log.head = head;
        Ok(())
    }

    /// The last place that was ever given.
    pub fn last(&self, channel: usize) -> Place {
        self.channels[channel].last()
    }

    /// The end of the history now.
    pub fn head(&self, channel: usize) -> Place {
        self.channels[channel].head
    }

    pub fn words(&self, channel: usize, place: Place) -> Option<Words> {
        self.channels[channel].messages.get(&place).map(|message| message.words)
    }

    /// Whether everything after a place was still there a moment ago.
    pub fn is_recoverable(&self, cluster: &Cluster, channel: usize, place: Place) -> bool {
        let log = &self.channels[channel];
        let next = (place.0, place.1 + 1);
        let is_fresh =
            log.messages.get(&next).is_none_or(|message| cluster.now < message.at + TTL_MS - MARGIN_MS);
        place.0 > 0 && place.0 == log.head.0 && place <= log.head && next >= log.first && is_fresh
    }

    /// How many messages at least are neither trimmed nor too old.
    pub fn count_fresh(&self, cluster: &Cluster, channel: usize) -> u64 {
        let log = &self.channels[channel];
        if log.head.0 == 0 {
            return 0;
        }
        let kept = log.messages.range(log.first..=log.head);
        kept.filter(|(_, message)| cluster.now < message.at + TTL_MS - MARGIN_MS).count() as u64
    }
}

impl ChannelLog {
    fn last(&self) -> Place {
        self.messages.last_key_value().map_or((0, 0), |(place, _)| *place)
    }
}
