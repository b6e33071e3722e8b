//! People on one shard: the local users, whom they follow, and the status events for their sessions.
//! An update about a user is published once, on a subject of their own. Every shard with a follower caches the status
//! of the user (`status_feed.rs`), so no node looks up followers when it changes. The rules are in `tavern-domain`.
//! Must hold: every session of a follower gets every change once; after `unfollow` it gets no more; a user is offline
//! to everyone they hide from.

mod command;
mod follow;
mod follow_lists;
mod interest;
mod load;
mod loaded;
mod mutual;
mod person;
mod rotation;
mod service_feed;
mod status_feed;
mod statuses;
mod visibility;

pub(crate) use interest::PEOPLE_LINK;

use crate::core::listener::ListenerId;
use crate::core::{AfterCheck, Core, Feature, FollowedUser, Notice};
use crate::event::Namespace;
use crate::node::UserNotice;
use crate::node::registry::shards_of;
use crate::replica::Replicas;
use command::{PeopleCommands, UnknownOutcome};
use follow_lists::{FollowLists, WaitingSession};
use interest::{UserInterests, UserRole};
use load::{FollowListRead, FolloweeRead, UserRead};
use mutual::MutualFollows;
use rotation::Rotation;
use service_feed::ServiceFeed;
use status_feed::{KnownStatuses, StatusFeed};
use std::sync::Arc;
use tavern_domain::presence::{UserFact, UserUpdate, Visibility};
use tavern_store::{StoreAnswer, Ticket};

/// Followed users that a node compares with the store at each heartbeat; each shard its part.
const CHECK_FOLLOWED: usize = 500;
/// Local users that are compared with the store at each heartbeat.
const CHECK_LOCAL: usize = 50;

pub(crate) struct People {
    follows: FollowLists,
    feed: StatusFeed,
    services: ServiceFeed,
    commands: PeopleCommands,
    interests: UserInterests,
    users: Replicas<UserRead>,
    follow_lists: Replicas<FollowListRead>,
    followees: Replicas<FolloweeRead>,
    mutual: Replicas<MutualFollows>,
    /// The users that are compared with the store next.
    checked_followed: Rotation,
    checked_local: Rotation,
}

impl Default for People {
    fn default() -> People {
        People {
            follows: FollowLists::default(),
            feed: StatusFeed::default(),
            services: ServiceFeed::default(),
            commands: PeopleCommands::default(),
            interests: UserInterests::default(),
            users: Replicas::new(Feature::People),
            follow_lists: Replicas::new(Feature::People),
            followees: Replicas::new(Feature::People),
            mutual: Replicas::new(Feature::People),
            checked_followed: Rotation::default(),
            checked_local: Rotation::default(),
        }
    }
}

impl People {
    /// The commands about people, of sessions and of apps.
    pub fn commands(&mut self) -> &mut PeopleCommands {
        &mut self.commands
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        if self.users.owns(ticket) {
            self.user_answered(core, ticket, answer);
        } else if self.follow_lists.owns(ticket) {
            self.follow_list_answered(core, ticket, answer);
        } else if self.followees.owns(ticket) {
            self.followees_answered(core, ticket, answer);
        } else if self.mutual.owns(ticket) {
            self.mutual_answered(core, ticket, answer);
        } else if self.services.owns(ticket) {
            self.services.answered(core, answer);
        } else {
            match self.commands.answered(core, ticket, answer) {
                Some(UnknownOutcome::Visibility(user)) => self.publish_stored(core, &user),
                Some(UnknownOutcome::Follow(user)) => self.load_following(core, &user),
                None => {}
            }
        }
        self.begin_checks(core);
    }

    /// A session of a user begins here.
    pub fn session_opened(&mut self, core: &mut Core, id: ListenerId) {
        let Some(user) = core.user_of(id) else { return };
        if self.follows.contains(&user) {
            return core.notify(Notice::InboxChanged { user });
        }
        let entry = self.interests.add(core, &user);
        self.follows.add_user(user.clone(), entry);
        for user in self.interests.request(core, vec![user], UserRole::Local) {
            self.load_local(core, &user);
        }
    }

