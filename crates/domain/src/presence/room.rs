//! A channel as its watchers see it: who is there at which version. Fed with the changes of commits, in any order and
//! more than once; tells them in order and once, or says that something is missing and must be read again.
//! Must hold: a snapshot and the changes after it are the later snapshot, exactly; a version is told once.

use super::attendance::{Attendance, Change, State};
use super::visibility::Visibility;
use crate::id::ClientId;
use crate::sorted::Sorted;
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One user as a view shows him.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    pub name: Option<Arc<str>>,
    pub anonymous: bool,
    pub visibility: Visibility,
    pub since: Time,
    /// Nobody of his is there, and somebody may still come back.
    pub leaving: bool,
    pub clients: Sorted<ClientId, Seen>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub state: Option<State>,
    pub since: Time,
}

/// What one commit changed for one user. The channel's version is `to` after it, and grew by one with each change.
#[derive(Clone, Debug, PartialEq)]
pub struct News {
    pub user: Arc<str>,
    pub name: Option<Arc<str>>,
    pub anonymous: bool,
    /// To whom he shows himself, after these changes.
    pub visibility: Visibility,
    pub at: Time,
    pub changes: Vec<Change>,
    pub to: u64,
    /// Nobody was in the channel before: its numbers begin anew, above those it had.
    pub begins: bool,
}

/// What became of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Tell these and those that had waited for them: `Room::take_told`.
    Told,
    /// It was known already.
    Old,
    /// Something before it is missing. It waits; if what is missing does not come, read the channel again.
    Hole,
}

/// Who is in a channel at a version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub version: u64,
    pub members: BTreeMap<Arc<str>, Member>,
}

#[derive(Clone, Debug, Default)]
pub struct Room {
    now: Snapshot,
    /// News after a hole, by the version before their first change.
    waiting: BTreeMap<u64, News>,
    told: Vec<News>,
}

/// News that may wait behind a hole. More means that reading again is cheaper than waiting.
const WAITING_MAX: usize = 256;

impl News {
    fn from(&self) -> u64 {
        self.to.saturating_sub(self.changes.len() as u64)
    }
}

impl Room {
    /// As it was read. Everything after it will be told.
    pub fn new(snapshot: Snapshot) -> Room {
        Room { now: snapshot, ..Room::default() }
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.now
    }

    pub fn version(&self) -> u64 {
        self.now.version
    }

    /// Takes the news of one commit.
    pub fn hear(&mut self, news: News) -> Heard {
        if news.to <= self.now.version {
            return Heard::Old;
        }
        let anew = news.begins && self.now.members.is_empty();
        if news.from() != self.now.version && !anew {
            if self.waiting.len() < WAITING_MAX {
                self.waiting.insert(news.from(), news);
            }
            return Heard::Hole;
        }
        self.tell(news);
        self.tell_waiting();
        Heard::Told
    }

    /// The channel was read again: gives what is different from before. News that had waited are told by `catch_up`.
    /// Versions that have passed show in the difference, also when nobody is different.
    pub fn replace(&mut self, snapshot: Snapshot) -> Difference {
        if snapshot.version < self.now.version {
            // Read before what was told meanwhile: it says nothing new.
            return Difference::between(&self.now, &self.now);
        }
        if snapshot.members.is_empty() && self.now.members.is_empty() {
            // Whoever comes next begins anew; until then the number that was told stands.
            return Difference::between(&self.now, &self.now);
        }
        let difference = Difference::between(&self.now, &snapshot);
        self.now = snapshot;
        difference
    }

    /// Users of whom news wait.
    pub fn awaited(&self) -> impl Iterator<Item = &Arc<str>> {
        self.waiting.values().map(|news| &news.user)
    }

    /// Tells what had waited for a reading.
    pub fn catch_up(&mut self) {
        self.tell_waiting();
    }

    /// Whether news wait behind a hole.
    pub fn has_hole(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What was told since this was last asked, in order.
    pub fn take_told(&mut self) -> Vec<News> {
        core::mem::take(&mut self.told)
    }

    fn tell(&mut self, news: News) {
        for change in &news.changes {
            self.now.apply(&news, change);
        }
        self.now.version = news.to;
        self.told.push(news);
    }

    /// Tells what had waited for what was told just now.
    fn tell_waiting(&mut self) {
        loop {
            let version = self.now.version;
            self.waiting.retain(|_, news| news.to > version);
            let empty = self.now.members.is_empty();
            let next = self.waiting.iter().find(|(from, news)| **from == version || empty && news.begins);
            let Some(from) = next.map(|(from, _)| *from) else { return };
            if let Some(news) = self.waiting.remove(&from) {
                self.tell(news);
            }
        }
    }
}

impl Snapshot {
    /// One user as he is kept: who he is, then where his clients are.
    pub fn insert(&mut self, user: Arc<str>, shown: Member, attendance: &Attendance) {
        if !attendance.is_present() {
            return;
        }
        let seen = |client: &super::Attendee| Seen { state: client.state.clone(), since: client.since };
        let clients = attendance.living().map(|client| (client.client, seen(client))).collect();
        let (since, leaving) = (attendance.since(), attendance.is_leaving());
        self.members.insert(user, Member { since, leaving, clients, ..shown });
    }

