//! What is heard about people, and what their followers are told of it.

use super::People;
use super::load::follows;
use crate::core::listener::ListenerId;
use crate::core::{Core, Edge, Notice, Timer};
use crate::event::{Event, Space};
use crate::node::PersonNews;
use crate::node::registry::shards_of;
use crate::settings::SlowReader;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Fact, Rumour, Status, Tidings, Turn, Viewer, Visibility};
use tavern_wire::json::person::{self as json, Doing};

/// How long it is remembered that somebody stopped following: longer than any word is under way.
const UNFOLLOWED_MS: u64 = 60_000;

/// The largest `statuses` event: a part of what a mailbox holds by default.
const STATUSES_BYTES: usize = 512 * 1024;

impl People {
    /// Tells everybody whom it concerns: once, however many followers there are.
    pub(crate) fn spread_rumour(&mut self, core: &mut Core, user: &Arc<str>, rumour: Rumour) {
        self.herald(core, user, &rumour);
        let told = PersonNews { user: user.clone(), rumour: Arc::new(rumour) };
        core.stats.rumours.add(1);
        core.effects.abroad.extend(core.node.rumour_parcel(&told));
        let entry = core.node.registry.find(Space::People, user.as_bytes());
        let mask = entry.map_or(0, |entry| entry.mask()) & !(1u64 << core.index);
        core.effects.rumours.extend(shards_of(mask).map(|shard| (shard, told.clone())));
        self.hear_rumour(core, &told);
    }

    /// From this shard, another one, or another node.
    pub fn hear_rumour(&mut self, core: &mut Core, told: &PersonNews) {
        match &*told.rumour {
            Rumour::Fact(fact) => {
                if let Fact::Shown { version, visibility } = fact {
                    self.turn_faces(core, &told.user, *version, *visibility);
                }
                self.hear_fact(core, &told.user, fact);
            }
            Rumour::Follows { followee, version, on } => {
                self.hear_follow(core, &told.user, followee, *version, *on);
            }
            Rumour::Removed { channel } => self.forget_presence(core, &told.user, channel),
            Rumour::Mail => {
                core.notify(Notice::InboxChanged { user: told.user.clone() });
            }
        }
    }

    /// An app took a user out of a channel: his sessions here do not come back to it by themselves.
    fn forget_presence(&mut self, core: &mut Core, user: &str, channel: &str) {
        for id in core.users.sessions(user).to_vec() {
            if let Some(session) = core.session_mut(id) {
                session.present.leave(channel);
            }
        }
    }

    /// One of ours shows himself to others than before, wherever he is.
    pub(super) fn turn_faces(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        version: u64,
        visibility: Visibility,
    ) {
        let Some(here) = self.here.get_mut(user).filter(|here| version > here.shown_version) else {
            return;
        };
        here.shown_version = version;
        if let Some(local) = core.users.get_mut(user) {
            local.visibility = Some(visibility);
        }
        core.notify(Notice::VisibilityChanged { user: user.clone(), visibility });
    }

    pub(super) fn hear_fact(&mut self, core: &mut Core, user: &Arc<str>, fact: &Fact) {
        let now = core.now;
        let settings = &core.node.clone().settings;
        let Some(known) = self.followees.get_mut(user) else { return };
        if let Some(reading) = &mut known.reading {
            // What is newer about the same is enough: as many as there are places.
            reading.heard.retain(|known| !fact.supersedes(known));
            reading.heard.push(fact.clone());
        }
        if !known.read {
            return;
        }
        let (before, due) = (known.followee.visibility, known.followee.next_wake());
        let tidings = known.followee.hear(now, &settings.activities, settings.disconnect_ms, fact.clone());
        self.followee_moved(core, user, before, due, tidings);
    }

    /// Something about somebody is different: his followers are told what they may know.
    pub(super) fn followee_moved(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        before: Visibility,
        due: Option<Time>,
        tidings: Option<Tidings>,
    ) {
        let Some(known) = self.followees.get(user) else { return };
        let (after, wake) = (known.followee.visibility, known.followee.next_wake());
        if due != wake {
            if let Some(due) = due {
                core.agenda.cancel(due, Timer::DisconnectShown(user.clone()));
            }
            if let Some(wake) = wake {
                core.agenda.set(wake, Timer::DisconnectShown(user.clone()));
            }
        }
        if before != after {
            self.tell_turned(core, user, before, after);
        }
        if let Some(tidings) = tidings {
            let followers = core.users.followers(user).to_vec();
            let seen = |follower: &Arc<str>| core.users.sees(Some(follower), user, after);
            let followers: Vec<Arc<str>> = followers.into_iter().filter(seen).collect();
            self.tell_followers(core, user, &followers, &tidings);
        }
    }

