//! One change of one user's presence: read, decide, commit; again on a conflict.

use super::{ChannelNews, Claim, Outcome};
use crate::listener::ListenerId;
use crate::registry::shards_of;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Attendance, Change, Home, Input, News};
use tavern_engine::limits::RETRY_AFTER_MS;
use tavern_engine::{
    Answer, Commit, Deadline, Expect, Found, Presence, PresenceKey, Raise, Read, Row, RowKey, StoreError,
    Ticket, Versioned, Work, Writer,
};
use tavern_wire::error::{Code, Refusal};

/// Conflicts in a row after which a command gives up: as many writers would have to be at one user.
const TRIES: u8 = 32;
/// The kind of deadline under which graces are kept.
const GRACE: &str = "grace";

/// What happens to whom, and who waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub key: PresenceKey,
    pub name: Option<Arc<str>>,
    pub anonymous: bool,
    /// None: time has passed.
    pub input: Option<Input>,
    /// Whose it is, while that one is here.
    pub listener: Option<ListenerId>,
    pub claim: Option<Claim>,
    pub tries: u8,
    /// Whether it has happened is not known: this only finds out.
    pub doubted: bool,
}

pub(super) enum Task {
    Read(Step),
    Commit {
        step: Step,
        at: Time,
        changes: Vec<Change>,
        due: Option<Time>,
    },
    Roster {
        channel: Arc<str>,
    },
    /// Whether a watched channel is where the store says.
    Look {
        channel: Arc<str>,
    },
    /// Nobody waits for it and nothing depends on it.
    Tidy,
    Who {
        claim: Claim,
        counts_only: bool,
    },
}

impl Shard {
    /// Runs a step. Somebody who arrives is taken to be absent, which is usually so and spares the reading.
    pub(super) fn run_step(&mut self, now: Time, step: Step) {
        if matches!(step.input, Some(Input::Join { .. })) && !step.doubted {
            self.decide(now, step, None);
        } else {
            self.read_step(step);
        }
    }

    fn read_step(&mut self, step: Step) {
        let work = Work::Read(Read::Presence(step.key.clone()));
        self.submit(Task::Read(step), work);
    }

    pub(super) fn submit(&mut self, task: Task, work: Work) {
        let ticket = self.presences.ticket();
        self.presences.under_way.insert(ticket, task);
        self.effects.work.push((ticket, work));
    }

