//! Watched channels: each is read once, then updated by its changes. If a change is missing, the channel is read
//! again.
//! Must hold: a watcher gets every change after its snapshot, in order and once.

use super::audience::WatchedRoom;
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{CommandReply, Core, Feature, Notice, ReplyTo, Timer, refusal};
use crate::event::Namespace;
use crate::node::ChannelUpdate;
use crate::node::registry::NameEntry;
use crate::user::is_own_channel;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::presence::{Applied, Room, RoomMember, RoomSnapshot};
use tavern_store::{Found, PresencePage, PresenceRow, Read, StoreAnswer, Ticket, Versioned, Work};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::WhoRequest;
use tavern_wire::json::presence as json;

/// The channels whose presence is watched from this shard.
#[derive(Default)]
pub(crate) struct Rooms {
    pub(super) rooms: HashMap<Arc<str>, WatchedRoom, RandomState>,
    requests: HashMap<Ticket, RoomRequest, RandomState>,
    /// Channels that are being read before they can be watched.
    reading: BTreeMap<Arc<str>, RoomLoad>,
    /// Channels without a watcher whose changes are already routed here: they are being read for the first one.
    early_interest: HashMap<Arc<str>, Arc<NameEntry>, RandomState>,
    /// Channels whose version in the store is newer than here, and that version.
    behind: BTreeMap<Arc<str>, u64>,
}

/// A request to the store.
enum RoomRequest {
    /// A page of a channel's members.
    Members { channel: Arc<str> },
    /// Whether a watched channel has the version of the store.
    Compare { channel: Arc<str> },
    Who {
        claim: ReplyTo,
        counts_only: bool,
        viewer: Option<Arc<str>>,
        /// A user's own channel, which is empty for watchers who may not see the user.
        personal: bool,
    },
}

/// A channel that is being read, page by page, and the changes received during the read.
#[derive(Default)]
pub(super) struct RoomLoad {
    snapshot: RoomSnapshot,
    after: Option<Arc<str>>,
    updates: Vec<ChannelUpdate>,
    /// More changes arrived than are buffered: it must be read again.
    overflowed: bool,
    claims: Vec<ReplyTo>,
}

/// Users in one answer to `who`, unless it names a limit.
const WHO_USERS: u64 = 100;
/// One page of a channel's members.
const PAGE: u32 = 1000;
/// How long a missing change may be in flight before the channel is read again.
const MISSING_MS: u64 = 1_000;
/// How long a channel that was read may wait for its first watcher.
const FRESH_MS: u64 = 1_000;
/// Changes that are buffered while a channel is read; with more it is read again.
const UPDATES_MAX: usize = 10_000;

