//! Watching a channel: it is read once, then kept by the news of its changes. A hole is healed by reading again.
//! Must hold: a watcher hears every change after its snapshot, in order and once.

use super::step::refusal;
use super::task::Task;
use super::{ChannelNews, Claim, Outcome};
use crate::event::Space;
use crate::listener::{LinkId, ListenerId};
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Heard, Member, Room, Snapshot};
use tavern_engine::{Answer, Found, Presence, Read, Roster, Versioned, Work};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::presence as json;

/// A channel that is being read, page by page, and what was heard of it meanwhile.
#[derive(Default)]
pub(super) struct Reading {
    snapshot: Snapshot,
    after: Option<Arc<str>>,
    heard: Vec<ChannelNews>,
    /// There was more to hear than is kept: what was read is not enough.
    overflowed: bool,
    claims: Vec<Claim>,
}

/// One page of a channel's members.
const PAGE: u32 = 1000;
/// How long missing news may take before the channel is read again.
const HOLE_MS: u64 = 1_000;
/// How long a channel that was read may wait for its first watcher.
const FRESH_MS: u64 = 1_000;
/// News that are kept while a channel is read; more, and it is read again.
const HEARD_MAX: usize = 10_000;

impl Shard {
    /// The members of a watched channel as JSON. None: it is not known here yet; the link is told when it is.
    pub(crate) fn members(&mut self, channel: &Arc<str>, id: ListenerId, link: LinkId) -> Option<Arc<[u8]>> {
        if self.presences.rooms.contains_key(channel) {
            return self.room_members(channel, id);
        }
        // From before the reading on: what happens meanwhile must be heard.
        self.hold_news(channel);
        let known = self.presences.reading.contains_key(channel);
        let claim = self.presences.claim(link);
        self.presences.reading.entry(channel.clone()).or_default().claims.push(claim);
        if !known {
            self.read_roster(channel.clone(), None);
        }
        None
    }

    /// News of a channel come to this shard although nobody here watches it yet.
    fn hold_news(&mut self, channel: &Arc<str>) {
        if !self.presences.held.contains_key(channel) && !self.is_watched(channel) {
            let entry = self.node.registry.intern(Space::Presence, channel.as_bytes());
            entry.added(self.index, true);
            self.presences.held.insert(channel.clone(), entry);
        }
    }

    /// Somebody watches it now, or nobody will.
    pub(crate) fn release_news(&mut self, channel: &str) {
        let Some(entry) = self.presences.held.remove(channel) else { return };
        let unheard = entry.removed(self.index, !self.is_watched(channel));
        self.node.registry.forget(Space::Presence, &entry);
        if unheard {
            self.linger(Space::Presence, entry.name.clone());
        }
    }

    fn is_watched(&self, channel: &str) -> bool {
        self.roster.find(Space::Presence, channel.as_bytes()).is_some()
    }

    /// What is known of a channel that nobody watches grows old.
    fn forget_unwatched(&mut self, channel: &str) {
        if !self.is_watched(channel) {
            self.presences.rooms.remove(channel);
            self.release_news(channel);
        }
    }

    fn read_roster(&mut self, channel: Arc<str>, after: Option<Arc<str>>) {
        let work = Work::Read(Read::Roster { channel: channel.clone(), after, limit: PAGE });
        self.submit(Task::Roster { channel }, work);
    }

    pub(super) fn roster_read(&mut self, now: Time, channel: Arc<str>, answer: Answer) {
        let Answer::Read(Found::Roster(roster)) = answer else {
            if let Some(reading) = self.presences.reading.remove(&channel) {
                for claim in reading.claims {
                    self.finish(claim, Err(refusal(&answer)));
                }
                self.forget_unwatched(&channel);
                // Whoever watches is told as soon as it can be read.
                self.presences.holes.insert((now + HOLE_MS, channel));
            }
            return;
        };
        let Some(reading) = self.presences.reading.get_mut(&channel) else { return };
        // Pages of two versions do not fit together.
        if reading.after.is_some() && reading.snapshot.version != roster.version {
            (reading.snapshot, reading.after) = (Snapshot::default(), None);
            return self.read_roster(channel, None);
        }
        reading.snapshot.version = roster.version;
        let Roster { page, .. } = roster;
        reading.after = page.rows.last().map(|row| row.row.key.user.clone());
        for row in page.rows {
            insert(&mut reading.snapshot, row);
        }
        if page.more {
            let after = reading.after.clone();
            return self.read_roster(channel, after);
        }
        let Some(reading) = self.presences.reading.remove(&channel) else { return };
        self.settle_reading(now, channel, reading);
    }

    /// The channel is known: watchers are told what is different, newcomers that they can begin.
    fn settle_reading(&mut self, now: Time, channel: Arc<str>, reading: Reading) {
        match self.presences.rooms.get(&channel) {
            Some(_) => {
                self.end_tick(now, &channel);
                if let Some(watched) = self.presences.rooms.get_mut(&channel) {
                    let difference = watched.room.replace(reading.snapshot);
                    self.tell_reading(now, &channel, difference);
                }
                if let Some(watched) = self.presences.rooms.get_mut(&channel) {
                    watched.catch_up();
                }
                self.tell_room(now, &channel);
            }
            // It was read again for watchers that have gone meanwhile.
            None if !self.is_watched(&channel) && !self.presences.held.contains_key(&channel) => return,
            None => {
                let watched = self.watched(&channel, Room::new(reading.snapshot));
                let base = watched.base();
                self.presences.rooms.insert(channel.clone(), watched);
                self.room_is_known(now, &channel, base);
            }
        }
        for news in reading.heard {
            self.hear_news(now, &news);
        }
        if reading.overflowed {
            self.read_again(&channel);
        }
        // If nobody begins to watch soon, nobody will.
        self.presences.holes.insert((now + FRESH_MS, channel));
        for claim in reading.claims {
            self.finish(claim, Ok(Vec::new()));
        }
    }

