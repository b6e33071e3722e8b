//! Parties on one shard: commands of its sessions and orders of apps, each carried out as one case (`case.rs`): read what the
//! rules need, decide, commit with the versions that were read, and on a conflict all of it again. Any node serves any
//! command. The rules are in `tavern-domain`. What a user's sessions know of his party is in `view.rs`.
//! Must hold: one command, at most one commit; letters are in it; whoever is told is told after it.

mod case;
mod command;
mod flood;
mod forget;
mod ids;
mod view;

use case::Case;
use ids::Ids;
use view::Glance;

use crate::connection::LinkId;
use crate::core::{Core, Feature};
use crate::rows::{FORGET, GUEST};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{Command, Need};
use tavern_engine::{Answer, Deadline, Ticket, Work};

/// What was asked of the store about parties.
pub(crate) enum Task {
    /// A part of what a case needs.
    Load {
        case: u64,
        need: Need,
    },
    Commit {
        case: u64,
        commit: Box<case::Written>,
    },
    Ids(Ids),
    Forget(Deadline),
    Glance(Glance),
}

#[derive(Default)]
pub(crate) struct Parties {
    under_way: HashMap<Ticket, Task, RandomState>,
    cases: BTreeMap<u64, Box<Case>>,
    opened: u64,
    ids: ids::Reserve,
    /// Deadlines of parties that this shard wrote down; it looks after them first.
    wakes: BTreeSet<(Time, u64)>,
    /// Cases that look again in a moment.
    later: Vec<(Time, u64)>,
    floods: flood::Floods,
    views: view::Views,
}

impl Parties {
    pub fn next_wake(&self) -> Option<Time> {
        let wake = self.wakes.first().map(|(due, _)| *due);
        let later = self.later.iter().map(|(due, _)| *due).min();
        [wake, later, self.views.next_wake()].into_iter().flatten().min()
    }

    pub fn forget_link(&mut self, link: LinkId) {
        self.views.forget_link(link);
    }
}

impl Parties {
    pub(crate) fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: Answer) {
        let Some(task) = self.under_way.remove(&ticket) else { return };
        match task {
            Task::Load { case, need } => self.case_loaded(core, case, need, answer),
            Task::Commit { case, commit } => self.case_committed(core, case, &commit, answer),
            Task::Forget(deadline) => forget::forget(core, &deadline, answer),
            Task::Ids(ids) => self.ids_answered(core, ids, answer),
            Task::Glance(glance) => self.glanced(core, glance, answer),
        }
    }

    pub(crate) fn settle(&mut self, core: &mut Core) {
        let now = core.now;
        while let Some((due, party)) = self.wakes.first().copied()
            && due <= now
        {
            self.wakes.remove(&(due, party));
            self.open_case(core, Case::of_server(Command::Wake { party }));
        }
        if self.later.iter().any(|(due, _)| *due <= now) {
            for (due, case) in std::mem::take(&mut self.later) {
                match due <= now {
                    true => self.run_anew(core, case),
                    false => self.later.push((due, case)),
                }
            }
        }
        self.settle_views(core);
    }

    /// A deadline that somebody wrote down and nobody settled.
    pub(crate) fn is_due(&mut self, core: &mut Core, deadline: &Deadline) {
        let command = match &*deadline.kind {
            FORGET => return self.read_forgotten(core, deadline),
            GUEST => Command::Check { user: deadline.name.clone() },
            _ => match deadline.name.parse() {
                Ok(party) => Command::Wake { party },
                Err(_) => return,
            },
        };
        self.open_case(core, Case::of_server(command).settling(deadline.key(), Some(deadline.due)));
    }

    fn ask_store(&mut self, core: &mut Core, task: Task, work: Work) {
        self.under_way.insert(core.submit(Feature::Party, work), task);
    }

    /// A user connected, or connected again: their party looks at them.
    pub(crate) fn user_connected(&mut self, core: &mut Core, user: &Arc<str>) {
        if self.party_of(user).is_some() {
            self.look_at_guest(core, user, false);
        }
    }

    /// A user's presence changed: their party looks at them. `recorded`: the deadline that asked for it goes with it.
    pub(crate) fn look_at_guest(&mut self, core: &mut Core, user: &Arc<str>, recorded: bool) {
        let now = core.now;
        let check = Case::of_server(Command::Check { user: user.clone() });
        // The deadline goes with the user's presence, which the transaction expects: whatever else sets it changes that.
        let key = Deadline::new(now, GUEST, user).key();
        self.open_case(core, if recorded { check.settling(key, None) } else { check });
    }
}
