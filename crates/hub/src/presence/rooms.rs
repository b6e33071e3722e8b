//! Watched channels: each is read once, then updated by its changes. If a change is missing, the channel is read
//! again.
//! Must hold: a watcher gets every change after its snapshot, in order and once.

use super::audience::WatchedRoom;
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{CommandReply, Core, Feature, Notice, ReplyTo, refusal};
use crate::event::Namespace;
use crate::node::ChannelUpdate;
use crate::node::registry::NameEntry;
use crate::replica::{PageLoad, Replica, Replicas};
use crate::user::is_own_channel;
use std::sync::Arc;
use tavern_domain::presence::{Applied, Room, RoomMember, RoomSnapshot};
use tavern_store::{Found, PresencePage, PresenceRow, Read, StoreAnswer, Ticket, Versioned, Work, planted};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::WhoRequest;
use tavern_wire::json::presence as json;

/// The channels whose presence is watched from this shard.
pub(crate) struct Rooms {
    copies: Replicas<RoomCopy>,
}

/// The copy of a channel's members.
#[derive(Default)]
struct RoomCopy {
    /// None: it was not read, or had no watcher since.
    watched: Option<WatchedRoom>,
    /// The members that the read in progress has found.
    snapshot: RoomSnapshot,
    after: Option<Arc<str>>,
    /// Its changes are routed here although it has no watcher: it is being read for the first one.
    early_interest: Option<Arc<NameEntry>>,
}

/// Users in one answer to `who`, unless it names a limit.
const WHO_USERS: u64 = 100;
/// One page of a channel's members.
const PAGE: u32 = 1000;

impl RoomCopy {
    fn page(channel: &Arc<str>, after: Option<Arc<str>>, limit: u32) -> Read {
        Read::Roster { channel: channel.clone(), after, limit }
    }

    /// Routes the changes of a channel to this shard before its first watcher is subscribed.
    fn begin_interest(&mut self, core: &Core, channel: &str) {
        if self.early_interest.is_none() && !is_watched(core, channel) {
            let entry = core.node.registry.intern(Namespace::Presence, channel.as_bytes());
            entry.added(core.index, true);
            self.early_interest = Some(entry);
        }
    }

    /// The channel has a watcher by now, or will not get one.
    fn end_interest(&mut self, core: &mut Core, channel: &str) {
        let Some(entry) = self.early_interest.take() else { return };
        let unused = entry.removed(core.index, !is_watched(core, channel));
        core.node.registry.forget(Namespace::Presence, &entry);
        if unused {
            core.release_later(Namespace::Presence, entry.name.clone());
        }
    }
}

impl Replica for RoomCopy {
    type Host = Core;
    type Update = ChannelUpdate;
    type Waiter = ReplyTo;

    /// The first watcher subscribes soon, or not at all.
    const UNUSED_MS: u64 = 1_000;

    fn begin(&mut self, _: &mut Core, channel: &Arc<str>) -> Option<Read> {
        (self.snapshot, self.after) = (RoomSnapshot::default(), None);
        Some(RoomCopy::page(channel, None, PAGE))
    }

    fn load(&mut self, _: &mut Core, channel: &Arc<str>, found: Found) -> PageLoad {
        let Found::Roster(PresencePage { version, page, .. }) = found else { return PageLoad::Unusable };
        // Pages of two versions are inconsistent.
        if self.after.is_some() && self.snapshot.version != version {
            return PageLoad::Again;
        }
        self.snapshot.version = version;
        self.after = page.rows.last().map(|row| row.row.key.user.clone());
        for row in page.rows {
            insert(&mut self.snapshot, row);
        }
        match page.more {
            true => PageLoad::More(RoomCopy::page(channel, self.after.clone(), PAGE)),
            false => PageLoad::Complete,
        }
    }

    /// Watchers are sent the difference.
    fn install(&mut self, core: &mut Core, channel: &Arc<str>) {
        let mut snapshot = std::mem::take(&mut self.snapshot);
        if let Some(watched) = &mut self.watched {
            if planted("hub-replica-deleted") {
                let members = watched.room.snapshot().members.clone();
                snapshot.members = members.into_iter().chain(snapshot.members).collect();
            }
            watched.end_tick(core, channel);
            let difference = watched.room.replace(snapshot);
            watched.send_reloaded(core, channel, difference);
            watched.catch_up();
            watched.send_updates(core, channel);
        } else if self.is_used(core, channel) {
            let watched = WatchedRoom::new(core, channel, Room::new(snapshot));
            core.notify(Notice::ChannelLoaded { channel: channel.clone(), base: watched.base() });
            self.watched = Some(watched);
        }
        // Otherwise it was read for watchers that have left since, and updates may have been missed: later watchers
        // start again.
    }

    fn apply(&mut self, core: &mut Core, channel: &Arc<str>, channel_update: &ChannelUpdate) -> Applied {
        let Some(watched) = &mut self.watched else { return Applied::Old };
        watched.touch(&channel_update.update);
        let mut update = (*channel_update.update).clone();
        if planted("hub-replica-twice") && update.to <= watched.room.version() {
            update.to = watched.room.version() + update.changes.len() as u64;
        }
        let applied = watched.room.apply(update);
        if applied == Applied::Emitted {
            watched.send_updates(core, channel);
        }
        applied
    }

