//! Presences that nobody will end, because no node that the store knows vouches for them. Removed user by user.
//! Must hold: one user is one commit, which looks again: all of him that is astray goes, or nothing; whoever is vouched
//! for by then stays.

use super::task::{Act, Step, Task};
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Change, Home, Input, Stay};
use tavern_engine::{Answer, Commit, Found, Person, Read, Receipt, RowKey, StoreError, Work};

/// Changes of mind in a row after which it is left to the next sweep.
const TRIES: u8 = 8;

/// A user of whom something is astray, and the lives of nodes that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Astray {
    pub user: Arc<str>,
    pub homes: Vec<Home>,
}

/// One channel of a user who is being swept.
pub(crate) struct Swept {
    step: Step,
    changes: Vec<Change>,
    stay: Option<Stay>,
}

impl Shard {
    pub fn sweep_user(&mut self, astray: Astray) {
        self.read_astray(astray, 0);
    }

    fn read_astray(&mut self, astray: Astray, tries: u8) {
        let read = Read::People { users: vec![astray.user.clone()], viewer: None };
        self.submit(Task::Astray { astray, tries, swept: None }, Work::Read(read));
    }

    pub(super) fn astray_answered(
        &mut self,
        now: Time,
        astray: Astray,
        tries: u8,
        swept: Option<(Vec<Swept>, Commit)>,
        answer: Answer,
    ) {
        match (answer, swept) {
            (Answer::Read(Found::People(people)), _) => {
                if let Some(person) = people.into_iter().next() {
                    self.decide_astray(now, astray, tries, &person);
                }
            }
            (Answer::Committed(receipt), Some((swept, commit))) => {
                self.tell_swept(now, swept, &commit, &receipt)
            }
            (Answer::Failed(StoreError::Conflict { .. }), _) if tries < TRIES => {
                self.read_astray(astray, tries + 1);
            }
            // What is astray is found again by the next sweep.
            _ => {}
        }
    }

    fn decide_astray(&mut self, now: Time, astray: Astray, tries: u8, person: &Person) {
        let mut swept = Vec::new();
        let mut whole = Commit { writer: Some(self.writer()), ..Commit::default() };
        for row in &person.presences {
            let before = &row.row.attendance;
            let mut attendance = before.clone();
            let mut changes = Vec::new();
            let input = Input::Sweep { homes: astray.homes.clone() };
            attendance.handle(now, input.clone(), &mut changes);
            if attendance == *before {
                continue;
            }
            let step = Step {
                name: row.row.name.clone(),
                anonymous: row.row.anonymous,
                visibility: Some(row.row.visibility),
                ..Step::of(row.row.key.clone(), Act::Input(input))
            };
            let stay = Stay::of(&attendance);
            let part = self.commit_of(&step, self.home(), row.version, before, attendance, &changes);
            whole.expects.extend(part.expects);
            whole.deletes.extend(part.deletes);
            whole.puts.extend(part.puts);
            whole.raises.extend(part.raises);
            whole.deadlines.extend(part.deadlines);
            whole.seen.extend(part.seen);
            whole.appends.extend(part.appends);
            swept.push(Swept { step, changes, stay });
        }
        if !swept.is_empty() {
            let task = Task::Astray { astray, tries, swept: Some((swept, whole.clone())) };
            self.submit(task, Work::Commit(whole));
        }
    }

    /// It is so: each channel hears its part of it.
    fn tell_swept(&mut self, now: Time, swept: Vec<Swept>, commit: &Commit, receipt: &Receipt) {
        self.tell_topic(receipt);
        for (at, Swept { step, changes, stay }) in swept.into_iter().enumerate() {
            let key = RowKey::Presence(step.key.clone());
            let put = commit.puts.iter().position(|row| row.key() == key).map(|at| receipt.put[at]);
            let deleted = commit.deletes.iter().position(|row| *row == key).map(|at| receipt.deleted[at]);
            let part = Receipt {
                put: put.into_iter().collect(),
                deleted: deleted.into_iter().collect(),
                raised: receipt.raised[at..=at].to_vec(),
                begun: receipt.begun[at..=at].to_vec(),
                held: receipt.held.iter().filter(|held| held.carrier == step.key).cloned().collect(),
                ..Receipt::default()
            };
            self.stats.presences_swept.add(1);
            self.tell_commit(now, step, now, changes, stay, &part);
        }
    }
}