    /// Those to whom he shows himself now hear what he does; to those from whom he hides he has gone.
    fn tell_turned(&mut self, core: &mut Core, user: &Arc<str>, before: Visibility, after: Visibility) {
        for follower in core.users.followers(user).to_vec() {
            let viewer = Viewer::Other { mutual: core.users.is_mutual(&follower, user) };
            self.tell_if_turned(core, user, &follower, before.shows(viewer), after.shows(viewer));
        }
    }

    fn tell_if_turned(&mut self, core: &mut Core, user: &Arc<str>, follower: &Arc<str>, was: bool, is: bool) {
        match (was, is) {
            (true, false) => {
                let believed = self.believed(core, user, true);
                if believed.online {
                    let gone = Tidings { status: Status::default(), turn: Turn::Disconnected, channel: None };
                    self.tell_followers(core, user, std::slice::from_ref(follower), &gone);
                }
            }
            (false, true) => self.greet(core, follower, user),
            _ => {}
        }
    }

    /// What somebody was told last to do; offline to those from whom he hides.
    fn believed(&self, core: &Core, user: &str, shown: bool) -> Status {
        let known = self.followees.get(user).filter(|known| known.read && shown);
        known.map_or_else(Status::default, |known| known.followee.believed(&core.node.settings.activities))
    }

    /// What a follower believes that somebody does. None: he is not known here.
    pub(super) fn status_for(&self, core: &Core, follower: &str, user: &str) -> Option<Status> {
        let known = self.followees.get(user).filter(|known| known.read)?;
        let shown = core.users.sees(Some(follower), user, known.followee.visibility);
        Some(self.believed(core, user, shown))
    }

    /// Tells one follower what somebody does, whatever happened before.
    pub(super) fn greet(&mut self, core: &mut Core, follower: &Arc<str>, user: &Arc<str>) {
        let Some(known) = self.followees.get_mut(user) else { return };
        if !known.read {
            known.reading.get_or_insert_default().greets.push(follower.clone());
            return;
        }
        let Some(status) = self.status_for(core, follower, user) else { return };
        let tidings = Tidings { status, turn: Turn::None, channel: None };
        self.tell_followers(core, user, std::slice::from_ref(follower), &tidings);
    }

    fn tell_followers(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        followers: &[Arc<str>],
        tidings: &Tidings,
    ) {
        let sessions: Vec<ListenerId> =
            followers.iter().flat_map(|follower| core.users.sessions(follower).iter().copied()).collect();
        if !sessions.is_empty() {
            self.tell_sessions(core, user, &sessions, tidings);
        }
    }

    pub(super) fn tell_sessions(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        sessions: &[ListenerId],
        tidings: &Tidings,
    ) {
        let now = core.now;
        let known = self.followees.get(user);
        // Whom somebody hides from need not know his name either.
        let name = known.and_then(|known| known.followee.name.clone()).filter(|_| tidings.status.online);
        let mut tail = Vec::new();
        json::status_tail(&mut tail, user, name.as_deref(), tidings);
        let event = Event::json(tail.into_boxed_slice(), now, SlowReader::Gap, &core.pool);
        for id in sessions.iter().filter(|id| core.listeners.get(**id).is_some()).collect::<Vec<_>>() {
            core.tell(id.index, &event);
        }
        core.stats.statuses.add(sessions.len() as u64);
    }

