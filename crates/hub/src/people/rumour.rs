//! What is heard about people, and what their followers are told of it.

use super::load::follows;
use super::{Edge, PersonNews, own_channel};
use crate::event::{Event, Space};
use crate::listener::ListenerId;
use crate::presence::{Act, Step};
use crate::registry::shards_of;
use crate::settings::SlowReader;
use crate::shard::Shard;
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Fact, Rumour, Status, Tidings, Turn, Viewer, Visibility};
use tavern_engine::PresenceKey;
use tavern_wire::json::person::{self as json, Doing};

/// How long it is remembered that somebody stopped following: longer than any word is under way.
const UNFOLLOWED_MS: u64 = 60_000;

/// The largest `statuses` event: a part of what a mailbox holds by default.
const STATUSES_BYTES: usize = 512 * 1024;

impl Shard {
    /// Tells everybody whom it concerns: once, however many followers there are.
    pub(crate) fn spread_rumour(&mut self, now: Time, user: &Arc<str>, rumour: Rumour) {
        self.herald(now, user, &rumour);
        let told = PersonNews { user: user.clone(), rumour: Arc::new(rumour) };
        self.stats.rumours.add(1);
        self.effects.abroad.extend(self.node.rumour_parcel(&told));
        let entry = self.node.registry.find(Space::People, user.as_bytes());
        let mask = entry.map_or(0, |entry| entry.mask()) & !(1u64 << self.index);
        self.effects.rumours.extend(shards_of(mask).map(|shard| (shard, told.clone())));
        self.hear_rumour(now, &told);
    }

    /// From this shard, another one, or another node.
    pub fn hear_rumour(&mut self, now: Time, told: &PersonNews) {
        match &*told.rumour {
            Rumour::Fact(fact) => {
                if let Fact::Shown { version, visibility } = fact {
                    self.turn_faces(now, &told.user, *version, *visibility);
                }
                self.hear_fact(now, &told.user, fact);
            }
            Rumour::Follows { followee, version, on } => {
                self.hear_follow(now, &told.user, followee, *version, *on);
            }
            Rumour::Removed { channel } => self.forget_presence(&told.user, channel),
            Rumour::Mail => {
                self.mail_came(&told.user);
                self.party_changed(&told.user);
            }
        }
    }