    /// The store has answered.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        let Some(task) = self.presences.under_way.remove(&ticket) else { return };
        match (task, answer) {
            (Task::Read(step), Answer::Read(Found::Presence(found))) => self.decide(now, step, found),
            (Task::Commit { step, at, changes, due }, Answer::Committed(receipt)) => {
                let to = receipt.raised.first().copied().unwrap_or(0);
                let begins = receipt.begun.first().copied().unwrap_or(false);
                if let Some(due) = due {
                    self.presences.deadlines.insert((due, step.key.clone()));
                }
                self.committed(now, step, at, changes, (to, begins));
            }
            (Task::Commit { mut step, .. }, Answer::Failed(StoreError::Conflict { .. }))
                if step.tries < TRIES =>
            {
                step.tries += 1;
                self.read_step(step);
            }
            (Task::Tidy, _) => {}
            (Task::Look { channel }, Answer::Read(Found::Roster(roster))) => {
                self.compare(&channel, &roster);
            }
            // Looked at again with the next heartbeat.
            (Task::Look { .. }, _) => {}
            (Task::Roster { channel }, answer) => self.roster_read(now, channel, answer),
            (Task::Who { claim, counts_only }, answer) => {
                let outcome = self.who_read(counts_only, answer);
                self.finish(claim, outcome);
            }
            (Task::Read(step), answer) => self.step_failed(now, step, false, &answer),
            (Task::Commit { step, .. }, answer) => self.step_failed(now, step, true, &answer),
        }
    }

    fn decide(&mut self, now: Time, mut step: Step, found: Option<Versioned<Presence>>) {
        if !self.freshen(&mut step) {
            return self.step_is_over(now, &step);
        }
        if step.doubted {
            return self.find_out(now, step, found.as_ref());
        }
        self.insist(&mut step, found.as_ref());
        let version = found.as_ref().map_or(0, |found| found.version);
        if let Some(found) = found.as_ref().filter(|_| step.listener.is_none()) {
            // Nobody is here to say who it is: it is who it was.
            (step.name, step.anonymous) = (found.row.name.clone(), found.row.anonymous);
        }
        let before = found.map(|found| found.row.attendance).unwrap_or_default();
        let mut attendance = before.clone();
        let mut changes = Vec::new();
        // Asked once: the vigil may begin a new life at any moment, and who vouches must be who writes.
        let home = self.home();
        match step.input.clone() {
            // Whoever joins here is vouched for by the present life of this node, however long ago it began to join.
            Some(Input::Join { client, state, .. }) => {
                let home = home.clone();
                attendance.handle(now, Input::Join { client, home, state }, &mut changes);
            }
            Some(input) => attendance.handle(now, input, &mut changes),
            None => attendance.wake(now, &mut changes),
        }
        if changes.contains(&Change::NotFound) {
            // A grace that is over by now ends by its own deadline.
            let refusal =
                Refusal::new(Code::NotFound, "this client is not present in the channel; join it first");
            return self.end_step(now, &step, Err(refusal));
        }
        if step.input.is_none() && before.next_wake().is_none() {
            self.forget_deadline(&step.key, version);
        }
        if attendance == before {
            self.note_step(now, &step);
            return self.end_step(now, &step, Ok(Vec::new()));
        }
        let due = attendance.next_wake();
        let commit = self.commit_of(&step, home, version, &before, attendance, &changes);
        self.submit(Task::Commit { step, at: now, changes, due }, Work::Commit(commit));
    }

    /// A deadline that means nothing any more must not be looked at for ever.
    fn forget_deadline(&mut self, key: &PresenceKey, version: u64) {
        let deadline = RowKey::Deadline { kind: GRACE.into(), name: key.to_string().into() };
        let writer = Some(Writer { node: self.node.name.clone(), epoch: self.node.epoch() });
        // Unless somebody was lost meanwhile: then it means something again.
        let expects = vec![Expect { key: RowKey::Presence(key.clone()), version }];
        let commit = Commit { writer, expects, deletes: vec![deadline], ..Commit::default() };
        self.submit(Task::Tidy, Work::Commit(commit));
    }

    fn commit_of(
        &self,
        step: &Step,
        home: Home,
        version: u64,
        before: &Attendance,
        attendance: Attendance,
        changes: &[Change],
    ) -> Commit {
        let key = RowKey::Presence(step.key.clone());
        let deadline = step.key.to_string();
        let mut commit = Commit {
            writer: Some(Writer { node: home.node, epoch: home.epoch }),
            expects: vec![Expect { key: key.clone(), version }],
            raises: vec![Raise { channel: step.key.channel.clone(), by: changes.len() as u32 }],
            ..Commit::default()
        };
        match attendance.next_wake() {
            Some(due) => commit.deadlines.push(Deadline::new(due, GRACE, &deadline)),
            None if before.next_wake().is_some() => {
                commit.deletes.push(RowKey::Deadline { kind: GRACE.into(), name: deadline.into() });
            }
            None => {}
        }
        if attendance.is_present() {
            let (name, anonymous) = (step.name.clone(), step.anonymous);
            commit.puts.push(Row::Presence(Presence { key: step.key.clone(), anonymous, name, attendance }));
        } else {
            commit.deletes.push(key);
        }
        commit
    }

    /// It is so: whoever waits is told, then everybody who watches.
    fn committed(
        &mut self,
        now: Time,
        step: Step,
        at: Time,
        changes: Vec<Change>,
        (to, begins): (u64, bool),
    ) {
        self.note_step(now, &step);
        self.end_step(now, &step, Ok(Vec::new()));
        if changes.is_empty() {
            return;
        }
        self.stats.presences_swept.add(u64::from(matches!(step.input, Some(Input::Sweep { .. }))));
        let Step { key, name, anonymous, .. } = step;
        let news = Arc::new(News { user: key.user, name, anonymous, at, changes, to, begins });
        let told = ChannelNews { channel: key.channel, news };
        self.effects.abroad.extend(self.node.news_parcel(&told));
        self.spread(&told);
        self.hear_news(now, &told);
    }

    /// Other shards of this node watch the channel too.
    fn spread(&mut self, told: &ChannelNews) {
        let entry = self.node.registry.find(crate::event::Space::Presence, told.channel.as_bytes());
        let mask = entry.map_or(0, |entry| entry.mask()) & !(1u64 << self.index);
        self.effects.news.extend(shards_of(mask).map(|shard| (shard, told.clone())));
    }

    fn end_step(&mut self, now: Time, step: &Step, outcome: Outcome) {
        if let Some(claim) = step.claim {
            self.finish(claim, outcome);
        }
        self.step_is_over(now, step);
    }

    /// A command has its answer: it runs again and finds it.
    pub(super) fn finish(&mut self, claim: Claim, outcome: Outcome) {
        if self.presences.keep(claim, outcome) {
            self.effects.ready.push(claim.link);
        }
    }
}

pub(super) fn refusal(answer: &Answer) -> Refusal {
    match answer {
        Answer::Failed(StoreError::TooLarge { .. }) => {
            Refusal::new(Code::TooLarge, "the store takes no more of this")
        }
        Answer::Failed(StoreError::Conflict { .. }) => {
            Refusal::new(Code::Conflict, "too many changes at once").retry_after(RETRY_AFTER_MS)
        }
        _ => Refusal::new(Code::Unavailable, "the store does not answer").retry_after(RETRY_AFTER_MS),
    }
}

/// The presence that a grace's deadline is about.
pub(crate) fn grace_of(deadline: &Deadline) -> Option<PresenceKey> {
    if &*deadline.kind != GRACE {
        return None;
    }
    let (length, rest) = deadline.name.split_once(':')?;
    let length: usize = length.parse().ok()?;
    let (channel, user) = (rest.get(..length)?, rest.get(length..)?.strip_prefix('/')?);
    Some(PresenceKey::new(channel, user))
}