impl Rooms {
    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        match (self.requests.remove(&ticket), answer) {
            (Some(RoomRequest::Members { channel }), answer) => self.roster_read(core, channel, answer),
            (Some(RoomRequest::Compare { channel }), StoreAnswer::Read(Found::Roster(roster))) => {
                self.compare(core, &channel, &roster);
            }
            (Some(RoomRequest::Who { claim, counts_only, viewer, personal }), answer) => {
                let reply = who_read(core, counts_only, personal, viewer.as_deref(), answer);
                core.finish(claim, reply);
            }
            // Compared again at the next heartbeat.
            (Some(RoomRequest::Compare { .. }) | None, _) => {}
        }
    }

    fn ask(&mut self, core: &mut Core, question: RoomRequest, work: Work) {
        self.requests.insert(core.submit(Feature::Presence, work), question);
    }

    pub fn known_version(&self, channel: &str) -> Option<u64> {
        self.rooms.get(channel).map(|watched| watched.room.version())
    }

    pub fn base(&self, channel: &str) -> Option<u64> {
        self.rooms.get(channel).map(WatchedRoom::base)
    }

    /// The last local watcher of a channel has left: drops its cached members, which would go stale.
    pub fn unwatched(&mut self, core: &Core, channel: &str) {
        if !is_watched(core, channel) {
            self.rooms.remove(channel);
        }
    }

    /// The members of a watched channel as JSON. None: it is being read; the link is named in `Effects::ready` when
    /// that is done.
    pub(crate) fn members(
        &mut self,
        core: &mut Core,
        channel: &Arc<str>,
        id: ListenerId,
        link: LinkId,
    ) -> Option<Arc<[u8]>> {
        if self.rooms.contains_key(channel) {
            return self.room_members(core, channel, id);
        }
        // Before the read starts: changes during the read must be received.
        self.begin_interest(core, channel);
        let known = self.reading.contains_key(channel);
        let claim = core.replies.expect_refusal(link);
        self.reading.entry(channel.clone()).or_default().claims.push(claim);
        if !known {
            self.read_roster(core, channel.clone(), None);
        }
        None
    }

    /// Routes the changes of a channel to this shard before its first watcher is subscribed.
    fn begin_interest(&mut self, core: &mut Core, channel: &Arc<str>) {
        if !self.early_interest.contains_key(channel) && !is_watched(core, channel) {
            let entry = core.node.registry.intern(Namespace::Presence, channel.as_bytes());
            entry.added(core.index, true);
            self.early_interest.insert(channel.clone(), entry);
        }
    }

    /// The channel has a watcher by now, or will not get one.
    pub(crate) fn end_interest(&mut self, core: &mut Core, channel: &str) {
        let Some(entry) = self.early_interest.remove(channel) else { return };
        let unused = entry.removed(core.index, !is_watched(core, channel));
        core.node.registry.forget(Namespace::Presence, &entry);
        if unused {
            core.release_later(Namespace::Presence, entry.name.clone());
        }
    }

    /// Drops the cached state of a channel without a watcher.
    fn forget_unwatched(&mut self, core: &mut Core, channel: &str) {
        if !is_watched(core, channel) {
            self.rooms.remove(channel);
            self.end_interest(core, channel);
        }
    }

    fn read_roster(&mut self, core: &mut Core, channel: Arc<str>, after: Option<Arc<str>>) {
        let work = Work::Read(Read::Roster { channel: channel.clone(), after, limit: PAGE });
        self.ask(core, RoomRequest::Members { channel }, work);
    }

    pub(super) fn roster_read(&mut self, core: &mut Core, channel: Arc<str>, answer: StoreAnswer) {
        let StoreAnswer::Read(Found::Roster(roster)) = answer else {
            if let Some(reading) = self.reading.remove(&channel) {
                for claim in reading.claims {
                    core.finish(claim, Err(refusal(&answer)));
                }
                self.forget_unwatched(core, &channel);
                // Watchers get the difference as soon as it can be read.
                core.agenda.set(core.now + MISSING_MS, Timer::ChannelCheck(channel));
            }
            return;
        };
        let Some(reading) = self.reading.get_mut(&channel) else { return };
        // Pages of two versions are inconsistent.
        if reading.after.is_some() && reading.snapshot.version != roster.version {
            (reading.snapshot, reading.after) = (RoomSnapshot::default(), None);
            return self.read_roster(core, channel, None);
        }
        reading.snapshot.version = roster.version;
        let PresencePage { page, .. } = roster;
        reading.after = page.rows.last().map(|row| row.row.key.user.clone());
        for row in page.rows {
            insert(&mut reading.snapshot, row);
        }
        if page.more {
            let after = reading.after.clone();
            return self.read_roster(core, channel, after);
        }
        let Some(reading) = self.reading.remove(&channel) else { return };
        self.settle_reading(core, channel, reading);
    }

    /// The channel was read: watchers are sent the difference, waiting commands continue.
    fn settle_reading(&mut self, core: &mut Core, channel: Arc<str>, reading: RoomLoad) {
        match self.rooms.get(&channel) {
            Some(_) => {
                self.end_tick(core, &channel);
                if let Some(watched) = self.rooms.get_mut(&channel) {
                    let difference = watched.room.replace(reading.snapshot);
                    self.send_reloaded(core, &channel, difference);
                }
                if let Some(watched) = self.rooms.get_mut(&channel) {
                    watched.catch_up();
                }
                self.send_updates(core, &channel);
            }
            // It was read for watchers that have left since, and updates may have been missed: later watchers start
            // again.
            None if !is_watched(core, &channel) && !self.early_interest.contains_key(&channel) => {
                reading.claims.into_iter().for_each(|claim| core.finish(claim, Ok(Vec::new())));
                return;
            }
            None => {
                let watched = self.watched(core, &channel, Room::new(reading.snapshot));
                let base = watched.base();
                self.rooms.insert(channel.clone(), watched);
                core.notify(Notice::ChannelLoaded { channel: channel.clone(), base });
            }
        }
        // Routed after `ChannelLoaded`: a session that was adopted gets its gap before these changes.
        for update in reading.updates {
            core.notify(Notice::PresenceChanged(update));
        }
        if reading.overflowed {
            self.read_again(core, &channel);
        }
        // Dropped if the first watcher does not subscribe soon.
        core.agenda.set(core.now + FRESH_MS, Timer::ChannelCheck(channel));
        for claim in reading.claims {
            core.finish(claim, Ok(Vec::new()));
        }
    }

    /// A change of a channel, from this shard, another one, or another node.
    pub fn apply_update(&mut self, core: &mut Core, channel_update: &ChannelUpdate) {
        if let Some(reading) = self.reading.get_mut(&channel_update.channel) {
            if reading.updates.len() < UPDATES_MAX {
                reading.updates.push(channel_update.clone());
            } else {
                reading.overflowed = true;
            }
        }
        let Some(watched) = self.rooms.get_mut(&channel_update.channel) else { return };
        watched.touch(&channel_update.update);
        match watched.room.apply((*channel_update.update).clone()) {
            Applied::Emitted => self.send_updates(core, &channel_update.channel),
            Applied::Old => {}
            Applied::Gap => {
                // Changes of two nodes may arrive out of order: the missing one is usually in flight.
                core.agenda.set(core.now + MISSING_MS, Timer::ChannelCheck(channel_update.channel.clone()));
            }
        }
    }

    /// Reads missing changes from the store; drops a channel without a watcher.
    pub(crate) fn check_channel(&mut self, core: &mut Core, channel: &Arc<str>) {
        let behind = self.behind.remove(channel);
        if !self.reading.contains_key(channel) {
            self.forget_unwatched(core, channel);
        }
        let Some(watched) = self.rooms.get(channel) else {
            if is_watched(core, channel) {
                // Sessions that migrated here watch it, and the first read failed.
                self.read_again(core, channel);
            }
            return;
        };
        let late = behind.is_some_and(|version| version > watched.room.version());
        if late || watched.room.has_gap() {
            self.read_again(core, channel);
        }
    }

    /// Compares the watched channels with the store, because the loss of the last change cannot be detected
    /// otherwise. Done at each heartbeat while there are other nodes.
    pub fn compare_rooms(&mut self, core: &mut Core) {
        if !core.node.bus_interests.reaches_others() {
            return;
        }
        let mut channels: Vec<Arc<str>> = self.rooms.keys().cloned().collect();
        // Sorted, so that a run is reproducible.
        channels.sort();
        for channel in channels {
            let read = Read::Roster { channel: channel.clone(), after: None, limit: 1 };
            self.ask(core, RoomRequest::Compare { channel }, Work::Read(read));
        }
    }

    /// The store has a newer version: the missing changes may still be in flight for a while.
    pub(super) fn compare(&mut self, core: &mut Core, channel: &Arc<str>, roster: &PresencePage) {
        let Some(watched) = self.rooms.get(channel) else { return };
        let empty = roster.users == 0 && watched.room.snapshot().members.is_empty();
        if roster.version > watched.room.version() && !empty {
            self.behind.insert(channel.clone(), roster.version);
            core.agenda.set(core.now + MISSING_MS, Timer::ChannelCheck(channel.clone()));
        }
    }

    /// A change is missing: reads the channel again, one read at a time.
    pub(crate) fn read_again(&mut self, core: &mut Core, channel: &Arc<str>) {
        if !self.reading.contains_key(channel) {
            self.reading.insert(channel.clone(), RoomLoad::default());
            self.read_roster(core, channel.clone(), None);
        }
    }

    /// `who`: read from the store, so that every caller gets the current answer.
    pub(crate) fn ask_who(
        &mut self,
        core: &mut Core,
        channel: &str,
        who: &WhoRequest<'_>,
        viewer: Option<Arc<str>>,
        claim: ReplyTo,
    ) {
        let limit = who.limit.unwrap_or(WHO_USERS) as u32;
        let read = Read::Roster {
            channel: channel.into(),
            after: who.after.as_deref().map(Arc::from),
            limit: if who.counts_only { 1 } else { limit },
        };
        let personal = is_own_channel(channel);
        let question = RoomRequest::Who { claim, counts_only: who.counts_only, viewer, personal };
        self.ask(core, question, Work::Read(read));
    }
}