    /// Routed after `ChannelLoaded`: a session that was adopted gets its gap before these changes.
    fn apply_kept(&mut self, core: &mut Core, _: &Arc<str>, channel_update: &ChannelUpdate) -> Applied {
        core.notify(Notice::PresenceChanged(channel_update.clone()));
        Applied::Old
    }

    fn has_gap(&self) -> bool {
        self.watched.as_ref().is_none_or(|watched| watched.room.has_gap())
    }

    fn compare(&self, channel: &Arc<str>) -> Option<Read> {
        self.watched.as_ref().map(|_| RoomCopy::page(channel, None, 1))
    }

    fn is_behind(&self, found: &Found) -> bool {
        let (Some(watched), Found::Roster(roster)) = (&self.watched, found) else { return false };
        let empty = roster.users == 0 && watched.room.snapshot().members.is_empty();
        !empty && roster.version > watched.room.version()
    }

    fn is_used(&self, core: &Core, channel: &Arc<str>) -> bool {
        self.early_interest.is_some() || is_watched(core, channel)
    }

    fn expire(&mut self, core: &mut Core, channel: &Arc<str>) {
        if !is_watched(core, channel) {
            self.end_interest(core, channel);
        }
    }

    fn end(mut self, core: &mut Core, channel: &Arc<str>) {
        self.end_interest(core, channel);
    }
}

impl Rooms {
    pub fn new() -> Rooms {
        Rooms { copies: Replicas::new(Feature::Presence) }
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.copies.answered(core, ticket, answer) else { return };
        for claim in read.waiters {
            let reply = read.failed.as_ref().map_or(Ok(Vec::new()), |failed| Err(refusal(failed)));
            core.finish(claim, reply);
        }
    }

    pub fn replica_is_due(&mut self, core: &mut Core, channel: &Arc<str>) {
        self.copies.due(core, channel);
    }

    fn watched(&self, channel: &str) -> Option<&WatchedRoom> {
        self.copies.get(channel)?.watched.as_ref()
    }

    fn watched_mut(&mut self, channel: &str) -> Option<&mut WatchedRoom> {
        self.copies.get_mut(channel)?.watched.as_mut()
    }

    pub fn known_version(&self, channel: &str) -> Option<u64> {
        self.watched(channel).map(|watched| watched.room.version())
    }

    pub fn base(&self, channel: &str) -> Option<u64> {
        self.watched(channel).map(WatchedRoom::base)
    }

    /// The last local watcher of a channel has left: drops its cached members, which would go stale.
    pub fn unwatched(&mut self, core: &mut Core, channel: &Arc<str>) {
        if !is_watched(core, channel)
            && let Some(copy) = self.copies.get_mut(channel)
        {
            copy.watched = None;
            self.copies.drop_unused(core, channel);
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
        if let Some(watched) = self.watched_mut(channel) {
            return Some(watched.members_for(core, channel, id));
        }
        // Before the read starts: changes during the read must be received.
        self.copies.make(channel).begin_interest(core, channel);
        let claim = core.replies.expect_refusal(core.now, link);
        self.copies.wait(core, channel, claim);
        None
    }

    /// The channel has a watcher by now, or will not get one.
    pub(crate) fn end_interest(&mut self, core: &mut Core, channel: &str) {
        if let Some(copy) = self.copies.get_mut(channel) {
            copy.end_interest(core, channel);
        }
    }

    /// A change of a channel, from this shard, another one, or another node.
    pub fn apply_update(&mut self, core: &mut Core, channel_update: &ChannelUpdate) {
        self.copies.update(core, &channel_update.channel, channel_update);
    }

    /// A tick is over.
    pub(crate) fn tick(&mut self, core: &mut Core, channel: &Arc<str>) {
        if let Some(watched) = self.watched_mut(channel) {
            watched.tick(core, channel);
        }
    }

    /// Sends the changes of a tick before it is over.
    pub(crate) fn end_tick(&mut self, core: &mut Core, channel: &Arc<str>) {
        if let Some(watched) = self.watched_mut(channel) {
            watched.end_tick(core, channel);
        }
    }

    /// Compares the watched channels with the store, at each heartbeat while there are other nodes.
    pub fn compare_rooms(&mut self, core: &mut Core) {
        if core.node.bus_interests.reaches_others() {
            self.copies.compare(core);
        }
    }

    /// Changes of a channel may have been missed: reads it, unless it is being read.
    pub(crate) fn read_again(&mut self, core: &mut Core, channel: &Arc<str>) {
        self.copies.read(core, channel);
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
        // A user's own channel is empty for those who may not see the user.
        let (personal, counts_only) = (is_own_channel(channel), who.counts_only);
        core.ask_store(Work::Read(read), claim, move |core, answer| {
            who_read(core, counts_only, personal, viewer.as_deref(), answer)
        });
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
