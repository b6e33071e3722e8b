//! Followed users, and the status events for the sessions of their local followers.
//! Must hold: no change after the start of a read is missed; every session of a follower gets every change once; a
//! user is offline to everyone they hide from.

use super::person::followee_of;
use super::statuses::{digest, send_all};
use crate::core::listener::ListenerId;
use crate::core::{AfterCheck, Core, MutualCheck, Timer};
use crate::event::Event;
use crate::node::registry::NameEntry;
use crate::settings::SlowReader;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Followee, Status, StatusCause, StatusUpdate, UserFact, Viewer, Visibility};
use tavern_store::UserSnapshot;
use tavern_wire::json::status as json;

/// The statuses that a session was sent last: followees, and a digest of each status.
pub(super) type KnownStatuses = Vec<(Arc<str>, u64)>;

#[derive(Default)]
pub(super) struct StatusFeed {
    followed: BTreeMap<Arc<str>, Box<FolloweeState>>,
    /// The number of the last check of a follow.
    checks: u32,
    /// Local users with a check that has not begun.
    unchecked: BTreeSet<Arc<str>>,
}

/// A user whom a local user follows.
struct FolloweeState {
    followee: Followee,
    entry: Arc<NameEntry>,
    /// They were read at least once.
    loaded: bool,
    loading: Option<Box<FolloweeLoad>>,
}

/// A followed user who is being read.
#[derive(Default)]
struct FolloweeLoad {
    /// Loads that are not answered: facts are kept until the last of them is.
    open: u32,
    facts: Vec<UserFact>,
    /// Local users who have just followed them, and are sent the status when it is loaded.
    new_followers: Vec<Arc<str>>,
}

/// The cached state of a followed user before a change.
struct StatusBefore {
    visibility: Visibility,
    wake: Option<Time>,
}

impl StatusFeed {
    pub fn contains(&self, user: &str) -> bool {
        self.followed.contains_key(user)
    }

    pub fn is_loaded(&self, user: &str) -> bool {
        self.loaded_user(user).is_some()
    }

    /// Whether a user is known to show themselves only to followers they follow.
    pub fn shows_mutual_only(&self, user: &str) -> bool {
        let followed = self.loaded_user(user);
        followed.is_some_and(|known| known.followee.visibility == Visibility::FollowersIFollow)
    }

    /// The follower does not see the user by following each other until a read has said so, together with the visibility:
    /// messages about the two may overtake each other.
    pub fn check(&mut self, core: &mut Core, follower: &Arc<str>, user: &str, then: AfterCheck) {
        let Some(edge) = core.users.follow_mut(follower, user) else { return };
        self.checks = self.checks.wrapping_add(1);
        let then = edge.check.map_or(then, |check| check.then.max(then));
        edge.check = Some(MutualCheck { number: self.checks, then });
        self.unchecked.insert(follower.clone());
    }

