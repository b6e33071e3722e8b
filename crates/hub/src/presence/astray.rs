//! Presences that nobody will end, because no node that the store knows vouches for them. Removed user by user.
//! Must hold: one user is one commit, which looks again: all of him that is astray goes, or nothing; whoever is vouched
//! for by then stays.

use super::Presence;
use super::step::commit_of;
use super::task::{Act, Step, Task};
use super::transition::tell_topic;
use crate::core::Core;
use crate::rows::Astray;
use tavern_domain::presence::{Change, Input, Stay};
use tavern_engine::{Answer, Commit, Found, Person, Read, Receipt, RowKey, StoreError, Work};

/// Changes of mind in a row after which it is left to the next sweep.
const TRIES: u8 = 8;

/// One channel of a user who is being swept.
pub(crate) struct Swept {
    step: Step,
    changes: Vec<Change>,
    stay: Option<Stay>,
}

impl Presence {
    pub fn sweep_user(&mut self, core: &mut Core, astray: Astray) {
        self.read_astray(core, astray, 0);
    }

    fn read_astray(&mut self, core: &mut Core, astray: Astray, tries: u8) {
        let read = Read::People { users: vec![astray.user.clone()], viewer: None };
        self.submit(core, Task::Astray { astray, tries, swept: None }, Work::Read(read));
    }

    pub(super) fn astray_answered(
        &mut self,
        core: &mut Core,
        astray: Astray,
        tries: u8,
        swept: Option<(Vec<Swept>, Commit)>,
        answer: Answer,
    ) {
        match (answer, swept) {
            (Answer::Read(Found::People(people)), _) => {
                if let Some(person) = people.into_iter().next() {
                    self.decide_astray(core, astray, tries, &person);
                }
            }
            (Answer::Committed(receipt), Some((swept, commit))) => {
                self.tell_swept(core, swept, &commit, &receipt)
            }
            (Answer::Failed(StoreError::Conflict { .. }), _) if tries < TRIES => {
                self.read_astray(core, astray, tries + 1);
            }
            // What is astray is found again by the next sweep.
            _ => {}
        }
    }

    fn decide_astray(&mut self, core: &mut Core, astray: Astray, tries: u8, person: &Person) {
        let now = core.now;
        let mut swept = Vec::new();
        let mut whole = Commit { writer: Some(core.writer()), ..Commit::default() };
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
            let part = commit_of(core, &step, core.home(), row.version, before, attendance, &changes);
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
            self.submit(core, task, Work::Commit(whole));
        }
    }

    /// It is so: each channel hears its part of it.
    fn tell_swept(&mut self, core: &mut Core, swept: Vec<Swept>, commit: &Commit, receipt: &Receipt) {
        let now = core.now;
        tell_topic(core, receipt);
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
            core.stats.presences_swept.add(1);
            self.tell_commit(core, step, now, changes, stay, &part);
        }
    }
}
