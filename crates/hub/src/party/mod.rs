//! Parties on one shard: commands of its sessions and orders of apps, each carried out as one case (`case.rs`): read what the
//! rules need, decide, commit with the versions that were read, and on a conflict all of it again. Any node serves any
//! command. The rules are in `tavern-domain`. What a user's sessions know of his party is in `view.rs`.
//! Must hold: one command, at most one commit; letters are in it; whoever is told is told after it.

mod case;
mod command;
mod flood;
mod forget;
mod ids;
mod mind;
mod view;

pub(crate) use case::Case;
pub(crate) use ids::Ids;
pub(crate) use mind::{Minded, concerns_parties};
pub(crate) use view::Glance;

use crate::listener::LinkId;
use crate::shard::Shard;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::party::{Command, Need, Rules};
use tavern_engine::{Answer, Deadline};

/// The kinds of deadlines: of a party by its number, of a user whose party must look at him.
pub(crate) const PARTY: &str = "party";
pub(crate) const GUEST: &str = "guest";
/// When what is kept of a user is over.
pub(crate) const FORGET: &str = "forget";

/// The channel of a party: its members are present there and hear it.
pub(crate) fn channel_of(party: u64) -> Arc<str> {
    format!("{PARTY}#{party}").into()
}

/// What the configuration says about parties.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartyRules {
    pub rules: Rules,
    /// How long somebody who floods is shut out.
    pub block_ms: u64,
}

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
pub struct Parties {
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

impl Shard {
    pub(crate) fn party_answered(&mut self, now: Time, task: Task, answer: Answer) {
        match task {
            Task::Load { case, need } => self.case_loaded(now, case, need, answer),
            Task::Commit { case, commit } => self.case_committed(now, case, &commit, answer),
            Task::Forget(deadline) => self.forget(now, &deadline, answer),
            Task::Ids(ids) => self.ids_answered(now, ids, answer),
            Task::Glance(glance) => self.glanced(now, glance, answer),
        }
    }

    pub(crate) fn settle_parties(&mut self, now: Time) {
        while let Some((due, party)) = self.parties.wakes.first().copied()
            && due <= now
        {
            self.parties.wakes.remove(&(due, party));
            self.open_case(now, Case::of_server(Command::Wake { party }));
        }
        if self.parties.later.iter().any(|(due, _)| *due <= now) {
            for (due, case) in std::mem::take(&mut self.parties.later) {
                match due <= now {
                    true => self.run_anew(now, case),
                    false => self.parties.later.push((due, case)),
                }
            }
        }
        self.settle_views(now);
    }

    /// A deadline that somebody wrote down and nobody settled.
    pub(crate) fn party_is_due(&mut self, now: Time, deadline: &Deadline) {
        let command = match &*deadline.kind {
            FORGET => return self.read_forgotten(deadline),
            GUEST => Command::Check { user: deadline.name.clone() },
            _ => match deadline.name.parse() {
                Ok(party) => Command::Wake { party },
                Err(_) => return,
            },
        };
        self.open_case(now, Case::of_server(command).settling(deadline.key(), Some(deadline.due)));
    }
}
