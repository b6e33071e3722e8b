//! What is known of people here comes from the store: first the bus must carry what is said about somebody, then he is
//! read, then what is heard is newer. Must hold: nothing that happens after the reading began is missed.

use super::{Known, PEOPLE_LINK, People};
use crate::core::{Claim, Core, Edge, Notice, Timer};
use crate::event::Space;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Fact, Followee, Rumour, Stay, Visibility};
use tavern_engine::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_engine::social::Edges;
use tavern_engine::{Answer, Found, Person, Presence, Read, Versioned, Work};

/// What is read for its own sake; asked again if the store does not answer.
#[derive(Clone, Debug)]
pub(crate) enum Load {
    /// One of ours: to whom he shows himself.
    Own(Arc<str>),
    /// Whom one of ours follows.
    Following {
        user: Arc<str>,
        after: Option<Arc<str>>,
    },
    Followees(Vec<Arc<str>>),
    /// Whether somebody follows one of ours who began to follow him.
    Friend {
        user: Arc<str>,
        followee: Arc<str>,
    },
}

/// What was asked of the store about people.
pub(crate) enum Task {
    Load(Load),
    /// What these do, for other services.
    Herald(Vec<(Arc<str>, super::herald::Word)>),
    Follow {
        follower: Arc<str>,
        followee: Arc<str>,
        on: bool,
        claim: Option<Claim>,
    },
    /// A list of users, answered as it is.
    List {
        claim: Claim,
        followers: bool,
    },
    Statuses {
        claim: Claim,
        viewer: Option<Arc<str>>,
    },
    /// What somebody is, to change to whom he shows himself.
    Show {
        value: Visibility,
        claim: Claim,
        tries: u8,
    },
    Shown {
        person: Box<Person>,
        value: Visibility,
        claim: Claim,
        tries: u8,
    },
}

/// People in one reading.
const BATCH: usize = 200;
/// People that a node compares with the store at each heartbeat; each shard its part.
const LOOK: usize = 500;
/// Users with a session here that are compared with the store at each heartbeat.
const LOOK_OWN: usize = 50;

impl People {
    /// Those of whom what is said is carried here. The others are loaded when it is.
    pub(super) fn carry_people(&mut self, core: &mut Core, users: Vec<Arc<str>>, own: bool) -> Vec<Arc<str>> {
        let node = core.node.clone();
        let link = (core.index, PEOPLE_LINK);
        let mut hold = node.carrier.hold();
        if hold.has_failed(link) {
            // Read without it; the heartbeat asks the bus again, and the store until then.
            self.refused = true;
            return users;
        }
        let waits = hold.carry_each(users.iter().map(|user| (Space::People, user.as_bytes())), Some(link));
        drop(hold);
        let (late, carried) = users.into_iter().zip(waits).partition::<Vec<_>, _>(|(_, waits)| *waits);
        for (user, _) in late {
            core.linger(Space::People, user.as_bytes().into());
            self.uncarried.insert((user, own));
        }
        carried.into_iter().map(|(user, _)| user).collect()
    }

    /// The bus carries something that was waited for.
    pub(crate) fn people_carried(&mut self, core: &mut Core) {
        let waited = std::mem::take(&mut self.uncarried);
        let (own, followees): (Vec<_>, Vec<_>) = waited.into_iter().partition(|(_, own)| *own);
        let names = |list: Vec<(Arc<str>, bool)>| list.into_iter().map(|(user, _)| user).collect();
        for user in self.carry_people(core, names(own), true) {
            if self.here.contains_key(&user) {
                self.load_own(core, &user);
            }
        }
        self.watch_followees(core, names(followees));
    }

    pub(super) fn load_own(&mut self, core: &mut Core, user: &Arc<str>) {
        self.load(core, Load::Own(user.clone()));
        core.notify(Notice::InboxChanged { user: user.clone() });
        // Two readings of one list would not fit together.
        if let Some(here) = self.here.get_mut(user).filter(|here| !here.listing) {
            here.listing = true;
            here.round += 1;
            self.load(core, Load::Following { user: user.clone(), after: None });
        }
    }

