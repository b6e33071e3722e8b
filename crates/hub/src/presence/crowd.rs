//! Telling watchers what a room has taken in, as much of it as its size allows: every change, the sum of a tick, or numbers.
//! Must hold: a newcomer's snapshot and what it is told afterwards fit together in every mode.

use crate::event::{Event, Space};
use crate::settings::SlowReader;
use crate::shard::Shard;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::presence::{Difference, Member, Mode, News, Room, Tick};
use tavern_domain::{Channel, Time};
use tavern_wire::json::presence as json;

/// A channel that somebody on this shard watches.
pub(super) struct Watched {
    pub room: Room,
    mode: Mode,
    tick: Tick,
}

impl Watched {
    /// The members as JSON, at the version from which a newcomer will be told on.
    pub fn members(&self) -> Vec<u8> {
        let snapshot = self.room.snapshot();
        let (version, members): (u64, BTreeMap<&Arc<str>, &Member>) = match self.mode {
            Mode::Full => (snapshot.version, snapshot.members.iter().collect()),
            // As it was at the last tick: the next one is told from there.
            Mode::Coalesced | Mode::Counts => (self.tick.version(), self.tick.members(snapshot)),
        };
        let count = members.len() as u64;
        let users = (self.mode != Mode::Counts).then(|| members.into_iter().collect());
        let mut body = Vec::new();
        json::members(&mut body, &json::Members { version, count, users, next: None });
        body
    }

    /// News that had waited for a reading are taken in.
    pub fn catch_up(&mut self) {
        self.touch_awaited();
        self.room.catch_up();
    }

    /// News that wait behind a hole may change somebody in any later tick: when it closes.
    fn touch_awaited(&mut self) {
        if self.mode != Mode::Full {
            self.room.awaited().for_each(|user| self.tick.touch(self.room.snapshot(), user));
        }
    }

    /// Somebody is about to change.
    pub fn touch(&mut self, news: &News) {
        if self.mode != Mode::Full {
            self.tick.touch(self.room.snapshot(), &news.user);
            self.touch_awaited();
        }
    }
}

impl Shard {
    pub(super) fn watched(&self, channel: &str, room: Room) -> Watched {
        let mode = self.mode_of(channel, Mode::Full, room.snapshot().members.len());
        Watched { tick: Tick::at(room.version()), room, mode }
    }

    /// What a channel of this size is told, coming from a mode.
    fn mode_of(&self, channel: &str, mode: Mode, users: usize) -> Mode {
        let settings = &self.node.settings;
        let kind = Channel::parse(channel).map_or("", |channel| channel.kind);
        settings.kind(kind).presence_mode.unwrap_or_else(|| settings.crowds.mode(mode, users))
    }

    /// Tells watchers what the room has taken in, or puts it off to the end of the tick.
    pub(super) fn tell_room(&mut self, now: Time, channel: &Arc<str>) {
        let tick_ms = self.node.settings.tick_ms;
        let Some(watched) = self.presences.rooms.get_mut(channel) else { return };
        let told = watched.room.take_told();
        if watched.mode == Mode::Full {
            for news in told {
                self.tell_news(now, channel, &news);
            }
        } else if !told.is_empty() {
            self.presences.ticks.insert((now + tick_ms, channel.clone()));
        }
        self.change_mode(now, channel);
    }

    fn tell_news(&mut self, now: Time, channel: &str, news: &News) {
        let first = news.to + 1 - news.changes.len() as u64;
        for (at, change) in news.changes.iter().enumerate() {
            let mut tail = Vec::new();
            json::change_tail(&mut tail, channel, news, change, first + at as u64);
            self.tell_watchers(now, channel, tail);
        }
    }

    /// The crowd has grown or shrunk past a threshold: watchers are told how they will be told from now on.
    fn change_mode(&mut self, now: Time, channel: &Arc<str>) {
        let Some(watched) = self.presences.rooms.get(channel) else { return };
        let before = watched.mode;
        let mode = self.mode_of(channel, before, watched.room.snapshot().members.len());
        if mode == before {
            return;
        }
        self.end_tick(now, channel);
        let Some(watched) = self.presences.rooms.get_mut(channel) else { return };
        watched.mode = mode;
        watched.tick = Tick::at(watched.room.version());
        let mut tail = Vec::new();
        json::mode_tail(&mut tail, channel, mode, watched.room.version());
        self.tell_watchers(now, channel, tail);
    }

    /// Ticks that are over.
    pub(crate) fn settle_ticks(&mut self, now: Time) {
        while let Some((due, channel)) = self.presences.ticks.first().cloned()
            && due <= now
        {
            self.presences.ticks.remove(&(due, channel.clone()));
            self.end_tick(now, &channel);
        }
    }

    /// Tells the sum of a tick.
    pub(super) fn end_tick(&mut self, now: Time, channel: &Arc<str>) {
        let Some(watched) = self.presences.rooms.get_mut(channel) else { return };
        let mode = watched.mode;
        if mode != Mode::Full
            && let Some(difference) = watched.tick.settle(watched.room.snapshot())
        {
            self.tell_difference(now, channel, &difference, mode);
        }
    }

    /// The room was read again: what was not told yet is told as one difference.
    pub(super) fn tell_reading(&mut self, now: Time, channel: &Arc<str>, mut difference: Difference) {
        let Some(watched) = self.presences.rooms.get_mut(channel) else { return };
        let mode = watched.mode;
        // Versions that have passed are told even if nobody is different: whoever counts must not miss any.
        if difference.to == difference.from {
            return;
        }
        if mode != Mode::Full {
            // A tick that cancelled out was told to nobody.
            difference.from = watched.tick.version();
        }
        watched.tick = Tick::at(difference.to);
        self.tell_difference(now, channel, &difference, mode);
    }

    fn tell_difference(&mut self, now: Time, channel: &str, difference: &Difference, mode: Mode) {
        let mut tail = Vec::new();
        match mode {
            Mode::Counts => json::count_tail(&mut tail, channel, difference),
            Mode::Full | Mode::Coalesced => json::difference_tail(&mut tail, channel, difference),
        }
        self.tell_watchers(now, channel, tail);
    }

    fn tell_watchers(&mut self, now: Time, channel: &str, tail: Vec<u8>) {
        let Some(place) = self.roster.find(Space::Presence, channel.as_bytes()) else { return };
        let listeners = std::mem::take(&mut self.roster.place_mut(place).listeners);
        let event = Event::json(tail.into_boxed_slice(), now, SlowReader::Gap, &self.pool);
        for &listener in &listeners {
            self.tell(listener, &event);
        }
        self.roster.place_mut(place).listeners = listeners;
    }
}
