//! A channel as its watchers see it: the members at a version. It is fed with the changes of commits, in any order and more
//! than once, and emits them in order and once, or reports that one is missing and the channel must be read again.
//! Must hold: a snapshot with the changes after it equals the later snapshot; a version is emitted once.

use super::attendance::{Attendance, AttendanceChange, ClientState};
use super::visibility::Visibility;
use crate::id::ClientId;
use crate::sorted::Sorted;
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One user of a channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoomMember {
    pub name: Option<Arc<str>>,
    pub anonymous: bool,
    pub visibility: Visibility,
    pub since: Time,
    /// Within a grace period: all clients are lost.
    pub leaving: bool,
    pub clients: Sorted<ClientId, RoomClient>,
}

/// One client of a user.
#[derive(Clone, Debug, PartialEq)]
pub struct RoomClient {
    pub state: Option<ClientState>,
    pub since: Time,
}

/// What one commit changed for one user. The channel's version is `to` after it, and grew by one with each change.
#[derive(Clone, Debug, PartialEq)]
pub struct PresenceUpdate {
    pub user: Arc<str>,
    pub name: Option<Arc<str>>,
    pub anonymous: bool,
    /// The user's visibility after these changes.
    pub visibility: Visibility,
    pub at: Time,
    pub changes: Vec<AttendanceChange>,
    pub to: u64,
    /// The channel was empty before: its versions start again, above the earlier ones.
    pub begins: bool,
}

/// The result of `Room::apply`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was applied, together with changes that waited for it: see `Room::take_emitted`.
    Emitted,
    /// It was already applied.
    Old,
    /// An earlier one is missing. It is buffered; if the missing one does not arrive, read the channel again.
    Gap,
}

/// The members of a channel at a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoomSnapshot {
    pub version: u64,
    pub members: BTreeMap<Arc<str>, RoomMember>,
}

/// A channel as its watchers see it.
#[derive(Clone, Debug, Default)]
pub struct Room {
    now: RoomSnapshot,
    /// Changes that wait for a missing one, by the version before their first change.
    waiting: BTreeMap<u64, PresenceUpdate>,
    emitted: Vec<PresenceUpdate>,
}

/// Changes that may wait for a missing one. With more it is cheaper to read the channel again.
const WAITING_MAX: usize = 256;

impl PresenceUpdate {
    fn from(&self) -> u64 {
        self.to.saturating_sub(self.changes.len() as u64)
    }
}

impl Room {
    /// Begins with a snapshot. Every change after it is emitted.
    pub fn new(snapshot: RoomSnapshot) -> Room {
        Room { now: snapshot, ..Room::default() }
    }

    pub fn snapshot(&self) -> &RoomSnapshot {
        &self.now
    }

    pub fn version(&self) -> u64 {
        self.now.version
    }

    /// Applies the changes of one commit.
    pub fn apply(&mut self, update: PresenceUpdate) -> Applied {
        if update.to <= self.now.version {
            return Applied::Old;
        }
        let restarts = update.begins && self.now.members.is_empty();
        if update.from() != self.now.version && !restarts {
            if self.waiting.len() < WAITING_MAX {
                self.waiting.insert(update.from(), update);
            }
            return Applied::Gap;
        }
        self.emit(update);
        self.emit_waiting();
        Applied::Emitted
    }

    /// The channel was read again. Returns what differs from before; the versions in the difference are right even if nothing
    /// else is different. `catch_up` applies the changes that had waited.
    pub fn replace(&mut self, snapshot: RoomSnapshot) -> RoomDifference {
        if snapshot.version < self.now.version {
            // It is older than what was emitted since.
            return RoomDifference::between(&self.now, &self.now);
        }
        if snapshot.members.is_empty() && self.now.members.is_empty() {
            // The next arrival starts new versions; until then the last one stays.
            return RoomDifference::between(&self.now, &self.now);
        }
        let difference = RoomDifference::between(&self.now, &snapshot);
        self.now = snapshot;
        difference
    }

    /// Users with waiting changes.
    pub fn awaited(&self) -> impl Iterator<Item = &Arc<str>> {
        self.waiting.values().map(|update| &update.user)
    }

    /// Applies the changes that had waited for a read.
    pub fn catch_up(&mut self) {
        self.emit_waiting();
    }