    fn load(&mut self, core: &mut Core, load: Load) {
        let read = match &load {
            Load::Own(user) => Read::People { users: vec![user.clone()], viewer: None },
            Load::Following { user, after } => {
                Read::Following { user: user.clone(), after: after.clone(), limit: PAGE_ROWS }
            }
            Load::Followees(users) => Read::People { users: users.clone(), viewer: None },
            Load::Friend { user, followee } => {
                Read::People { users: vec![followee.clone()], viewer: Some(user.clone()) }
            }
        };
        self.ask_people(core, Task::Load(load), Work::Read(read));
    }

    /// Reads those who are followed; what is heard meanwhile is kept.
    fn load_followees(&mut self, core: &mut Core, users: Vec<Arc<str>>) {
        for user in &users {
            if let Some(known) = self.followees.get_mut(user) {
                known.reading.get_or_insert_default().open += 1;
            }
        }
        for part in users.chunks(BATCH) {
            self.load(core, Load::Followees(part.to_vec()));
        }
    }

    pub(super) fn loaded(&mut self, core: &mut Core, load: Load, answer: Answer) {
        let now = core.now;
        match (load, answer) {
            (Load::Own(user), Answer::Read(Found::People(people))) => {
                if let Some(person) = people.into_iter().next() {
                    self.own_read(core, &user, &person);
                }
            }
            (Load::Following { user, .. }, Answer::Read(Found::Edges(page))) => {
                self.following_read(core, &user, page);
            }
            (Load::Followees(_), Answer::Read(Found::People(people))) => {
                people.into_iter().for_each(|person| self.followee_read(core, person));
            }
            (Load::Friend { user, followee }, Answer::Read(Found::People(people))) => {
                let mutual = people.first().is_some_and(|person| person.mutual);
                self.friend_read(core, &user, &followee, mutual);
            }
            (load, answer) => {
                if let Load::Own(user) = &load {
                    core.notify(Notice::VisibilityFailed { user: user.clone(), answer });
                }
                self.retries.push((now + RETRY_AFTER_MS, load));
                core.agenda.set(now + RETRY_AFTER_MS, Timer::RetryPeople);
            }
        }
    }

    /// The store is asked again.
    pub(crate) fn retry_loads(&mut self, core: &mut Core) {
        let now = core.now;
        let (due, later) = std::mem::take(&mut self.retries).into_iter().partition(|(due, _)| *due <= now);
        self.retries = later;
        let due: Vec<(Time, Load)> = due;
        due.into_iter().for_each(|(_, load)| self.load(core, load));
    }

    fn own_read(&mut self, core: &mut Core, user: &Arc<str>, person: &Person) {
        let (version, visibility) = shown(person).unwrap_or_default();
        self.turn_faces(core, user, version, visibility);
        let Some(local) = core.users.get_mut(user) else { return };
        local.visibility.get_or_insert(visibility);
        core.notify(Notice::VisibilityLoaded { user: user.clone() });
    }

    fn following_read(&mut self, core: &mut Core, user: &Arc<str>, page: Edges) {
        let after = page.rows.last().map(|edge| edge.follow.followee.clone());
        let Some(here) = self.here.get(user) else { return };
        // What a later reading finds began without a word of it: it is greeted now.
        let (round, greeted) = (here.round, here.listed);
        let (mut fresh, mut greets) = (Vec::new(), Vec::new());
        for edge in page.rows {
            let followee = &edge.follow.followee;
            let knew = core.users.follows(user, followee);
            let kept = Edge { version: edge.version, mutual: edge.mutual, round, greeted };
            fresh.extend(self.begin_following(core, user, followee, kept));
            if greeted && !knew && core.users.follows(user, followee) {
                greets.push(followee.clone());
            }
        }
        self.watch_followees(core, fresh);
        greets.iter().for_each(|followee| self.greet(core, user, followee));
        if page.more {
            return self.load(core, Load::Following { user: user.clone(), after });
        }
        self.forget_unlisted(core, user);
        if let Some(here) = self.here.get_mut(user) {
            (here.listed, here.listing) = (true, false);
        }
        self.settle_wants(core, user);
    }

