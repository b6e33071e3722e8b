//! Sends the changes of a channel to its watchers, depending on its size: each change, one difference per tick, or
//! counts.
//! Must hold: the snapshot of a new watcher and the events after it are consistent in every mode.

use crate::core::listener::ListenerId;
use crate::core::{Core, Timer, Users};
use crate::event::{Event, Namespace, WatchedVersion};
use crate::user::is_own_channel;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Channel;
use tavern_domain::presence::{
    AttendanceChange, PresenceMode, PresenceUpdate, Room, RoomDifference, RoomMember, TickChanges,
    Visibility, VisibilityChanged,
};
use tavern_wire::json::presence as json;

/// A channel with a watcher on this shard.
pub(super) struct WatchedRoom {
    pub room: Room,
    mode: PresenceMode,
    tick: TickChanges,
    /// The members as everyone may see them, for new watchers at the same version.
    encoded: Option<(u64, PresenceMode, Arc<[u8]>)>,
    /// The timer for the end of the tick is set.
    ticking: bool,
    /// A user's own channel: empty for watchers who may not see the user. In other channels a hidden user has no
    /// name.
    personal: bool,
}

impl WatchedRoom {
    fn version(&self) -> u64 {
        match self.mode {
            PresenceMode::Full => self.room.version(),
            // As of the last tick, where the next one starts.
            PresenceMode::Coalesced | PresenceMode::Counts => self.tick.version(),
        }
    }

    fn shown(&self) -> BTreeMap<&Arc<str>, &RoomMember> {
        let snapshot = self.room.snapshot();
        match self.mode {
            PresenceMode::Full => snapshot.members.iter().collect(),
            PresenceMode::Coalesced | PresenceMode::Counts => self.tick.members(snapshot),
        }
    }

    /// The members as JSON, at the version where the events of a new watcher start. `follows`: whom the watcher
    /// follows; in a crowd only those are named.
    fn members(&self, sees: json::CanSee<'_>, follows: impl Fn(&str) -> bool) -> Arc<[u8]> {
        let mut members = self.shown();
        if self.personal {
            members.retain(|user, member| sees(user, member.visibility));
        }
        let count = members.len() as u64;
        if self.mode == PresenceMode::Counts {
            members.retain(|user, member| follows(user) && sees(user, member.visibility));
        }
        let users =
            (self.mode != PresenceMode::Counts || !members.is_empty()).then(|| members.into_iter().collect());
        let mut body = Vec::new();
        // A hidden user must look exactly like an offline one, also by the version.
        let version = if self.personal && count == 0 { 0 } else { self.version() };
        json::members(&mut body, &json::MemberPage { version, count, users, next: None }, sees);
        body.into()
    }

    /// The same as everyone may see it, encoded once per version.
    fn public_members(&mut self) -> Arc<[u8]> {
        let now = (self.version(), self.mode);
        if let Some((version, mode, body)) = &self.encoded
            && (*version, *mode) == now
        {
            return body.clone();
        }
        let body = self.members(&json::seen_by_everyone, |_| false);
        self.encoded = Some((now.0, now.1, body.clone()));
        body
    }

    /// The version where the events of a new watcher start. In a channel that became empty versions start again.
    pub fn base(&self) -> u64 {
        match self.mode {
            PresenceMode::Full => self.room.version(),
            PresenceMode::Coalesced | PresenceMode::Counts => self.tick.version(),
        }
    }

    /// Applies the changes that waited for a read.
    pub fn catch_up(&mut self) {
        self.touch_awaited();
        self.room.catch_up();
    }

    /// Changes that wait for a missing one may take effect in any later tick.
    fn touch_awaited(&mut self) {
        if self.mode != PresenceMode::Full {
            self.room.awaited().for_each(|user| self.tick.touch(self.room.snapshot(), user));
        }
    }

    /// A member is about to change: remembers them as they were.
    pub fn touch(&mut self, update: &PresenceUpdate) {
        if self.mode != PresenceMode::Full {
            self.tick.touch(self.room.snapshot(), &update.user);
            self.touch_awaited();
        }
    }
}

/// What the watchers of a channel are sent.
impl WatchedRoom {
    pub fn new(core: &Core, channel: &str, room: Room) -> WatchedRoom {
        let mode = mode_of(core, channel, PresenceMode::Full, room.snapshot().members.len());
        let (tick, personal) = (TickChanges::at(room.version()), is_own_channel(channel));
        WatchedRoom { tick, room, mode, encoded: None, ticking: false, personal }
    }

    /// Sends watchers the changes that were applied, or schedules the end of the tick.
    pub fn send_updates(&mut self, core: &mut Core, channel: &Arc<str>) {
        let tick_ms = core.node.settings.tick_ms;
        let updates = self.room.take_emitted();
        if self.mode == PresenceMode::Full {
            for update in updates {
                self.send_update(core, channel, &update);
            }
        } else if !updates.is_empty() && !std::mem::replace(&mut self.ticking, true) {
            core.agenda.set(core.now + tick_ms, Timer::PresenceTick(channel.clone()));
        }
        self.change_mode(core, channel);
    }