    /// Whether changes wait for a missing one.
    pub fn has_gap(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The changes emitted since the last call, in order.
    pub fn take_emitted(&mut self) -> Vec<PresenceUpdate> {
        core::mem::take(&mut self.emitted)
    }

    fn emit(&mut self, update: PresenceUpdate) {
        for change in &update.changes {
            self.now.apply(&update, change);
        }
        self.now.version = update.to;
        self.emitted.push(update);
    }

    /// Applies the changes that can be applied now.
    fn emit_waiting(&mut self) {
        loop {
            let version = self.now.version;
            self.waiting.retain(|_, update| update.to > version);
            let empty = self.now.members.is_empty();
            let next = self.waiting.iter().find(|(from, update)| **from == version || empty && update.begins);
            let Some(from) = next.map(|(from, _)| *from) else { return };
            if let Some(update) = self.waiting.remove(&from) {
                self.emit(update);
            }
        }
    }
}

impl RoomSnapshot {
    /// Adds a user from storage.
    pub fn insert(&mut self, user: Arc<str>, shown: RoomMember, attendance: &Attendance) {
        if !attendance.is_present() {
            return;
        }
        let seen =
            |client: &super::ChannelClient| RoomClient { state: client.state.clone(), since: client.since };
        let clients = attendance.connected().map(|client| (client.client, seen(client))).collect();
        let (since, leaving) = (attendance.since(), attendance.is_leaving());
        self.members.insert(user, RoomMember { since, leaving, clients, ..shown });
    }

    fn apply(&mut self, update: &PresenceUpdate, change: &AttendanceChange) {
        match change {
            AttendanceChange::UserOnline => {
                let member = RoomMember {
                    name: update.name.clone(),
                    anonymous: update.anonymous,
                    visibility: update.visibility,
                    since: update.at,
                    ..RoomMember::default()
                };
                self.members.insert(update.user.clone(), member);
            }
            AttendanceChange::UserOffline { .. } => {
                self.members.remove(&update.user);
            }
            AttendanceChange::ClientOnline { client, state } => {
                if let Some(member) = self.members.get_mut(&update.user) {
                    member.leaving = false;
                    member.clients.insert(*client, RoomClient { state: state.clone(), since: update.at });
                }
            }
            AttendanceChange::ClientUpdated { client, state } => {
                let member = self.members.get_mut(&update.user);
                if let Some(seen) = member.and_then(|member| member.clients.get_mut(client)) {
                    seen.state = Some(state.clone());
                }
            }
            AttendanceChange::ClientOffline { client, .. } => {
                if let Some(member) = self.members.get_mut(&update.user) {
                    member.clients.remove(client);
                    member.leaving = member.clients.is_empty();
                }
            }
            AttendanceChange::VisibilityChanged { to, .. } => {
                if let Some(member) = self.members.get_mut(&update.user) {
                    member.visibility = *to;
                }
            }
            AttendanceChange::NotFound => {}
        }
    }
}

/// What changed between two versions. Entries are absolute: the state at the later version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoomDifference {
    pub from: u64,
    pub to: u64,
    pub joined: Vec<PresentClient>,
    pub updated: Vec<PresentClient>,
    pub left: Vec<DepartedClient>,
    /// Users whose visibility changed.
    pub visibility_changed: Vec<VisibilityChanged>,
    /// The number of users at the later version.
    pub count: usize,
}

/// A client that is present. Without a client: a user within a grace period.
#[derive(Clone, Debug, PartialEq)]
pub struct PresentClient {
    pub user: Arc<str>,
    pub anonymous: bool,
    pub visibility: Visibility,
    /// The user has arrived with this client.
    pub arrives: bool,
    pub client: Option<ClientId>,
    pub state: Option<ClientState>,
}

/// A user who stayed and whose visibility changed.
#[derive(Clone, Debug, PartialEq)]
pub struct VisibilityChanged {
    pub user: Arc<str>,
    pub from: Visibility,
    pub to: Visibility,
    pub clients: Sorted<ClientId, RoomClient>,
}

/// A client that went offline. Without a client: the user with all their clients.
#[derive(Clone, Debug, PartialEq)]
pub struct DepartedClient {
    pub user: Arc<str>,
    pub anonymous: bool,
    pub visibility: Visibility,
    pub client: Option<ClientId>,
}

impl RoomDifference {
    pub fn between(before: &RoomSnapshot, after: &RoomSnapshot) -> RoomDifference {
        let mut difference =
            RoomDifference { from: before.version, to: after.version, ..RoomDifference::default() };
        difference.count = after.members.len();
        let users = before
            .members
            .keys()
            .chain(after.members.keys().filter(|user| !before.members.contains_key(*user)));
        for user in users {
            difference.add(user, before.members.get(user), after.members.get(user));
        }
        difference
    }