    /// Whoever is not in the list any more is not followed, even if nobody said so.
    fn forget_unlisted(&mut self, core: &mut Core, user: &Arc<str>) {
        let Some(round) = self.here.get(user).map(|here| here.round) else { return };
        let Some(local) = core.users.get_mut(user) else { return };
        let unlisted = |followee: &Arc<str>| local.following.get(followee).is_some_and(|e| e.round != round);
        let gone: Vec<Arc<str>> = local.followees().into_iter().filter(unlisted).collect();
        for followee in gone {
            if let Some(local) = core.users.get_mut(user) {
                local.following.remove(&followee);
            }
            self.unwatch(core, user, &followee);
        }
    }

    pub(super) fn load_friend(&mut self, core: &mut Core, user: &Arc<str>, followee: &Arc<str>) {
        self.load(core, Load::Friend { user: user.clone(), followee: followee.clone() });
    }

    fn friend_read(&mut self, core: &mut Core, user: &Arc<str>, followee: &Arc<str>, mutual: bool) {
        let local = core.users.get_mut(user);
        if let Some(edge) = local.and_then(|local| local.following.get_mut(followee)) {
            edge.mutual |= mutual;
            self.greet(core, user, followee);
        }
    }

    /// Notes that one of ours follows somebody. Gives whom to begin to watch, if nobody here followed him before.
    pub(super) fn begin_following(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        followee: &Arc<str>,
        edge: Edge,
    ) -> Option<Arc<str>> {
        let here = self.here.get_mut(user)?;
        let local = core.users.get_mut(user)?;
        if here.unfollowed.iter().any(|(whom, version, _)| whom == followee && *version > edge.version) {
            return None;
        }
        if let Some(known) = local.following.get_mut(followee) {
            known.round = edge.round;
            if edge.version >= known.version {
                *known = Edge { greeted: known.greeted, ..edge };
            }
            return None;
        }
        local.following.insert(followee.clone(), edge);
        core.users.add_follower(followee, user);
        if let Some(known) = self.followees.get(followee) {
            here.missing += usize::from(!known.read);
            return None;
        }
        here.missing += 1;
        let entry = self.hold_person(core, followee);
        let known = Known { followee: Followee::default(), entry, read: false, reading: None };
        self.followees.insert(followee.clone(), Box::new(known));
        Some(followee.clone())
    }

    /// Carried first, read then.
    pub(super) fn watch_followees(&mut self, core: &mut Core, users: Vec<Arc<str>>) {
        let carried = self.carry_people(core, users, false);
        self.load_followees(core, carried);
    }

    /// One of ours does not follow somebody any more.
    pub(super) fn unwatch(&mut self, core: &mut Core, follower: &str, followee: &Arc<str>) {
        let Some(known) = self.followees.get_mut(followee) else { return };
        let unfollowed = core.users.remove_follower(followee, follower);
        if let Some(reading) = &mut known.reading {
            reading.greets.retain(|other| &**other != follower);
        }
        let unread = !known.read;
        if let Some(here) = self.here.get_mut(follower).filter(|_| unread) {
            here.missing -= 1;
        }
        if unfollowed && let Some(known) = self.followees.remove(followee) {
            if let Some(due) = known.followee.next_wake() {
                core.agenda.cancel(due, Timer::DisconnectShown(followee.clone()));
            }
            self.release_person(core, followee, &known.entry);
        }
    }

    fn followee_read(&mut self, core: &mut Core, person: Person) {
        let now = core.now;
        let settings = &core.node.clone().settings;
        let user = person.user.clone();
        let Some(known) = self.followees.get_mut(&user) else { return };
        let mut read = followee_of(now, &person);
        let (heard, greets) = known.reading_answered();
        // Before anybody is told: what was heard while he was read is newer.
        for fact in heard {
            read.hear(now, &settings.activities, 0, fact);
        }
        if !known.read {
            (known.followee, known.read) = (read, true);
            let followers = core.users.followers(&user).to_vec();
            for follower in followers {
                if let Some(here) = self.here.get_mut(&follower) {
                    here.missing -= 1;
                }
                self.settle_wants(core, &follower);
            }
            greets.iter().for_each(|follower| self.greet(core, follower, &user));
            return;
        }
        let before = known.followee.visibility;
        let due = known.followee.next_wake();
        let tidings = known.followee.replace(now, &settings.activities, settings.disconnect_ms, read);
        self.followee_moved(core, &user, before, due, tidings);
    }

