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
    /// The statuses of followed users, and whether they follow back one who follows them.
    Followees { users: Vec<Arc<str>>, viewer: Option<Arc<str>> },
    /// The visibility of a user, after a change of it had an unknown outcome.
    Visibility(Arc<str>),
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
            UserLoad::Followees { users, viewer } => {
                Read::People { users: users.clone(), viewer: viewer.clone() }
            }
        };
        self.running.insert(core.submit(Feature::People, Work::Read(read)), load);
    }

    /// The load that a ticket belongs to, if any.
    pub fn take(&mut self, ticket: Ticket) -> Option<UserLoad> {
        self.running.remove(&ticket)
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
