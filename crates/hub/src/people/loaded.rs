//! Handles completed loads: local users and their follow lists, and the users they follow.
//! Must hold: the bus has confirmed the subscription to a user before they are read, so that no update in between is
//! missed.

use super::People;
use super::interest::UserRole;
use super::person::visibility_of;
use super::visibility::StoredVisibility;
use crate::core::{AfterCheck, Core, FollowedUser, Notice};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_store::social::FollowRow;
use tavern_store::{StoreAnswer, Ticket, UserSnapshot};

/// Users in one read.
pub(super) const BATCH: usize = 200;

impl People {
    /// Loads a local user, and whom they follow.
    pub(super) fn load_local(&mut self, core: &mut Core, user: &Arc<str>) {
        self.users.make(user).local = true;
        self.users.refresh(core, user);
        core.notify(Notice::InboxChanged { user: user.clone() });
        self.load_following(core, user);
    }

    /// A change of a user's visibility had an unknown outcome.
    pub(super) fn publish_stored(&mut self, core: &mut Core, user: &Arc<str>) {
        self.users.make(user).publishes = true;
        self.users.refresh(core, user);
    }

    /// Reads whom a local user follows, unless that read is in progress.
    pub(super) fn load_following(&mut self, core: &mut Core, user: &Arc<str>) {
        if self.follows.contains(user) && !self.follow_lists.is_reading(user) {
            self.follows.begin_round(user);
            self.follow_lists.refresh(core, user);
        }
    }

    pub(super) fn load_followees(&mut self, core: &mut Core, users: &[Arc<str>], viewer: Option<&Arc<str>>) {
        if users.is_empty() {
            return;
        }
        let viewer = viewer.cloned().unwrap_or_default();
        let followees = self.followees.make(&viewer);
        for user in users {
            self.feed.begin_loading(user);
            followees.want(user);
        }
        self.followees.refresh(core, &viewer);
    }

    pub(super) fn user_answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.users.answered(core, ticket, answer) else { return };
        let user = read.name;
        let reads_again = self.users.is_reading(&user);
        let Some(known) = self.users.get_mut(&user) else { return };
        let (local, publishes, found) = (known.local, known.publishes, known.found.take());
        match (read.failed, found) {
            (Some(answer), _) if local => core.notify(Notice::VisibilityFailed { user, answer }),
            (None, Some(person)) => {
                if !reads_again {
                    self.users.drop(core, &user);
                }
                if publishes {
                    // If it was committed it was not published, and a repeated change would find nothing to do.
                    StoredVisibility::of(&person).publish(core, &user);
                }
                if local {
                    self.local_loaded(core, &user, &person);
                }
            }
            _ => {}
        }
    }

    pub(super) fn follow_list_answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.follow_lists.answered(core, ticket, answer) else { return };
        if read.failed.is_none()
            && let Some(list) = self.follow_lists.get_mut(&read.name)
        {
            let edges = std::mem::take(&mut list.found);
            self.follow_lists.drop(core, &read.name);
            self.following_loaded(core, &read.name, edges);
        }
    }

    pub(super) fn followees_answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.followees.answered(core, ticket, answer) else { return };
        let found = self.followees.get_mut(&read.name).map(|followees| std::mem::take(&mut followees.found));
        self.followees.drop_unused(core, &read.name);
        let viewer = Some(&*read.name).filter(|viewer| !viewer.is_empty());
        self.followees_loaded(core, &found.unwrap_or_default(), viewer);
    }

    fn local_loaded(&mut self, core: &mut Core, user: &Arc<str>, person: &UserSnapshot) {
        let (version, visibility) = visibility_of(person).unwrap_or_default();
        self.visibility_changed(core, user, version, visibility);
        let Some(local) = core.users.get_mut(user) else { return };
        local.visibility.get_or_insert(visibility);
        core.notify(Notice::VisibilityLoaded { user: user.clone() });
    }

    fn following_loaded(&mut self, core: &mut Core, user: &Arc<str>, edges: Vec<FollowRow>) {
        let Some(round) = self.follows.round(user) else { return };
        // A follow that only a later load of the list finds was not announced: send its status now.
        let greeted = self.follows.is_complete(user);
        let (mut new, mut greets, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for edge in edges {
            let followee = &edge.follow.followee;
            let known = core.users.follows(user, followee);
            let was = core.users.is_mutual(user, followee);
            let (version, mutual) = (edge.version, edge.mutual);
            let kept = FollowedUser { version, mutual, check: None, round, status_sent: greeted };
            new.extend(self.begin_following(core, user, followee, kept));
            if greeted && !known && core.users.follows(user, followee) {
                greets.push(followee.clone());
            }
            let is = core.users.is_mutual(user, followee);
            if !known && is && self.feed.shows_mutual_only(followee) {
                self.feed.check(core, user, followee, AfterCheck::Nothing);
            }
            if known && was != is {
                changed.push((followee.clone(), was, is));
            }
        }
        self.watch(core, new);
        for (followee, was, is) in changed {
            // The update that they follow back, or stopped, was lost on the bus.
            self.mutual_changed(core, &followee, user, was, is);
        }
        greets.iter().for_each(|followee| self.greet(core, followee, user));
        for followee in self.follows.remove_unlisted(core, user) {
            self.unwatch(core, user, &followee);
        }
        self.follows.set_complete(user);
        self.send_waiting(core, user);
    }

    fn followees_loaded(&mut self, core: &mut Core, people: &[(UserSnapshot, u32)], viewer: Option<&str>) {
        let mut waiting = BTreeSet::new();
        for (person, times) in people {
            let Some(greets) = self.feed.loaded(core, person, *times) else { continue };
            let followers = core.users.followers(&person.user).to_vec();
            if self.feed.shows_mutual_only(&person.user) {
                self.check_followers(core, person, &followers, viewer);
            }
            waiting.extend(followers);
            greets.iter().for_each(|follower| self.greet(core, &person.user, follower));
        }
        waiting.iter().for_each(|follower| self.send_waiting(core, follower));
    }

    /// Records that a local user follows another. Returns the followee if no local user followed them before.
    pub(super) fn begin_following(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        followee: &Arc<str>,
        edge: FollowedUser,
    ) -> Option<Arc<str>> {
        if !self.follows.follow(core, user, followee, edge) {
            return None;
        }
        if self.feed.contains(followee) {
            return None;
        }
        let entry = self.interests.add(core, followee);
        self.feed.add(followee.clone(), entry);
        Some(followee.clone())
    }

    /// Subscribes to updates about followed users on the bus, then loads them.
    pub(super) fn watch(&mut self, core: &mut Core, users: Vec<Arc<str>>) {
        let mut by_viewer: BTreeMap<Option<Arc<str>>, Vec<Arc<str>>> = BTreeMap::new();
        for user in self.interests.request(core, users, UserRole::Followed) {
            by_viewer.entry(core.users.followers(&user).first().cloned()).or_default().push(user);
        }
        for (viewer, users) in by_viewer {
            self.load_followees(core, &users, viewer.as_ref());
        }
    }

    /// A local user stopped following another.
    pub(super) fn unwatch(&mut self, core: &mut Core, follower: &str, followee: &Arc<str>) {
        if !self.feed.contains(followee) {
            return;
        }
        self.feed.remove_follower(followee, follower);
        if core.users.remove_follower(followee, follower)
            && let Some(entry) = self.feed.remove(core, followee)
        {
            self.interests.remove(core, &entry, !self.is_known(followee));
        }
    }
}