    pub fn take_unchecked(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.unchecked)
    }

    /// The followed users, in order.
    pub fn users(&self) -> impl Iterator<Item = &Arc<str>> {
        self.followed.keys()
    }

    pub fn add(&mut self, user: Arc<str>, entry: Arc<NameEntry>) {
        let followed = FolloweeState { followee: Followee::default(), entry, loaded: false, loading: None };
        self.followed.insert(user, Box::new(followed));
    }

    /// No local user follows them now.
    pub fn remove(&mut self, core: &mut Core, user: &Arc<str>) -> Option<Arc<NameEntry>> {
        let followed = self.followed.remove(user)?;
        if let Some(due) = followed.followee.next_wake() {
            core.agenda.cancel(due, Timer::DisconnectShown(user.clone()));
        }
        Some(followed.entry)
    }

    /// A local user has unfollowed them: they are not sent the status when it is loaded.
    pub fn remove_follower(&mut self, user: &str, follower: &str) {
        let followed = self.followed.get_mut(user);
        if let Some(loading) = followed.and_then(|followed| followed.loading.as_mut()) {
            loading.new_followers.retain(|other| &**other != follower);
        }
    }

    /// A user is read from now on.
    pub fn begin_loading(&mut self, user: &str) {
        if let Some(followed) = self.followed.get_mut(user) {
            followed.loading.get_or_insert_default().open += 1;
        }
    }

    /// A user was read, for so many loads. Returns the new followers who wait for the status if it was the first time.
    pub fn loaded(&mut self, core: &mut Core, person: &UserSnapshot, times: u32) -> Option<Vec<Arc<str>>> {
        let now = core.now;
        let settings = &core.node.settings;
        let followed = self.followed.get_mut(&person.user)?;
        let mut read = followee_of(now, person);
        let (facts, new_followers) = followed.take_loading(times);
        // Applied before anything is sent: facts received during the read are newer.
        for fact in facts {
            read.apply(now, &settings.activities, 0, fact);
        }
        if !followed.loaded {
            (followed.followee, followed.loaded) = (read, true);
            return Some(new_followers);
        }
        let before = followed.before();
        let update = followed.followee.replace(now, &settings.activities, settings.disconnect_ms, read);
        self.changed(core, &person.user, before, update);
        None
    }

    /// A fact about a user was committed.
    pub fn apply_fact(&mut self, core: &mut Core, user: &Arc<str>, fact: &UserFact) {
        let settings = &core.node.settings;
        let Some(followed) = self.followed.get_mut(user) else { return };
        if let Some(loading) = &mut followed.loading {
            // Only the newest fact about each channel is kept.
            loading.facts.retain(|known| !fact.supersedes(known));
            loading.facts.push(fact.clone());
        }
        if !followed.loaded {
            return;
        }
        let before = followed.before();
        let (activities, disconnect_ms) = (&settings.activities, settings.disconnect_ms);
        let update = followed.followee.apply(core.now, activities, disconnect_ms, fact.clone());
        self.changed(core, user, before, update);
    }

    /// The delay before followers see a disconnect is over.
    pub fn show_disconnect(&mut self, core: &mut Core, user: &Arc<str>) {
        let Some(followed) = self.followed.get_mut(user) else { return };
        let before = StatusBefore { wake: None, ..followed.before() };
        let update = followed.followee.wake(core.now, &core.node.settings.activities);
        self.changed(core, user, before, update);
    }

    /// A user followed or unfollowed a local user who follows them, and may have become visible or hidden to them.
    pub fn mutual_changed(&self, core: &mut Core, user: &Arc<str>, follower: &Arc<str>, was: bool, is: bool) {
        let Some(followed) = self.loaded_user(user) else { return };
        let shows = |mutual| followed.followee.visibility.shows(Viewer::Other { mutual });
        let (was, is) = (shows(was), shows(is));
        self.send_visibility_change(core, user, follower, was, is);
    }

    /// Sends the sessions of a new follower the status of a user, now or as soon as it is loaded.
    pub fn send_first_status(&mut self, core: &mut Core, user: &Arc<str>, follower: &Arc<str>) {
        if let Some(followed) = self.followed.get_mut(user).filter(|followed| !followed.loaded) {
            followed.loading.get_or_insert_default().new_followers.push(follower.clone());
            return;
        }
        self.send_status(core, user, follower);
    }

    /// Sends a session the status of every user its user follows.
    pub fn send_statuses(&self, core: &mut Core, follower: &Arc<str>, id: ListenerId) {
        let Some(local) = core.users.get(follower) else { return };
        let status = |user: Arc<str>| {
            let status = self.status_for(core, follower, &user)?;
            let name = self.loaded_user(&user)?.followee.name.clone().filter(|_| status.online);
            Some((user, name, status))
        };
        let statuses: Vec<_> = local.followees().into_iter().filter_map(status).collect();
        send_all(core, id, &statuses);
    }

    /// The status of each followee that the sessions of a user were sent last.
    pub fn known_statuses(&self, core: &Core, follower: &Arc<str>) -> KnownStatuses {
        let Some(local) = core.users.get(follower) else { return Vec::new() };
        let known = |user: Arc<str>| {
            let digest = digest(&self.status_for(core, follower, &user)?);
            Some((user, digest))
        };
        local.followees().into_iter().filter_map(known).collect()
    }

    /// Sends a session the statuses that differ from what it has, also of users that are new to it.
    pub fn send_differences(
        &self,
        core: &mut Core,
        follower: &Arc<str>,
        id: ListenerId,
        known: KnownStatuses,
    ) {
        let known: BTreeMap<Arc<str>, u64> = known.into_iter().collect();
        let Some(local) = core.users.get(follower) else { return };
        for user in local.followees() {
            let status = self.status_for(core, follower, &user);
            let known_digest = known.get(&user).copied();
            if let Some(status) = status.filter(|status| Some(digest(status)) != known_digest) {
                self.send_to_sessions(core, &user, &[id], &unexplained(status));
            }
        }
    }

    fn loaded_user(&self, user: &str) -> Option<&FolloweeState> {
        self.followed.get(user).map(|followed| &**followed).filter(|followed| followed.loaded)
    }

    /// A followed user may have changed: sets the timer of a delayed disconnect and sends the followers what they may
    /// see.
    fn changed(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        before: StatusBefore,
        update: Option<StatusUpdate>,
    ) {
        let Some(followed) = self.followed.get(user) else { return };
        let after = followed.before();
        if before.wake != after.wake {
            if let Some(due) = before.wake {
                core.agenda.cancel(due, Timer::DisconnectShown(user.clone()));
            }
            if let Some(due) = after.wake {
                core.agenda.set(due, Timer::DisconnectShown(user.clone()));
            }
        }
        let (before, after) = (before.visibility, after.visibility);
        if before != after {
            let reveals = (before, after) == (Visibility::Nobody, Visibility::FollowersIFollow);
            for follower in core.users.followers(user).to_vec() {
                if reveals && core.users.is_mutual(&follower, user) {
                    self.check(core, &follower, user, AfterCheck::Change);
                    continue;
                }
                let [was, is] = [before, after].map(|value| core.users.sees_status(&follower, user, value));
                self.send_visibility_change(core, user, &follower, was, is);
            }
        }
        if let Some(update) = update {
            let followers = core.users.followers(user).iter();
            let followers: Vec<Arc<str>> =
                followers.filter(|follower| core.users.sees_status(follower, user, after)).cloned().collect();
            self.send_to_followers(core, user, &followers, &update);
        }
    }

    /// Sends a status to a follower who now sees a user, and a disconnect to one who no longer does.
    fn send_visibility_change(
        &self,
        core: &mut Core,
        user: &Arc<str>,
        follower: &Arc<str>,
        was: bool,
        is: bool,
    ) {
        if is && !was {
            self.send_status(core, user, follower);
        } else if was && !is && self.last_status(core, user).online {
            let gone =
                StatusUpdate { status: Status::default(), cause: StatusCause::Disconnected, channel: None };
            self.send_to_followers(core, user, std::slice::from_ref(follower), &gone);
        }
    }

    /// The status that the followers who see a user were sent last.
    fn last_status(&self, core: &Core, user: &str) -> Status {
        let activities = &core.node.settings.activities;
        self.loaded_user(user).map_or_else(Status::default, |known| known.followee.believed(activities))
    }

    /// The status that one follower was sent last. None: the user is not loaded.
    fn status_for(&self, core: &Core, follower: &str, user: &str) -> Option<Status> {
        let visibility = self.loaded_user(user)?.followee.visibility;
        Some(match core.users.sees_status(follower, user, visibility) {
            true => self.last_status(core, user),
            false => Status::default(),
        })
    }

    fn send_status(&self, core: &mut Core, user: &Arc<str>, follower: &Arc<str>) {
        if let Some(status) = self.status_for(core, follower, user) {
            self.send_to_followers(core, user, std::slice::from_ref(follower), &unexplained(status));
        }
    }

    fn send_to_followers(
        &self,
        core: &mut Core,
        user: &Arc<str>,
        followers: &[Arc<str>],
        update: &StatusUpdate,
    ) {
        let sessions: Vec<ListenerId> =
            followers.iter().flat_map(|follower| core.users.sessions(follower).iter().copied()).collect();
        if !sessions.is_empty() {
            self.send_to_sessions(core, user, &sessions, update);
        }
    }

    fn send_to_sessions(
        &self,
        core: &mut Core,
        user: &Arc<str>,
        sessions: &[ListenerId],
        update: &StatusUpdate,
    ) {
        // Followers who may not see a user do not get their name either.
        let name = self.followed.get(user).and_then(|followed| followed.followee.name.clone());
        let name = name.filter(|_| update.status.online);
        let mut tail = Vec::new();
        json::status_tail(&mut tail, user, name.as_deref(), update);
        let event = Event::json(tail.into_boxed_slice(), core.now, SlowReader::Gap, &core.event_memory);
        for id in sessions {
            if core.listeners.get(*id).is_some() {
                core.deliver_event(id.index, &event);
            }
        }
        core.stats.statuses.add(sessions.len() as u64);
    }
}

impl FolloweeState {
    fn before(&self) -> StatusBefore {
        StatusBefore { visibility: self.followee.visibility, wake: self.followee.next_wake() }
    }

    /// So many loads were answered: the facts received since they began, and the new followers.
    fn take_loading(&mut self, times: u32) -> (Vec<UserFact>, Vec<Arc<str>>) {
        let Some(loading) = self.loading.as_mut() else { return Default::default() };
        loading.open = loading.open.saturating_sub(times);
        let (facts, new_followers) = (loading.facts.clone(), std::mem::take(&mut loading.new_followers));
        if loading.open == 0 {
            self.loading = None;
        }
        (facts, new_followers)
    }
}

/// A status update that does not say what changed.
fn unexplained(status: Status) -> StatusUpdate {
    StatusUpdate { status, cause: StatusCause::None, channel: None }
}