    /// The last session of a user here has ended: forgets what was loaded for them.
    pub fn user_left(&mut self, core: &mut Core, user: &Arc<str>) {
        let Some(entry) = self.follows.remove_user(user) else { return };
        self.follow_lists.drop(core, user);
        let followees = core.users.get(user).map(|local| local.followees()).unwrap_or_default();
        for followee in followees {
            self.unwatch(core, user, &followee);
        }
        self.interests.remove(core, &entry, !self.is_known(user));
    }

    /// The bus confirmed subscriptions that loads waited for.
    pub fn bus_ready(&mut self, core: &mut Core) {
        let (local, followed) = self.interests.take_pending();
        for user in self.interests.request(core, local, UserRole::Local) {
            if self.follows.contains(&user) {
                self.load_local(core, &user);
            }
        }
        self.watch(core, followed);
    }

    /// Publishes an update about a user, committed on this shard: once, however many followers there are.
    pub fn publish(&mut self, core: &mut Core, user: &Arc<str>, update: UserUpdate) {
        let update = self.publish_elsewhere(core, user, update);
        self.apply_update(core, &update);
    }

    /// The same for an update that was already applied here.
    pub fn publish_elsewhere(&mut self, core: &mut Core, user: &Arc<str>, update: UserUpdate) -> UserNotice {
        self.services.status_changed(core, user, &update);
        let update = UserNotice { user: user.clone(), update: Arc::new(update) };
        core.stats.user_updates.add(1);
        core.effects.bus_messages.extend(core.node.user_packet(&update));
        let entry = core.node.registry.find(Namespace::People, user.as_bytes());
        let others = entry.map_or(0, |entry| entry.mask()) & !(1u64 << core.index);
        core.effects.user_updates.extend(shards_of(others).map(|shard| (shard, update.clone())));
        update
    }

    /// An update about a user, from this shard, another one, or another node.
    pub fn apply_update(&mut self, core: &mut Core, update: &UserNotice) {
        self.apply(core, &update.user, &update.update);
        self.begin_checks(core);
    }

    fn apply(&mut self, core: &mut Core, user: &Arc<str>, update: &UserUpdate) {
        match update {
            UserUpdate::Fact(fact) => {
                if let UserFact::Shown { version, visibility } = fact {
                    self.visibility_changed(core, user, *version, *visibility);
                }
                self.feed.apply_fact(core, user, fact);
            }
            UserUpdate::Follows { followee, version, on: true } => {
                self.apply_follow(core, user, followee, *version);
            }
            UserUpdate::Follows { followee, version, on: false } => {
                self.follows_back(core, user, followee, false);
                if self.follows.unfollow(core, user, followee, *version) {
                    self.unwatch(core, user, followee);
                    self.send_waiting(core, user);
                }
            }
            UserUpdate::Removed { channel } => forget_presence(core, user, channel),
            UserUpdate::Inbox => core.notify(Notice::InboxChanged { user: user.clone() }),
        }
    }

    /// A session asked for the status of every user its user follows.
    pub fn want_statuses(&mut self, core: &mut Core, id: ListenerId) {
        match core.user_of(id) {
            Some(user) => {
                self.follows.wait(&user, WaitingSession::All(id));
                self.send_waiting(core, &user);
            }
            None => statuses::send_all(core, id, &[]),
        }
    }

    /// The statuses that a session which moves to another node was sent last.
    pub fn known_statuses(&self, core: &Core, id: ListenerId) -> KnownStatuses {
        let Some(user) = core.user_of(id) else { return Vec::new() };
        if let Some(known) = self.follows.known_to_waiting(&user, id) {
            return known;
        }
        let mut known = self.feed.known_statuses(core, &user);
        // Their status is sent when it is known whether they follow back.
        known.retain(|(followee, _)| !core.users.is_checked(&user, followee));
        known
    }

    /// A session migrated here with these statuses: sends it the differences.
    pub fn compare_statuses(&mut self, core: &mut Core, id: ListenerId, known: KnownStatuses) {
        let Some(user) = core.user_of(id) else { return };
        self.follows.wait(&user, WaitingSession::Differences(id, known));
        self.send_waiting(core, &user);
    }