    /// The members of a room for a new watcher.
    pub fn members_for(&mut self, core: &mut Core, channel: &str, id: ListenerId) -> Arc<[u8]> {
        if let Some(marks) = core.listeners.get_mut(id).and_then(|one| one.received_elsewhere.as_mut()) {
            marks.forget_presence(channel);
        }
        let user = core.user_of(id);
        let eyes = RoomViewer { users: &core.users, user: user.as_deref() };
        // Only the followers of a hidden member, or of members of a crowd, see more than everyone.
        let counts = self.mode == PresenceMode::Counts;
        let more = |(user, member): (&Arc<str>, &RoomMember)| {
            (counts || member.visibility != Visibility::Everyone) && eyes.is_close(user)
        };
        if eyes.user.is_none() || !self.room.snapshot().members.iter().any(more) {
            return self.public_members();
        }
        let sees = |user: &str, visibility| eyes.sees(user, visibility);
        self.members(&sees, |user| eyes.follows(user))
    }

    fn send_update(&self, core: &mut Core, channel: &Arc<str>, update: &PresenceUpdate) {
        let first = update.to + 1 - update.changes.len() as u64;
        for (at, change) in update.changes.iter().enumerate() {
            let version = first + at as u64;
            if let AttendanceChange::VisibilityChanged { from, to } = change {
                self.send_visibility_change(core, channel, update, (*from, *to), version);
                continue;
            }
            let personal = is_own_channel(channel);
            let close: BTreeSet<u32> = match update.visibility {
                Visibility::Everyone => BTreeSet::new(),
                _ => core.users.sessions_close_to(&update.user).map(|id| id.index).collect(),
            };
            send_to_watchers(core, channel, (version - 1, version), &close, |eyes| {
                let mut tail = Vec::new();
                let sees = |user: &str, visibility| eyes.sees(user, visibility);
                if personal && !sees(&update.user, update.visibility) {
                    return None;
                }
                json::change_tail(&mut tail, channel, update, change, version, &sees);
                Some(tail)
            });
        }
    }

    /// A user's visibility changed: they disappear for some watchers and appear for others, in one version.
    fn send_visibility_change(
        &self,
        core: &mut Core,
        channel: &Arc<str>,
        update: &PresenceUpdate,
        (from, to): (Visibility, Visibility),
        version: u64,
    ) {
        let members = &self.room.snapshot().members;
        let clients = members.get(&update.user).map(|member| member.clients.clone()).unwrap_or_default();
        let changed = vec![VisibilityChanged { user: update.user.clone(), from, to, clients }];
        let count = members.len();
        let difference = RoomDifference {
            from: version - 1,
            to: version,
            visibility_changed: changed,
            count,
            ..RoomDifference::default()
        };
        self.send_difference(core, channel, &difference, PresenceMode::Full);
    }

    /// The channel has grown or shrunk past a threshold: sends watchers the new mode.
    fn change_mode(&mut self, core: &mut Core, channel: &Arc<str>) {
        let mode = mode_of(core, channel, self.mode, self.room.snapshot().members.len());
        if mode == self.mode {
            return;
        }
        self.end_tick(core, channel);
        self.mode = mode;
        let version = self.room.version();
        self.tick = TickChanges::at(version);
        send_to_watchers(core, channel, (version, version), &BTreeSet::new(), |_| {
            let mut tail = Vec::new();
            json::mode_tail(&mut tail, channel, mode, version);
            Some(tail)
        });
    }

    /// A tick is over.
    pub fn tick(&mut self, core: &mut Core, channel: &Arc<str>) {
        self.ticking = false;
        self.end_tick(core, channel);
    }

    /// Sends the difference of a tick.
    pub fn end_tick(&mut self, core: &mut Core, channel: &Arc<str>) {
        if self.mode != PresenceMode::Full
            && let Some(difference) = self.tick.settle(self.room.snapshot())
        {
            self.send_difference(core, channel, &difference, self.mode);
        }
    }

    /// The channel was read again: changes that were not sent yet are sent as one difference.
    pub fn send_reloaded(&mut self, core: &mut Core, channel: &Arc<str>, mut difference: RoomDifference) {
        // Send the version even if no member is different: a client that counts versions must not miss one.
        if difference.to == difference.from {
            return;
        }
        if self.mode != PresenceMode::Full {
            // A tick whose changes cancelled out was not sent.
            difference.from = self.tick.version();
        }
        self.tick = TickChanges::at(difference.to);
        self.send_difference(core, channel, &difference, self.mode);
    }