    /// An app took a user out of a channel: his sessions here do not come back to it by themselves.
    fn forget_presence(&mut self, user: &str, channel: &str) {
        let sessions = self.people.here.get(user).map(|here| here.sessions.clone()).unwrap_or_default();
        for id in sessions {
            if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
                session.present.leave(channel);
            }
        }
    }

    /// One of ours shows himself to others than before, wherever he is.
    pub(super) fn turn_faces(&mut self, now: Time, user: &Arc<str>, version: u64, visibility: Visibility) {
        let Some(here) = self.people.here.get_mut(user).filter(|here| version > here.shown_version) else {
            return;
        };
        here.shown_version = version;
        here.visibility = Some(visibility);
        let sessions = here.sessions.clone();
        let mut channels: BTreeSet<Arc<str>> = [own_channel(user)].into();
        for id in sessions {
            let session = self.listeners.get(id).and_then(|listener| listener.session());
            channels.extend(session.into_iter().flat_map(|session| session.present.channels().cloned()));
        }
        for channel in channels {
            let key = PresenceKey { channel, user: user.clone() };
            self.begin_step(now, Step::of(key, Act::Face(visibility)));
        }
    }

    pub(super) fn hear_fact(&mut self, now: Time, user: &Arc<str>, fact: &Fact) {
        let settings = &self.node.clone().settings;
        let Some(known) = self.people.followees.get_mut(user) else { return };
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
        self.followee_moved(now, user, before, due, tidings);
    }

    /// Something about somebody is different: his followers are told what they may know.
    pub(super) fn followee_moved(
        &mut self,
        now: Time,
        user: &Arc<str>,
        before: Visibility,
        due: Option<Time>,
        tidings: Option<Tidings>,
    ) {
        let Some(known) = self.people.followees.get(user) else { return };
        let (after, wake) = (known.followee.visibility, known.followee.next_wake());
        if due != wake {
            due.map(|due| self.people.wakes.remove(&(due, user.clone())));
            self.people.wakes.extend(wake.map(|wake| (wake, user.clone())));
        }
        if before != after {
            self.tell_turned(now, user, before, after);
        }
        if let Some(tidings) = tidings {
            let followers =
                self.people.followees.get(user).map_or(Vec::new(), |known| known.followers.clone());
            let seen = |follower: &Arc<str>| self.people.sees(Some(follower), user, after);
            let followers: Vec<Arc<str>> = followers.into_iter().filter(seen).collect();
            self.tell_followers(now, user, &followers, &tidings);
        }
    }

    /// Those to whom he shows himself now hear what he does; to those from whom he hides he has gone.
    fn tell_turned(&mut self, now: Time, user: &Arc<str>, before: Visibility, after: Visibility) {
        let Some(known) = self.people.followees.get(user) else { return };
        for follower in known.followers.clone() {
            let viewer = Viewer::Other { mutual: self.people.is_mutual(&follower, user) };
            self.tell_if_turned(now, user, &follower, before.shows(viewer), after.shows(viewer));
        }
    }

    fn tell_if_turned(&mut self, now: Time, user: &Arc<str>, follower: &Arc<str>, was: bool, is: bool) {
        match (was, is) {
            (true, false) => {
                let believed = self.believed(user, true);
                if believed.online {
                    let gone = Tidings { status: Status::default(), turn: Turn::Disconnected, channel: None };
                    self.tell_followers(now, user, std::slice::from_ref(follower), &gone);
                }
            }
            (false, true) => self.greet(now, follower, user),
            _ => {}
        }
    }

    /// What somebody was told last to do; offline to those from whom he hides.
    fn believed(&self, user: &str, shown: bool) -> Status {
        let known = self.people.followees.get(user).filter(|known| known.read && shown);
        known.map_or_else(Status::default, |known| known.followee.believed(&self.node.settings.activities))
    }

    /// What a follower believes that somebody does. None: he is not known here.
    pub(super) fn status_for(&self, follower: &str, user: &str) -> Option<Status> {
        let known = self.people.followees.get(user).filter(|known| known.read)?;
        let shown = self.people.sees(Some(follower), user, known.followee.visibility);
        Some(self.believed(user, shown))
    }

    /// Tells one follower what somebody does, whatever happened before.
    pub(super) fn greet(&mut self, now: Time, follower: &Arc<str>, user: &Arc<str>) {
        let Some(known) = self.people.followees.get_mut(user) else { return };
        if !known.read {
            known.reading.get_or_insert_default().greets.push(follower.clone());
            return;
        }
        let Some(status) = self.status_for(follower, user) else { return };
        let tidings = Tidings { status, turn: Turn::None, channel: None };
        self.tell_followers(now, user, std::slice::from_ref(follower), &tidings);
    }

    fn tell_followers(&mut self, now: Time, user: &Arc<str>, followers: &[Arc<str>], tidings: &Tidings) {
        let sessions: Vec<ListenerId> = followers
            .iter()
            .filter_map(|follower| self.people.here.get(follower))
            .flat_map(|here| here.sessions.iter().copied())
            .collect();
        if !sessions.is_empty() {
            self.tell_sessions(now, user, &sessions, tidings);
        }
    }

    pub(super) fn tell_sessions(
        &mut self,
        now: Time,
        user: &Arc<str>,
        sessions: &[ListenerId],
        tidings: &Tidings,
    ) {
        let known = self.people.followees.get(user);
        // Whom somebody hides from need not know his name either.
        let name = known.and_then(|known| known.followee.name.clone()).filter(|_| tidings.status.online);
        let mut tail = Vec::new();
        json::status_tail(&mut tail, user, name.as_deref(), tidings);
        let event = Event::json(tail.into_boxed_slice(), now, SlowReader::Gap, &self.pool);
        for id in sessions.iter().filter(|id| self.listeners.get(**id).is_some()).collect::<Vec<_>>() {
            self.tell(id.index, &event);
        }
        self.stats.statuses.add(sessions.len() as u64);
    }

    fn hear_follow(&mut self, now: Time, user: &Arc<str>, followee: &Arc<str>, version: u64, on: bool) {
        self.hear_mutual(now, user, followee, on);
        let Some(here) = self.people.here.get_mut(user) else { return };
        here.unfollowed.retain(|(whom, known, at)| {
            now.since(*at) < UNFOLLOWED_MS && !(on && whom == followee && *known < version)
        });
        if on {
            let greeted = match here.following.get_mut(followee) {
                Some(edge) => {
                    edge.version = edge.version.max(version);
                    std::mem::replace(&mut edge.greeted, true)
                }
                None => {
                    let edge = Edge { version, mutual: false, round: here.round, greeted: true };
                    let fresh = self.begin_following(user, followee, edge);
                    self.watch_followees(fresh.into_iter().collect());
                    false
                }
            };
            if !greeted && self.people.follows(user, followee) {
                // He is told what his followee does as soon as it is known whether they are friends.
                self.load_friend(user, followee);
            }
        } else if here.following.get(followee).is_some_and(|edge| edge.version < version) {
            here.following.remove(followee);
            here.unfollowed.push((followee.clone(), version, now));
            self.unwatch(user, followee);
        } else if !here.following.contains_key(followee) {
            here.unfollowed.push((followee.clone(), version, now));
        }
    }

    /// Somebody began or stopped to follow one of ours who follows him: they are friends, or not any more.
    fn hear_mutual(&mut self, now: Time, user: &Arc<str>, followee: &Arc<str>, on: bool) {
        let Some(edge) = self.people.here.get_mut(followee).and_then(|here| here.following.get_mut(user))
        else {
            return;
        };
        let was = std::mem::replace(&mut edge.mutual, on);
        let Some(known) = self.people.followees.get(user).filter(|known| known.read) else { return };
        let visibility = known.followee.visibility;
        let shows = |mutual| visibility.shows(Viewer::Other { mutual });
        self.tell_if_turned(now, user, followee, shows(was), shows(on));
    }

    /// The answer to a follow or an unfollow that was committed.
    pub(super) fn followed(
        &mut self,
        now: Time,
        follower: &Arc<str>,
        followee: &Arc<str>,
        version: u64,
        on: bool,
    ) {
        self.spread_rumour(now, follower, follows(followee, version, on));
    }

    /// Disconnects that were held back long enough.
    pub(super) fn wake_followees(&mut self, now: Time) {
        while let Some((due, user)) = self.people.wakes.first().cloned()
            && due <= now
        {
            self.people.wakes.remove(&(due, user.clone()));
            let settings = &self.node.clone().settings;
            let Some(known) = self.people.followees.get_mut(&user) else { continue };
            let before = known.followee.visibility;
            let tidings = known.followee.wake(now, &settings.activities);
            self.followee_moved(now, &user, before, None, tidings);
        }
    }

    /// A session asked for the status of everybody its user follows.
    pub(crate) fn want_statuses(&mut self, now: Time, id: ListenerId) {
        let Some(user) = self.user_of(id) else {
            let mut tail = Vec::new();
            json::statuses_tail(&mut tail, &[]);
            return self.put_json(now, id, tail.into());
        };
        if let Some(here) = self.people.here.get_mut(&user) {
            here.wants.push(id);
        }
        self.settle_wants(now, &user);
    }

    pub(super) fn send_statuses(&mut self, now: Time, user: &Arc<str>, id: ListenerId) {
        let Some(here) = self.people.here.get(user) else { return };
        let mut followees: Vec<&Arc<str>> = here.following.keys().collect();
        followees.sort();
        let shown: Vec<(Arc<str>, Option<Arc<str>>, Status)> = followees
            .into_iter()
            .filter_map(|followee| {
                let known = self.people.followees.get(followee)?;
                let status = self.status_for(user, followee)?;
                let name = known.followee.name.clone().filter(|_| status.online);
                Some((followee.clone(), name, status))
            })
            .collect();
        let people: Vec<Doing<'_>> =
            shown.iter().map(|(user, name, status)| Doing { user, name: name.as_deref(), status }).collect();
        let mut tails = Vec::new();
        split(&people, &mut tails);
        for tail in tails {
            self.put_json(now, id, tail.into());
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