    /// Compares some users with the store, because the loss of the last update cannot be detected otherwise. Done at
    /// each heartbeat while there are other nodes, and for all users when updates are known to be lost.
    pub fn check(&mut self, core: &mut Core, all: bool) {
        if !all && !core.node.bus_interests.reaches_others() {
            return;
        }
        if self.interests.take_refused() {
            let local = self.follows.users().cloned().collect();
            self.interests.request(core, local, UserRole::Local);
            let followed = self.feed.users().cloned().collect();
            self.interests.request(core, followed, UserRole::Followed);
        }
        let shards = core.node.settings.shards;
        let mut followed = match all {
            true => self.checked_followed.all(self.feed.users()),
            false => self.checked_followed.next(self.feed.users(), CHECK_FOLLOWED.div_ceil(shards)),
        };
        let mut local = match all {
            true => self.checked_local.all(self.follows.users()),
            false => self.checked_local.next(self.follows.users(), CHECK_LOCAL.div_ceil(shards)),
        };
        // Users whose updates the bus does not deliver yet are loaded when it does.
        followed.retain(|user| !self.interests.is_pending(user, UserRole::Followed));
        local.retain(|user| !self.interests.is_pending(user, UserRole::Local));
        self.load_followees(core, &followed, None);
        local.iter().for_each(|user| self.load_local(core, user));
    }

    /// A read of a user has failed.
    pub(crate) fn replica_is_due(&mut self, core: &mut Core, user: &Arc<str>) {
        self.users.due(core, user);
        self.follow_lists.due(core, user);
        self.followees.due(core, user);
        self.mutual.due(core, user);
    }

    /// The delay before followers see a disconnect is over.
    pub fn show_disconnect(&mut self, core: &mut Core, user: &Arc<str>) {
        self.feed.show_disconnect(core, user);
    }

    /// Publishes the due status changes for other services.
    pub fn publish_to_services(&mut self, core: &mut Core) {
        self.services.read_due(core);
    }

    /// Whether this shard needs the updates about a user.
    fn is_known(&self, user: &str) -> bool {
        self.follows.contains(user) || self.feed.contains(user)
    }

    /// The visibility of a local user changed.
    fn visibility_changed(&mut self, core: &mut Core, user: &Arc<str>, version: u64, visibility: Visibility) {
        if !self.follows.note_visibility(user, version) {
            return;
        }
        if let Some(local) = core.users.get_mut(user) {
            local.visibility = Some(visibility);
        }
        core.notify(Notice::VisibilityChanged { user: user.clone() });
    }

    fn apply_follow(&mut self, core: &mut Core, user: &Arc<str>, followee: &Arc<str>, version: u64) {
        self.follows_back(core, user, followee, true);
        let Some(round) = self.follows.round(user) else { return };
        self.follows.forget_unfollowed(core.now, user, followee, version);
        let greeted = match core.users.follow_mut(user, followee) {
            Some(edge) => {
                edge.version = edge.version.max(version);
                std::mem::replace(&mut edge.status_sent, true)
            }
            None => {
                let edge = FollowedUser { version, mutual: false, check: None, round, status_sent: true };
                let new = self.begin_following(core, user, followee, edge);
                self.watch(core, new.into_iter().collect());
                false
            }
        };
        if !greeted && core.users.follows(user, followee) {
            // Their status depends on whether they follow back, so it is sent when that has been loaded.
            self.feed.check(core, user, followee, AfterCheck::Status);
        }
    }

    /// Sends statuses to the sessions that wait for them, if every followee of their user is loaded.
    fn send_waiting(&mut self, core: &mut Core, user: &Arc<str>) {
        let Some(local) = core.users.get(user).filter(|_| self.follows.is_awaited(user)) else { return };
        let mut following = local.following.iter();
        if !following.all(|(followee, edge)| edge.check.is_none() && self.feed.is_loaded(followee)) {
            return;
        }
        for waiting in self.follows.take_waiting(user) {
            match waiting {
                WaitingSession::All(id) => self.feed.send_statuses(core, user, id),
                WaitingSession::Differences(id, known) => self.feed.send_differences(core, user, id, known),
            }
        }
    }
}

/// An app removed a user from a channel: their local sessions do not rejoin it on their own.
fn forget_presence(core: &mut Core, user: &str, channel: &str) {
    for id in core.users.sessions(user).to_vec() {
        if let Some(session) = core.session_mut(id) {
            session.present.leave(channel);
        }
    }
}