    fn send_difference(
        &self,
        core: &mut Core,
        channel: &str,
        difference: &RoomDifference,
        mode: PresenceMode,
    ) {
        let close = close_to(core, difference, mode);
        let personal = is_own_channel(channel).then(|| self.visible_members());
        send_to_watchers(core, channel, (difference.from, difference.to), &close, |eyes| {
            let mut tail = Vec::new();
            let sees = |user: &str, visibility| eyes.sees(user, visibility);
            if let Some(shown) = &personal {
                let seen = shown.iter().filter(|(user, visibility)| sees(user, *visibility)).count();
                let difference = difference.as_seen(seen, &sees);
                if seen == 0 && difference.is_empty() {
                    return None;
                }
                json::difference_tail(&mut tail, channel, &difference, &sees);
                return Some(tail);
            }
            match mode {
                PresenceMode::Full | PresenceMode::Coalesced => {
                    json::difference_tail(&mut tail, channel, difference, &sees)
                }
                PresenceMode::Counts => {
                    match difference.only(|user, shown| eyes.follows(user) && sees(user, shown)) {
                        Some(followed) => json::difference_tail(&mut tail, channel, &followed, &sees),
                        None => json::count_tail(&mut tail, channel, difference),
                    }
                }
            }
            Some(tail)
        });
    }

    /// The users in the channel, with their visibility.
    fn visible_members(&self) -> Vec<(Arc<str>, Visibility)> {
        let members = &self.room.snapshot().members;
        members.iter().map(|(user, member)| (user.clone(), member.visibility)).collect()
    }
}

/// The mode of a channel of this size, coming from another mode.
fn mode_of(core: &Core, channel: &str, mode: PresenceMode, users: usize) -> PresenceMode {
    let settings = &core.node.settings;
    let kind = Channel::parse(channel).map_or("", |channel| channel.kind);
    settings.kind(kind).presence_mode.unwrap_or_else(|| settings.crowds.mode(mode, users))
}

/// The sessions that see more of a difference than everyone does.
fn close_to(core: &Core, difference: &RoomDifference, mode: PresenceMode) -> BTreeSet<u32> {
    let more = |visibility| mode == PresenceMode::Counts || visibility != Visibility::Everyone;
    let entries = difference.joined.iter().chain(&difference.updated);
    let entries = entries.map(|entry| (&entry.user, entry.visibility));
    let left = difference.left.iter().map(|gone| (&gone.user, gone.visibility));
    // Followers see a visibility change differently from everyone else, in both directions.
    let changed = difference.visibility_changed.iter().map(|change| (&change.user, Visibility::Nobody));
    let users = entries.chain(left).chain(changed).filter(|(_, visibility)| more(*visibility));
    let sessions = users.flat_map(|(user, _)| core.users.sessions_close_to(user));
    sessions.map(|id| id.index).collect()
}

/// Rendered once for everyone, and once for each session that may see more. None: the viewer gets nothing.
fn send_to_watchers(
    core: &mut Core,
    channel: &str,
    (from, version): (u64, u64),
    close: &BTreeSet<u32>,
    write: impl Fn(RoomViewer<'_>) -> Option<Vec<u8>>,
) {
    let now = core.now;
    let Some(place) = core.routing.find(Namespace::Presence, channel.as_bytes()) else { return };
    let pool = core.event_memory.clone();
    let watched_version = WatchedVersion { channel: channel.into(), from, version };
    let event = |tail: Vec<u8>| Event::presence(tail.into_boxed_slice(), now, watched_version.clone(), &pool);
    let shared = write(RoomViewer { users: &core.users, user: None }).map(&event);
    let listeners = std::mem::take(&mut core.routing.place_mut(place).listeners);
    for &listener in &listeners {
        if !close.contains(&listener) {
            if let Some(shared) = &shared {
                core.deliver_event(listener, shared);
            }
            continue;
        }
        let session = core.listeners.at(listener).session();
        let user = session.and_then(|session| session.identity.user.clone());
        let own = write(RoomViewer { users: &core.users, user: user.as_deref() }).map(&event);
        if let Some(own) = own {
            core.deliver_event(listener, &own);
        }
    }
    core.routing.place_mut(place).listeners = listeners;
}

/// The viewer of a channel; without a user, what everyone may see.
#[derive(Clone, Copy)]
struct RoomViewer<'a> {
    users: &'a Users,
    user: Option<&'a str>,
}

impl RoomViewer<'_> {
    fn sees(self, user: &str, visibility: Visibility) -> bool {
        self.users.sees(self.user, user, visibility)
    }

    fn follows(self, user: &str) -> bool {
        self.user.is_some_and(|viewer| self.users.follows(viewer, user))
    }

    /// The user themselves, or a follower.
    fn is_close(self, user: &str) -> bool {
        self.user == Some(user) || self.follows(user)
    }
}