fn internal() -> Refusal {
    Refusal::new(Code::Internal, "the store returned an unexpected answer")
}

/// A page of a channel's members as JSON. None: the answer is not a page of members.
pub fn members_of(found: Found, counts_only: bool, sees: json::CanSee<'_>) -> Option<Vec<u8>> {
    let Found::Roster(PresencePage { version, users: count, page }) = found else { return None };
    let more = page.more && !counts_only;
    let mut snapshot = RoomSnapshot::default();
    for row in page.rows {
        insert(&mut snapshot, row);
    }
    let users: Vec<(&Arc<str>, &RoomMember)> = snapshot.members.iter().collect();
    let next = users.last().filter(|_| more).map(|(user, _)| &***user);
    let mut body = Vec::new();
    let users = (!counts_only).then_some(users);
    json::members(&mut body, &json::MemberPage { version, count, users, next }, sees);
    Some(body)
}

fn insert(snapshot: &mut RoomSnapshot, row: Versioned<PresenceRow>) {
    let PresenceRow { key, anonymous, name, visibility, attendance } = row.row;
    snapshot.insert(
        key.user,
        RoomMember { name, anonymous, visibility, ..RoomMember::default() },
        &attendance,
    );
}

fn is_watched(core: &Core, channel: &str) -> bool {
    core.routing.find(Namespace::Presence, channel.as_bytes()).is_some()
}

fn who_read(
    core: &Core,
    counts_only: bool,
    personal: bool,
    viewer: Option<&str>,
    answer: StoreAnswer,
) -> CommandReply {
    let sees = |user: &str, visibility| core.users.sees(viewer, user, visibility);
    match answer {
        StoreAnswer::Read(Found::Roster(mut roster)) if personal => {
            let all = roster.page.rows.len();
            roster.page.rows.retain(|row| sees(&row.row.key.user, row.row.visibility));
            roster.users -= (all - roster.page.rows.len()) as u64;
            if roster.users == 0 {
                roster.version = 0;
            }
            members_of(Found::Roster(roster), counts_only, &sees).ok_or_else(internal)
        }
        StoreAnswer::Read(found) => members_of(found, counts_only, &sees).ok_or_else(internal),
        answer => Err(refusal(&answer)),
    }
}