    pub fn is_empty(&self) -> bool {
        self.joined.is_empty()
            && self.updated.is_empty()
            && self.left.is_empty()
            && self.visibility_changed.is_empty()
    }

    /// The part of it that is about some users. `None`: there is none.
    pub fn only(&self, about: impl Fn(&str, Visibility) -> bool) -> Option<RoomDifference> {
        let entry = |entry: &&PresentClient| about(&entry.user, entry.visibility);
        let turned =
            |turned: &&VisibilityChanged| about(&turned.user, turned.from) || about(&turned.user, turned.to);
        let part = RoomDifference {
            joined: self.joined.iter().filter(entry).cloned().collect(),
            updated: self.updated.iter().filter(entry).cloned().collect(),
            left: self.left.iter().filter(|gone| about(&gone.user, gone.visibility)).cloned().collect(),
            visibility_changed: self.visibility_changed.iter().filter(turned).cloned().collect(),
            ..*self
        };
        (!part.is_empty()).then_some(part)
    }

    /// The difference for a viewer to whom hidden users are absent, who sees `count` users after it.
    pub fn as_seen(&self, count: usize, sees: &dyn Fn(&str, Visibility) -> bool) -> RoomDifference {
        let entry = |entry: &&PresentClient| sees(&entry.user, entry.visibility);
        let gone = |gone: &&DepartedClient| sees(&gone.user, gone.visibility);
        let mut seen = RoomDifference {
            from: self.from,
            to: self.to,
            joined: self.joined.iter().filter(entry).cloned().collect(),
            updated: self.updated.iter().filter(entry).cloned().collect(),
            left: self.left.iter().filter(gone).cloned().collect(),
            visibility_changed: Vec::new(),
            count,
        };
        for turned in &self.visibility_changed {
            let (user, anonymous) = (&turned.user, false);
            match (sees(user, turned.from), sees(user, turned.to)) {
                (true, false) => {
                    let visibility = turned.from;
                    seen.left.push(DepartedClient {
                        user: user.clone(),
                        anonymous,
                        visibility,
                        client: None,
                    });
                }
                (false, true) => {
                    // Changes of the same tick are already in the clients.
                    seen.joined.retain(|entry| entry.user != *user);
                    let member = RoomMember {
                        visibility: turned.to,
                        clients: turned.clients.clone(),
                        ..RoomMember::default()
                    };
                    seen.join(user, &member, None);
                }
                (true, true) | (false, false) => {}
            }
        }
        seen
    }

    /// Adds one user, as they were before and are after.
    pub(crate) fn add(&mut self, user: &Arc<str>, before: Option<&RoomMember>, after: Option<&RoomMember>) {
        let (Some(before), Some(after)) = (before, after) else {
            if let Some(after) = after {
                self.join(user, after, None);
            } else if let Some(before) = before {
                self.leave(user, before, None);
            }
            return;
        };
        if before.visibility != after.visibility {
            // Some viewers see them leave and some see them join, with their current state.
            self.visibility_changed.push(VisibilityChanged {
                user: user.clone(),
                from: before.visibility,
                to: after.visibility,
                clients: after.clients.clone(),
            });
        }
        self.join(user, after, Some(&before.clients));
        let gone = before.clients.keys().filter(|client| !after.clients.contains_key(*client));
        gone.for_each(|client| self.leave(user, after, Some(*client)));
    }

    /// Adds the clients of a user. `known`: those that were present before; `None`: the user has just arrived.
    fn join(&mut self, user: &Arc<str>, member: &RoomMember, known: Option<&Sorted<ClientId, RoomClient>>) {
        let mut arrives = known.is_none();
        let mut entry = |client, state| PresentClient {
            arrives: core::mem::take(&mut arrives),
            user: user.clone(),
            anonymous: member.anonymous,
            visibility: member.visibility,
            client,
            state,
        };
        if member.clients.is_empty() && known.is_none() {
            self.joined.push(entry(None, None));
        }
        for (client, seen) in &member.clients {
            match known.and_then(|known| known.get(client)) {
                None => self.joined.push(entry(Some(*client), seen.state.clone())),
                Some(was) if was.state != seen.state => {
                    self.updated.push(entry(Some(*client), seen.state.clone()));
                }
                Some(_) => {}
            }
        }
    }

    fn leave(&mut self, user: &Arc<str>, member: &RoomMember, client: Option<ClientId>) {
        let RoomMember { anonymous, visibility, .. } = *member;
        self.left.push(DepartedClient { user: user.clone(), anonymous, visibility, client });
    }
}

#[cfg(test)]
mod tests;
