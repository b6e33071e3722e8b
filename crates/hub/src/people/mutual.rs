//! Checks that a local user and a user they follow follow each other, by one read that also finds the visibility of the
//! other. Must hold: a user who is shown only to followers they follow becomes visible to a follower only when a read has
//! said both. Messages about the two may overtake each other.

use super::People;
use super::loaded::BATCH;
use super::person::visibility_of;
use crate::core::{AfterCheck, Core};
use crate::replica::{PageLoad, Replica};
use std::sync::Arc;
use tavern_domain::presence::{UserFact, Visibility};
use tavern_store::{Found, Read, StoreAnswer, Ticket, UserSnapshot};

/// The follows of one local user that are being checked.
#[derive(Default)]
pub(super) struct MutualFollows {
    /// Each with the number of its check.
    asked: Vec<(Arc<str>, u32)>,
    people: Vec<UserSnapshot>,
    /// What the last read has found, for each check.
    found: Vec<(u32, UserSnapshot)>,
}

impl MutualFollows {
    fn next_page(&self, user: &Arc<str>) -> Option<Read> {
        let rest = self.asked.iter().skip(self.people.len());
        let users: Vec<Arc<str>> = rest.take(BATCH).map(|(followee, _)| followee.clone()).collect();
        (!users.is_empty()).then(|| Read::People { users, viewer: Some(user.clone()) })
    }
}

impl Replica for MutualFollows {
    type Host = Core;
    type Update = ();
    type Waiter = ();

    fn begin(&mut self, core: &mut Core, user: &Arc<str>) -> Option<Read> {
        self.people.clear();
        let checks = core.users.get(user).into_iter().flat_map(|local| &local.following);
        self.asked = checks.filter_map(|(user, edge)| Some((user.clone(), edge.check?.number))).collect();
        // Sorted, so that every run has the same order.
        self.asked.sort();
        self.next_page(user)
    }

    fn load(&mut self, _: &mut Core, user: &Arc<str>, found: Found) -> PageLoad {
        let Found::People(people) = found else { return PageLoad::Unusable };
        if people.is_empty() {
            return PageLoad::Unusable;
        }
        self.people.extend(people);
        self.next_page(user).map_or(PageLoad::Complete, PageLoad::More)
    }

    fn install(&mut self, _: &mut Core, _: &Arc<str>) {
        let numbers = self.asked.iter().map(|(_, number)| *number);
        self.found = numbers.zip(self.people.drain(..)).collect();
    }

    fn is_used(&self, core: &Core, user: &Arc<str>) -> bool {
        core.users.get(user).is_some_and(|local| local.following.values().any(|edge| edge.check.is_some()))
    }
}

impl People {
    /// Reads what must be checked since the last call.
    pub(super) fn begin_checks(&mut self, core: &mut Core) {
        for user in self.feed.take_unchecked() {
            self.mutual.refresh(core, &user);
        }
    }

    pub(super) fn mutual_answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.mutual.answered(core, ticket, answer) else { return };
        let found = self.mutual.get_mut(&read.name).map(|copy| std::mem::take(&mut copy.found));
        for (number, person) in found.unwrap_or_default() {
            self.checked(core, &read.name, number, &person);
        }
        self.begin_checks(core);
        self.mutual.drop_unused(core, &read.name);
        self.send_waiting(core, &read.name);
    }

    /// A user followed or unfollowed a local user, who may follow them.
    pub(super) fn follows_back(&mut self, core: &mut Core, user: &Arc<str>, followee: &Arc<str>, on: bool) {
        if let Some(edge) = core.users.follow_mut(followee, user) {
            let was = std::mem::replace(&mut edge.mutual, on);
            self.mutual_changed(core, user, followee, was, on);
        }
    }

    pub(super) fn mutual_changed(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        follower: &Arc<str>,
        was: bool,
        is: bool,
    ) {
        let appears = is && !was && self.feed.shows_mutual_only(user);
        match appears || core.users.is_checked(follower, user) {
            true => self.feed.check(core, follower, user, AfterCheck::Change),
            false => self.feed.mutual_changed(core, user, follower, was, is),
        }
    }

    /// A user was read for the first time, for one of their followers: checks the others.
    pub(super) fn check_followers(
        &mut self,
        core: &mut Core,
        person: &UserSnapshot,
        followers: &[Arc<str>],
        viewer: Option<&str>,
    ) {
        let hides = is_hidden(person);
        for follower in followers {
            let (known, found) =
                (core.users.is_mutual(follower, &person.user), viewer == Some(&**follower) && person.mutual);
            if (known || found) && !(known && found && !hides) {
                self.feed.check(core, follower, &person.user, AfterCheck::Nothing);
            }
        }
    }

    /// Sends a new follower the status of a user, now or when it is known whether they see it.
    pub(super) fn greet(&mut self, core: &mut Core, user: &Arc<str>, follower: &Arc<str>) {
        match core.users.is_checked(follower, user) {
            true => self.feed.check(core, follower, user, AfterCheck::Status),
            false => self.feed.send_first_status(core, user, follower),
        }
    }

    fn checked(&mut self, core: &mut Core, follower: &Arc<str>, number: u32, person: &UserSnapshot) {
        let user = &person.user;
        let check = |core: &mut Core| {
            core.users.follow_mut(follower, user)?.check.filter(|check| check.number == number)
        };
        if check(core).is_none() {
            // It must be checked again, or is not followed any more.
            return;
        }
        if let Some((version, visibility)) = visibility_of(person) {
            self.feed.apply_fact(core, user, &UserFact::Shown { version, visibility });
        }
        let Some(check) = check(core) else { return };
        if person.mutual && is_hidden(person) && self.feed.shows_mutual_only(user) {
            // They were hidden at the time of the read, and may not follow back any more.
            return self.feed.check(core, follower, user, check.then);
        }
        if let Some(edge) = core.users.follow_mut(follower, user) {
            (edge.mutual, edge.check) = (person.mutual, None);
        }
        match check.then {
            AfterCheck::Nothing => {}
            AfterCheck::Change => self.feed.mutual_changed(core, user, follower, false, person.mutual),
            AfterCheck::Status => self.feed.send_first_status(core, user, follower),
        }
    }
}

fn is_hidden(person: &UserSnapshot) -> bool {
    visibility_of(person).is_some_and(|(_, visibility)| visibility == Visibility::Nobody)
}