    fn apply(&mut self, news: &News, change: &Change) {
        match change {
            Change::UserOnline => {
                let member = Member {
                    name: news.name.clone(),
                    anonymous: news.anonymous,
                    visibility: news.visibility,
                    since: news.at,
                    ..Member::default()
                };
                self.members.insert(news.user.clone(), member);
            }
            Change::UserOffline { .. } => {
                self.members.remove(&news.user);
            }
            Change::ClientOnline { client, state } => {
                if let Some(member) = self.members.get_mut(&news.user) {
                    member.leaving = false;
                    member.clients.insert(*client, Seen { state: state.clone(), since: news.at });
                }
            }
            Change::ClientUpdated { client, state } => {
                let member = self.members.get_mut(&news.user);
                if let Some(seen) = member.and_then(|member| member.clients.get_mut(client)) {
                    seen.state = Some(state.clone());
                }
            }
            Change::ClientOffline { client, .. } => {
                if let Some(member) = self.members.get_mut(&news.user) {
                    member.clients.remove(client);
                    member.leaving = member.clients.is_empty();
                }
            }
            Change::Face { to, .. } => {
                if let Some(member) = self.members.get_mut(&news.user) {
                    member.visibility = *to;
                }
            }
            Change::NotFound => {}
        }
    }
}

/// What changed between two versions, however it happened. Entries are absolute: what is there now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    pub from: u64,
    pub to: u64,
    pub joined: Vec<Entry>,
    pub updated: Vec<Entry>,
    pub left: Vec<Gone>,
    /// Those who show themselves to others than before.
    pub faces: Vec<Turned>,
    /// Users there now.
    pub count: usize,
}

/// A client that is there; without a client a user who is there for nobody but himself: in a grace.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub user: Arc<str>,
    pub anonymous: bool,
    pub visibility: Visibility,
    /// With this one the user himself has come.
    pub arrives: bool,
    pub client: Option<ClientId>,
    pub state: Option<State>,
}

/// Somebody who was there and still is, and shows himself to others than before.
#[derive(Clone, Debug, PartialEq)]
pub struct Turned {
    pub user: Arc<str>,
    pub from: Visibility,
    pub to: Visibility,
    pub clients: Sorted<ClientId, Seen>,
}

/// A client that is not there any more; without a client the user has gone, and all of his with him.
#[derive(Clone, Debug, PartialEq)]
pub struct Gone {
    pub user: Arc<str>,
    pub anonymous: bool,
    pub visibility: Visibility,
    pub client: Option<ClientId>,
}

impl Difference {
    pub fn between(before: &Snapshot, after: &Snapshot) -> Difference {
        let mut difference = Difference { from: before.version, to: after.version, ..Difference::default() };
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
        self.joined.is_empty() && self.updated.is_empty() && self.left.is_empty() && self.faces.is_empty()
    }

    /// The part of it that is about some users. None: nothing of it is.
    pub fn only(&self, about: impl Fn(&str, Visibility) -> bool) -> Option<Difference> {
        let entry = |entry: &&Entry| about(&entry.user, entry.visibility);
        let turned = |turned: &&Turned| about(&turned.user, turned.from) || about(&turned.user, turned.to);
        let part = Difference {
            joined: self.joined.iter().filter(entry).cloned().collect(),
            updated: self.updated.iter().filter(entry).cloned().collect(),
            left: self.left.iter().filter(|gone| about(&gone.user, gone.visibility)).cloned().collect(),
            faces: self.faces.iter().filter(turned).cloned().collect(),
            ..*self
        };
        (!part.is_empty()).then_some(part)
    }

    /// One user before and after.
    pub(crate) fn add(&mut self, user: &Arc<str>, before: Option<&Member>, after: Option<&Member>) {
        let (Some(before), Some(after)) = (before, after) else {
            if let Some(after) = after {
                self.join(user, after, None);
            } else if let Some(before) = before {
                self.leave(user, before, None);
            }
            return;
        };
        if before.visibility != after.visibility {
            // To some he goes and to some he comes: what else changed shows in what he is now.
            self.faces.push(Turned {
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

    /// The clients of somebody; without any that are known already he has just come.
    fn join(&mut self, user: &Arc<str>, member: &Member, known: Option<&Sorted<ClientId, Seen>>) {
        let mut arrives = known.is_none();
        let mut entry = |client, state| Entry {
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

    fn leave(&mut self, user: &Arc<str>, member: &Member, client: Option<ClientId>) {
        let Member { anonymous, visibility, .. } = *member;
        self.left.push(Gone { user: user.clone(), anonymous, visibility, client });
    }
}

#[cfg(test)]
mod tests;
