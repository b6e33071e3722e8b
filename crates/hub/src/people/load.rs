//! What people are read for: the visibility of a local user, whom they follow, and the users whom local users follow.
//! Nothing is kept here after a read: `People` takes what it has found.

use super::loaded::BATCH;
use crate::core::Core;
use crate::replica::{PageLoad, Replica};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::social::FollowRow;
use tavern_store::{Found, Read, UserSnapshot};

/// The visibility of one user.
#[derive(Default)]
pub(super) struct UserRead {
    /// They are local: their presence waits for it.
    pub local: bool,
    /// A change of it had an unknown outcome: what is stored is published.
    pub publishes: bool,
    pub found: Option<UserSnapshot>,
}

impl Replica for UserRead {
    type Host = Core;
    type Update = ();
    type Waiter = ();

    fn begin(&mut self, _: &mut Core, user: &Arc<str>) -> Option<Read> {
        Some(Read::People { users: vec![user.clone()], viewer: None })
    }

    fn load(&mut self, _: &mut Core, _: &Arc<str>, found: Found) -> PageLoad {
        let Found::People(people) = found else { return PageLoad::Unusable };
        self.found = people.into_iter().next();
        PageLoad::Complete
    }

    fn is_used(&self, core: &Core, user: &Arc<str>) -> bool {
        self.publishes || (self.local && core.users.contains(user))
    }
}

/// Whom a local user follows.
#[derive(Default)]
pub(super) struct FollowListRead {
    pub found: Vec<FollowRow>,
}

impl FollowListRead {
    fn page(user: &Arc<str>, after: Option<Arc<str>>) -> Read {
        Read::Following { user: user.clone(), after, limit: PAGE_ROWS }
    }
}

impl Replica for FollowListRead {
    type Host = Core;
    type Update = ();
    type Waiter = ();

    fn begin(&mut self, _: &mut Core, user: &Arc<str>) -> Option<Read> {
        self.found.clear();
        Some(FollowListRead::page(user, None))
    }

    fn load(&mut self, _: &mut Core, user: &Arc<str>, found: Found) -> PageLoad {
        let Found::Edges(page) = found else { return PageLoad::Unusable };
        self.found.extend(page.rows);
        match self.found.last().filter(|_| page.more) {
            Some(last) => PageLoad::More(FollowListRead::page(user, Some(last.follow.followee.clone()))),
            None => PageLoad::Complete,
        }
    }

    fn is_used(&self, core: &Core, user: &Arc<str>) -> bool {
        core.users.contains(user)
    }
}

/// The statuses of followed users, and whether they follow back the one whose name it has.
#[derive(Default)]
pub(super) struct FolloweeRead {
    /// The users to read next, each with how often they were asked for.
    wanted: BTreeMap<Arc<str>, u32>,
    /// The users who are being read.
    asked: Vec<(Arc<str>, u32)>,
    people: Vec<UserSnapshot>,
    pub found: Vec<(UserSnapshot, u32)>,
}

impl FolloweeRead {
    pub fn want(&mut self, user: &Arc<str>) {
        *self.wanted.entry(user.clone()).or_default() += 1;
    }

    fn next_page(&self, viewer: &Arc<str>) -> Option<Read> {
        let rest = self.asked.iter().skip(self.people.len());
        let users: Vec<Arc<str>> = rest.take(BATCH).map(|(user, _)| user.clone()).collect();
        let viewer = Some(viewer.clone()).filter(|viewer| !viewer.is_empty());
        (!users.is_empty()).then_some(Read::People { users, viewer })
    }
}

impl Replica for FolloweeRead {
    type Host = Core;
    type Update = ();
    type Waiter = ();

    fn begin(&mut self, _: &mut Core, viewer: &Arc<str>) -> Option<Read> {
        // After a failure those who were asked for before are still to be read.
        for (user, times) in self.asked.drain(..) {
            *self.wanted.entry(user).or_default() += times;
        }
        self.asked = std::mem::take(&mut self.wanted).into_iter().collect();
        self.people.clear();
        self.next_page(viewer)
    }

    fn load(&mut self, _: &mut Core, viewer: &Arc<str>, found: Found) -> PageLoad {
        let Found::People(people) = found else { return PageLoad::Unusable };
        if people.is_empty() {
            return PageLoad::Unusable;
        }
        self.people.extend(people);
        self.next_page(viewer).map_or(PageLoad::Complete, PageLoad::More)
    }

    fn install(&mut self, _: &mut Core, _: &Arc<str>) {
        let times = self.asked.drain(..).map(|(_, times)| times);
        self.found = self.people.drain(..).zip(times).collect();
    }

    fn is_used(&self, _: &Core, _: &Arc<str>) -> bool {
        !self.asked.is_empty() || !self.wanted.is_empty()
    }
}