    fn hear_follow(&mut self, core: &mut Core, user: &Arc<str>, followee: &Arc<str>, version: u64, on: bool) {
        let now = core.now;
        self.hear_mutual(core, user, followee, on);
        let Some(here) = self.here.get_mut(user) else { return };
        here.unfollowed.retain(|(whom, known, at)| {
            now.since(*at) < UNFOLLOWED_MS && !(on && whom == followee && *known < version)
        });
        if on {
            let round = here.round;
            let edge = core.users.get_mut(user).and_then(|local| local.following.get_mut(followee));
            let greeted = match edge {
                Some(edge) => {
                    edge.version = edge.version.max(version);
                    std::mem::replace(&mut edge.greeted, true)
                }
                None => {
                    let edge = Edge { version, mutual: false, round, greeted: true };
                    let fresh = self.begin_following(core, user, followee, edge);
                    self.watch_followees(core, fresh.into_iter().collect());
                    false
                }
            };
            if !greeted && core.users.follows(user, followee) {
                // He is told what his followee does as soon as it is known whether they are friends.
                self.load_friend(core, user, followee);
            }
            return;
        }
        let Some(local) = core.users.get_mut(user) else { return };
        if local.following.get(followee).is_some_and(|edge| edge.version < version) {
            local.following.remove(followee);
            here.unfollowed.push((followee.clone(), version, now));
            self.unwatch(core, user, followee);
        } else if !local.following.contains_key(followee) {
            here.unfollowed.push((followee.clone(), version, now));
        }
    }

    /// Somebody began or stopped to follow one of ours who follows him: they are friends, or not any more.
    fn hear_mutual(&mut self, core: &mut Core, user: &Arc<str>, followee: &Arc<str>, on: bool) {
        let Some(edge) = core.users.get_mut(followee).and_then(|local| local.following.get_mut(user)) else {
            return;
        };
        let was = std::mem::replace(&mut edge.mutual, on);
        let Some(known) = self.followees.get(user).filter(|known| known.read) else { return };
        let visibility = known.followee.visibility;
        let shows = |mutual| visibility.shows(Viewer::Other { mutual });
        self.tell_if_turned(core, user, followee, shows(was), shows(on));
    }

    /// The answer to a follow or an unfollow that was committed.
    pub(super) fn followed(
        &mut self,
        core: &mut Core,
        follower: &Arc<str>,
        followee: &Arc<str>,
        version: u64,
        on: bool,
    ) {
        self.spread_rumour(core, follower, follows(followee, version, on));
    }

    /// A disconnect was held back long enough.
    pub(crate) fn show_disconnect(&mut self, core: &mut Core, user: &Arc<str>) {
        let settings = &core.node.clone().settings;
        let Some(known) = self.followees.get_mut(user) else { return };
        let before = known.followee.visibility;
        let tidings = known.followee.wake(core.now, &settings.activities);
        self.followee_moved(core, user, before, None, tidings);
    }

    /// A session asked for the status of everybody its user follows.
    pub(crate) fn want_statuses(&mut self, core: &mut Core, id: ListenerId) {
        let Some(user) = core.user_of(id) else {
            let mut tail = Vec::new();
            json::statuses_tail(&mut tail, &[]);
            return core.put_json(id, tail.into());
        };
        if let Some(here) = self.here.get_mut(&user) {
            here.wants.push(id);
        }
        self.settle_wants(core, &user);
    }

    pub(super) fn send_statuses(&mut self, core: &mut Core, user: &Arc<str>, id: ListenerId) {
        let Some(local) = core.users.get(user) else { return };
        let mut followees: Vec<&Arc<str>> = local.following.keys().collect();
        followees.sort();
        let shown: Vec<(Arc<str>, Option<Arc<str>>, Status)> = followees
            .into_iter()
            .filter_map(|followee| {
                let known = self.followees.get(followee)?;
                let status = self.status_for(core, user, followee)?;
                let name = known.followee.name.clone().filter(|_| status.online);
                Some((followee.clone(), name, status))
            })
            .collect();
        let people: Vec<Doing<'_>> =
            shown.iter().map(|(user, name, status)| Doing { user, name: name.as_deref(), status }).collect();
        let mut tails = Vec::new();
        split(&people, &mut tails);
        for tail in tails {
            core.put_json(id, tail.into());
        }
    }
}

/// One event, or several when it would fill a mailbox by itself.
fn split(people: &[Doing<'_>], tails: &mut Vec<Vec<u8>>) {
    let mut tail = Vec::new();
    json::statuses_tail(&mut tail, people);
    if tail.len() <= STATUSES_BYTES || people.len() < 2 {
        return tails.push(tail);
    }
    let (first, second) = people.split_at(people.len() / 2);
    split(first, tails);
    split(second, tails);
}