    /// News of a channel, from this shard, another one, or another node.
    pub fn hear_news(&mut self, now: Time, told: &ChannelNews) {
        if let Some(reading) = self.presences.reading.get_mut(&told.channel) {
            if reading.heard.len() < HEARD_MAX {
                reading.heard.push(told.clone());
            } else {
                reading.overflowed = true;
            }
        }
        let Some(watched) = self.presences.rooms.get_mut(&told.channel) else { return };
        watched.touch(&told.news);
        match watched.room.hear((*told.news).clone()) {
            Heard::Told => self.tell_room(now, &told.channel),
            Heard::Old => {}
            Heard::Hole => {
                // News of two nodes may overtake each other: what is missing is usually on its way.
                self.presences.holes.insert((now + HOLE_MS, told.channel.clone()));
            }
        }
    }

    /// Holes that nothing has filled.
    pub(crate) fn look_at_holes(&mut self, now: Time) {
        while let Some((due, channel)) = self.presences.holes.first().cloned()
            && due <= now
        {
            self.presences.holes.remove(&(due, channel.clone()));
            let behind = self.presences.behind.remove(&channel);
            if !self.presences.reading.contains_key(&channel) {
                self.forget_unwatched(&channel);
            }
            let Some(watched) = self.presences.rooms.get(&channel) else { continue };
            let late = behind.is_some_and(|version| version > watched.room.version());
            if late || watched.room.has_hole() {
                self.read_again(&channel);
            }
        }
    }

    /// Asks the store where the watched channels are: a last word that was lost shows in nothing else. Done at each
    /// heartbeat while there are other nodes.
    pub fn look_at_rooms(&mut self) {
        if !self.node.carrier.reaches_others() {
            return;
        }
        let mut channels: Vec<Arc<str>> = self.presences.rooms.keys().cloned().collect();
        // The same world asks the same questions in the same order.
        channels.sort();
        for channel in channels {
            let read = Read::Roster { channel: channel.clone(), after: None, limit: 1 };
            self.submit(Task::Look { channel }, Work::Read(read));
        }
    }

    /// The store is further than this room: what is missing may be on its way, for a while.
    pub(super) fn compare(&mut self, channel: &Arc<str>, roster: &Roster) {
        let now = self.now;
        let Some(watched) = self.presences.rooms.get(channel) else { return };
        let nobody = roster.users == 0 && watched.room.snapshot().members.is_empty();
        if roster.version > watched.room.version() && !nobody {
            self.presences.behind.insert(channel.clone(), roster.version);
            self.presences.holes.insert((now + HOLE_MS, channel.clone()));
        }
    }

    /// Something is missing: the channel is read again, once at a time.
    pub(crate) fn read_again(&mut self, channel: &Arc<str>) {
        if !self.presences.reading.contains_key(channel) {
            self.presences.reading.insert(channel.clone(), Reading::default());
            self.read_roster(channel.clone(), None);
        }
    }

    /// `who`: asked of the store, so that every asker gets the answer of its own moment.
    pub(crate) fn ask_who(
        &mut self,
        channel: &str,
        after: Option<&str>,
        limit: u32,
        counts_only: bool,
        viewer: Option<Arc<str>>,
        claim: Claim,
    ) {
        let limit = limit.clamp(1, PAGE);
        let read = Read::Roster {
            channel: channel.into(),
            after: after.map(Arc::from),
            limit: if counts_only { 1 } else { limit },
        };
        self.submit(Task::Who { claim, counts_only, viewer }, Work::Read(read));
    }

    pub(super) fn who_read(&self, counts_only: bool, viewer: Option<&str>, answer: Answer) -> Outcome {
        let sees = |user: &str, visibility| self.people.sees(viewer, user, visibility);
        match answer {
            Answer::Read(found) => members_of(found, counts_only, &sees).ok_or_else(internal),
            answer => Err(refusal(&answer)),
        }
    }
}

fn internal() -> Refusal {
    Refusal::new(Code::Internal, "the store gave no roster")
}

/// A part of a channel's members as JSON. None: that is no roster.
pub fn members_of(found: Found, counts_only: bool, sees: json::Sees<'_>) -> Option<Vec<u8>> {
    let Found::Roster(Roster { version, users: count, page }) = found else { return None };
    let more = page.more && !counts_only;
    let mut snapshot = Snapshot::default();
    for row in page.rows {
        insert(&mut snapshot, row);
    }
    let users: Vec<(&Arc<str>, &Member)> = snapshot.members.iter().collect();
    let next = users.last().filter(|_| more).map(|(user, _)| &***user);
    let mut body = Vec::new();
    let users = (!counts_only).then_some(users);
    json::members(&mut body, &json::Members { version, count, users, next }, sees);
    Some(body)
}

fn insert(snapshot: &mut Snapshot, row: Versioned<Presence>) {
    let Presence { key, anonymous, name, visibility, attendance } = row.row;
    snapshot.insert(key.user, Member { name, anonymous, visibility, ..Member::default() }, &attendance);
}
