//! Loads users and the users they follow; each load is retried until the store answers.

use crate::core::{Core, Feature, Timer};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_store::{Read, Ticket, Work};

#[derive(Clone, Debug)]
pub(super) enum UserLoad {
    /// The visibility of a local user.
    Local(Arc<str>),
    /// A page of the users whom a local user follows.
    Following { user: Arc<str>, after: Option<Arc<str>> },
    /// The statuses of followed users.
    Followees(Vec<Arc<str>>),
    /// The visibility of a user, after a change of it had an unknown outcome.
    Visibility(Arc<str>),
    /// Whether a user follows back the local user who began to follow them.
    FollowsBack { user: Arc<str>, followee: Arc<str> },
}

#[derive(Default)]
pub(super) struct UserLoads {
    running: HashMap<Ticket, UserLoad, RandomState>,
    /// Loads that the store did not answer, and when to retry them.
    retries: Vec<(Time, UserLoad)>,
}

impl UserLoads {
    pub fn begin(&mut self, core: &mut Core, load: UserLoad) {
        let read = match &load {
            UserLoad::Local(user) | UserLoad::Visibility(user) => {
                Read::People { users: vec![user.clone()], viewer: None }
            }
            UserLoad::Following { user, after } => {
                Read::Following { user: user.clone(), after: after.clone(), limit: PAGE_ROWS }
            }
            UserLoad::Followees(users) => Read::People { users: users.clone(), viewer: None },
            UserLoad::FollowsBack { user, followee } => {
                Read::People { users: vec![followee.clone()], viewer: Some(user.clone()) }
            }
        };
        self.running.insert(core.submit(Feature::People, Work::Read(read)), load);
    }

    /// The load that a ticket belongs to, if any.
    pub fn take(&mut self, ticket: Ticket) -> Option<UserLoad> {
        self.running.remove(&ticket)
    }

    /// Whether a load is in progress that finds out if a followee follows a user back.
    pub fn asks_follow_back(&self, follower: &str, of: &str) -> bool {
        let asks = |load: &UserLoad| match load {
            UserLoad::FollowsBack { user, followee } => **user == *follower && **followee == *of,
            _ => false,
        };
        self.running.values().chain(self.retries.iter().map(|(_, load)| load)).any(asks)
    }

    pub fn retry_later(&mut self, core: &mut Core, load: UserLoad) {
        let due = core.now + RETRY_AFTER_MS;
        self.retries.push((due, load));
        core.agenda.set(due, Timer::RetryPeople);
    }

    /// Starts the loads whose retry is due.
    pub fn retry(&mut self, core: &mut Core) {
        let retries = std::mem::take(&mut self.retries);
        let (due, later): (Vec<_>, Vec<_>) = retries.into_iter().partition(|(due, _)| *due <= core.now);
        self.retries = later;
        due.into_iter().for_each(|(_, load)| self.begin(core, load));
    }
}