    /// Everybody whom a user follows is known: sessions that asked are told.
    pub(super) fn settle_wants(&mut self, core: &mut Core, user: &Arc<str>) {
        let Some(here) = self.here.get_mut(user).filter(|here| here.listed && here.missing == 0) else {
            return;
        };
        for id in std::mem::take(&mut here.wants) {
            self.send_statuses(core, user, id);
        }
        self.settle_moved(core, user);
    }

    /// Compares some of those who are followed with the store: a last word that was lost shows in nothing else. Done at
    /// each heartbeat while there are other nodes, and for everybody when words are known to be lost.
    pub fn look_at_people(&mut self, core: &mut Core, everybody: bool) {
        if !everybody && !core.node.carrier.reaches_others() {
            return;
        }
        if std::mem::take(&mut self.refused) {
            let here = self.here.keys().cloned().collect();
            self.carry_people(core, here, true);
            let followees = self.followees.keys().cloned().collect();
            self.carry_people(core, followees, false);
        }
        let most = if everybody { usize::MAX } else { LOOK.div_ceil(core.node.settings.shards) };
        let from = self.looked_at.take().filter(|_| !everybody);
        let users = after(self.followees.keys(), from.as_ref(), most);
        self.looked_at = users.last().filter(|_| users.len() == most).cloned();
        // Who is not carried yet is read when he is.
        let ready = users.into_iter().filter(|user| !self.uncarried.contains(&(user.clone(), false)));
        let ready: Vec<Arc<str>> = ready.collect();
        self.load_followees(core, ready);
        self.look_at_own(core, everybody);
    }

    /// The same for users with a session here: whom they follow, and to whom they show themselves.
    fn look_at_own(&mut self, core: &mut Core, everybody: bool) {
        let most = if everybody { usize::MAX } else { LOOK_OWN.div_ceil(core.node.settings.shards) };
        let from = self.own_looked_at.take().filter(|_| !everybody);
        let users = after(self.here.keys(), from.as_ref(), most);
        self.own_looked_at = users.last().filter(|_| users.len() == most).cloned();
        let ready = users.into_iter().filter(|user| !self.uncarried.contains(&(user.clone(), true)));
        let ready: Vec<Arc<str>> = ready.collect();
        ready.iter().for_each(|user| self.load_own(core, user));
    }
}

impl Known {
    /// One of his readings was answered: what was heard since it began, and whom to greet.
    fn reading_answered(&mut self) -> (Vec<Fact>, Vec<Arc<str>>) {
        let Some(reading) = self.reading.as_mut() else { return Default::default() };
        reading.open = reading.open.saturating_sub(1);
        let (heard, greets) = (reading.heard.clone(), std::mem::take(&mut reading.greets));
        if reading.open == 0 {
            self.reading = None;
        }
        (heard, greets)
    }
}

/// The next of a list in order.
fn after<'a>(
    users: impl Iterator<Item = &'a Arc<str>>,
    last: Option<&Arc<str>>,
    most: usize,
) -> Vec<Arc<str>> {
    users.filter(|user| last.is_none_or(|last| *user > last)).take(most).cloned().collect()
}

fn shown(person: &Person) -> Option<(u64, Visibility)> {
    person.known.as_ref().map(|row| (row.version, row.row.visibility))
}

pub(super) fn fact_of(row: &Versioned<Presence>) -> Fact {
    let attendance = &row.row.attendance;
    Fact::Place {
        channel: row.row.key.channel.clone(),
        version: row.version,
        stay: Stay::of(attendance),
        last_seen: None,
        name: row.row.name.clone(),
    }
}

/// What somebody who was read does, to one who looks at him.
pub(super) fn followee_of(now: Time, person: &Person) -> Followee {
    let last_seen = person.known.as_ref().and_then(|row| row.row.last_seen);
    let facts = person.presences.iter().filter(|row| !row.row.anonymous).map(fact_of);
    Followee::read(now, shown(person), last_seen, facts)
}

/// The word that somebody follows somebody, or does not any more.
pub(super) fn follows(followee: &Arc<str>, version: u64, on: bool) -> Rumour {
    Rumour::Follows { followee: followee.clone(), version, on }
}
