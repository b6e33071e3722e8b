//! One change of one user's presence: read, decide, commit; again on a conflict.

use super::hold::{self};
use super::task::{Act, Step, Task};
use super::{ChannelNews, Claim, Outcome};
use crate::listener::ListenerId;
use crate::party::{Minded, concerns_parties};
use crate::people::is_own_channel;
use crate::registry::shards_of;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Attendance, Change, Departure, Fact, Home, Input, News, Rumour, Stay};
use tavern_engine::limits::RETRY_AFTER_MS;
use tavern_engine::{
    Answer, Commit, Deadline, Expect, Found, Presence, PresenceKey, Raise, Read, Receipt, Row, RowKey, Seen,
    StoreError, Ticket, Versioned, Work, Writer,
};
use tavern_wire::error::{Code, Refusal};

/// Conflicts in a row after which a command gives up: as many writers would have to be at one user.
const TRIES: u8 = 32;
/// The kind of deadline under which graces are kept.
const GRACE: &str = "grace";

impl Shard {
    /// Begins a step when its turn has come.
    pub(crate) fn begin_step(&mut self, now: Time, step: Step) {
        if let Some(step) = self.presences.lines.enter(step) {
            self.start_step(now, step);
            self.start_next(now);
        }
    }

    /// Somebody who arrives is taken to be absent, which is usually so and spares the reading.
    pub(super) fn start_step(&mut self, now: Time, step: Step) {
        if matches!(step.act, Act::Input(Input::Join { .. })) && !step.again && !step.doubted {
            return self.decide(now, step, None);
        }
        match self.known(&step) {
            Some(known) => self.decide(now, step, Some(known)),
            None => self.read_step(step),
        }
    }

    /// Starts the steps whose turn has come. One that ends at once brings on the next, here and not inside itself.
    pub(super) fn start_next(&mut self, now: Time) {
        if std::mem::replace(&mut self.presences.lines.starting, true) {
            return;
        }
        while let Some(step) = self.presences.lines.next() {
            self.start_step(now, step);
        }
        self.presences.lines.starting = false;
    }

    fn read_step(&mut self, step: Step) {
        if matches!(step.act, Act::Ride { .. }) {
            return self.read_ride(step);
        }
        let work = Work::Read(Read::Presence(step.key.clone()));
        self.submit(Task::Read(step), work);
    }

    pub(crate) fn submit(&mut self, task: Task, work: Work) {
        let ticket = self.presences.ticket();
        self.presences.add(ticket, task);
        self.effects.work.push((ticket, work));
    }

    /// The store has answered.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        let Some(task) = self.presences.take(ticket) else {
            return self.errand_answered(now, ticket, answer);
        };
        self.carry_on(now, task, answer);
        self.start_next(now);
    }

    fn carry_on(&mut self, now: Time, task: Task, answer: Answer) {
        match (task, answer) {
            (Task::Read(step), Answer::Read(Found::Presence(found))) => self.decide(now, step, found),
            (Task::Commit { step, at, changes, due, stay, alone }, Answer::Committed(receipt)) => {
                if let Some(due) = due {
                    self.presences.deadlines.insert((due, step.key.clone()));
                }
                let version = receipt.put.first().copied();
                self.note_step(now, &step);
                self.note_alone(&step, version.zip(alone));
                self.committed(now, step, at, changes, stay, &receipt);
            }
            (Task::People(task), answer) => self.people_answered(now, task, answer),
            (Task::Inbox(task), answer) => self.inbox_answered(now, task, answer),
            (Task::Party(task), answer) => self.party_answered(now, task, answer),
            (Task::Minded(mut step, found), answer) => match Shard::minded(&answer) {
                Some(minded) => {
                    step.minded = Some(minded);
                    self.decide(now, step, found);
                }
                None => self.step_failed(now, step, false, &answer),
            },
            (Task::Holding(holding), answer) => self.hold_answered(now, holding, answer),
            (Task::Ride(step, hold), answer) => {
                if let Some((step, answer)) = self.ride_read(now, step, hold, answer) {
                    self.step_failed(now, step, false, &answer);
                }
            }
            (Task::Commit { mut step, .. }, Answer::Failed(StoreError::Conflict { .. }))
                if step.tries < TRIES =>
            {
                (step.tries, step.minded) = (step.tries + 1, None);
                self.read_step(step);
            }
            (Task::Astray { astray, tries, swept }, answer) => {
                self.astray_answered(now, astray, tries, swept, answer);
            }
            (Task::Tidy, _) => {}
            (Task::Look { channel }, Answer::Read(Found::Roster(roster))) => {
                self.compare(&channel, &roster);
            }
            // Looked at again with the next heartbeat.
            (Task::Look { .. }, _) => {}
            (Task::Roster { channel }, answer) => self.roster_read(now, channel, answer),
            (Task::Who { claim, counts_only, viewer }, answer) => {
                let outcome = self.who_read(counts_only, viewer.as_deref(), answer);
                self.finish(claim, outcome);
            }
            (Task::Read(step), answer) => self.step_failed(now, step, false, &answer),
            (Task::Commit { step, .. }, answer) => self.step_failed(now, step, true, &answer),
        }
    }

    fn decide(&mut self, now: Time, mut step: Step, found: Option<Versioned<Presence>>) {
        if step.doubted {
            return self.find_out(now, step, found.as_ref());
        }
        let joins = matches!(step.act, Act::Input(Input::Join { .. }));
        if joins && step.listener.is_some_and(|id| !self.is_settled(id)) {
            // It has ended or moves: joining for it now would take it from whoever vouches for it.
            let refusal = Refusal::new(Code::Gone, "the session has ended; say hello again");
            return self.end_step(&step, Err(refusal));
        }
        if !self.freshen(&mut step) {
            return self.presences.lines.leave(&step.key);
        }
        self.insist(&mut step, found.as_ref());
        let version = found.as_ref().map_or(0, |found| found.version);
        let read = found.clone().filter(|_| is_own(&step));
        if let Some(found) = found.as_ref().filter(|_| step.listener.is_none()) {
            // Nobody is here to say who it is: it is who it was.
            (step.name, step.anonymous) = (found.row.name.clone(), found.row.anonymous);
        }
        let shown = found.as_ref().map(|found| found.row.visibility);
        step.visibility = step.visibility.or(shown);
        let before = found.map(|found| found.row.attendance).unwrap_or_default();
        let mut attendance = before.clone();
        let mut changes = Vec::new();
        // Asked once: the vigil may begin a new life at any moment, and who vouches must be who writes.
        let home = self.home();
        match step.act.clone() {
            // Whoever joins here is vouched for by the present life of this node, however long ago it began to join.
            Act::Input(Input::Join { client, state, .. }) => {
                let home = home.clone();
                attendance.handle(now, Input::Join { client, home, state }, &mut changes);
            }
            Act::Input(input) => attendance.handle(now, input, &mut changes),
            Act::Wake => attendance.wake(now, &mut changes),
            Act::Face(visibility) => step.visibility = Some(visibility),
            Act::Release => {
                attendance.handle(now, Input::Remove { reason: Departure::Removed }, &mut changes)
            }
            Act::Ride { .. } => unreachable!("a ride is decided by itself"),
        }
        if let Some((from, to)) = shown.zip(step.visibility)
            && from != to
            && attendance.is_present()
        {
            changes.push(Change::Face { from, to });
        }
        if changes.contains(&Change::NotFound) {
            // A grace that is over by now ends by its own deadline.
            let refusal =
                Refusal::new(Code::NotFound, "this client is not present in the channel; join it first");
            return self.end_step(&step, Err(refusal));
        }
        if matches!(step.act, Act::Wake) && before.next_wake().is_none() {
            self.forget_deadline(&step.key, version);
        }
        if attendance == before && changes.is_empty() {
            if matches!(step.act, Act::Release) {
                self.forget_hold(&step.key);
            }
            self.note_step(now, &step);
            return self.end_step(&step, Ok(Vec::new()));
        }
        if step.minded.is_none() && concerns_parties(&step, &before, &attendance, &changes) {
            match self.find_minded(step, read) {
                Some(found) => step = found,
                None => return,
            }
        }
        let mut commit = self.commit_of(&step, home, version, &before, attendance.clone(), &changes);
        self.mind(now, &step, &changes, &mut commit);
        if matches!(step.act, Act::Release) {
            hold::let_go(&mut commit, &step.key);
        }
        self.submit_commit(now, step, &attendance, changes, commit);
    }

    pub(super) fn submit_commit(
        &mut self,
        now: Time,
        step: Step,
        attendance: &Attendance,
        changes: Vec<Change>,
        commit: Commit,
    ) {
        let due = attendance.next_wake();
        let stay = Stay::of(attendance);
        let alone = step.listener.and(attendance.alone());
        self.submit(Task::Commit { step, at: now, changes, due, stay, alone }, Work::Commit(commit));
    }

    /// Whether a session is here and stays.
    fn is_settled(&self, id: ListenerId) -> bool {
        let session = self.listeners.get(id).and_then(|listener| listener.session());
        session.is_some_and(|session| !session.frozen)
    }

    /// A deadline that means nothing any more must not be looked at for ever.
    fn forget_deadline(&mut self, key: &PresenceKey, version: u64) {
        let deadline = RowKey::Deadline { kind: GRACE.into(), name: key.to_string().into() };
        // Unless somebody was lost meanwhile: then it means something again.
        let expects = vec![Expect { key: RowKey::Presence(key.clone()), version }];
        let writer = Some(self.writer());
        let commit = Commit { writer, expects, deletes: vec![deadline], ..Commit::default() };
        self.submit(Task::Tidy, Work::Commit(commit));
    }

    pub(super) fn commit_of(
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
            let (name, anonymous, visibility) =
                (step.name.clone(), step.anonymous, step.visibility.unwrap_or_default());
            let key = step.key.clone();
            commit.puts.push(Row::Presence(Presence { key, anonymous, name, visibility, attendance }));
        } else {
            commit.deletes.push(key);
        }
        if let Some(Change::UserOffline { last_seen, .. }) = changes.last()
            && is_own(step)
        {
            commit.seen.push(Seen { user: step.key.user.clone(), at: *last_seen });
        }
        commit.appends = self.transitions(step, changes);
        commit
    }

    /// It is so: whoever waits is told, then everybody who watches.
    fn committed(
        &mut self,
        now: Time,
        step: Step,
        at: Time,
        changes: Vec<Change>,
        stay: Option<Stay>,
        receipt: &Receipt,
    ) {
        self.end_step(&step, Ok(Vec::new()));
        self.tell_topic(receipt);
        let concerned = step.minded.as_ref().is_some_and(Minded::is_concerned);
        let user = step.key.user.clone();
        let back = is_own(&step) && self.party_of(&user).is_some() && is_arrival(&changes);
        self.tell_commit(now, step, at, changes, stay, receipt);
        if concerned || back {
            self.look_at_guest(now, &user, concerned);
        }
    }

    /// Everybody whom it concerns hears what became so: riders, followers, watchers here and elsewhere.
    pub(super) fn tell_commit(
        &mut self,
        now: Time,
        step: Step,
        at: Time,
        changes: Vec<Change>,
        stay: Option<Stay>,
        receipt: &Receipt,
    ) {
        self.move_riders(now, &step, &changes, receipt);
        if changes.is_empty() {
            return;
        }
        let to = receipt.raised.first().copied().unwrap_or(0);
        let begins = receipt.begun.first().copied().unwrap_or(false);
        if !step.anonymous && concerns_followers(&step, &changes) {
            // Who is gone was deleted; what else was put is not his presence.
            let version = if stay.is_some() { receipt.put.first() } else { receipt.deleted.last() };
            let version = version.copied().unwrap_or(0);
            self.tell_place(now, &step, version, stay, &changes);
        }
        let Step { key, name, anonymous, .. } = step;
        let visibility = step.visibility.unwrap_or_default();
        let news = Arc::new(News { user: key.user, name, anonymous, visibility, at, changes, to, begins });
        let told = ChannelNews { channel: key.channel, news };
        self.effects.abroad.extend(self.node.news_parcel(&told));
        self.spread(&told);
        self.hear_news(now, &told);
    }

    /// Where somebody is has changed: his followers hear of it, and an app's kick reaches his sessions.
    fn tell_place(&mut self, now: Time, step: &Step, version: u64, stay: Option<Stay>, changes: &[Change]) {
        let last_seen = changes.iter().find_map(|change| match change {
            Change::UserOffline { last_seen, .. } => Some(*last_seen),
            _ => None,
        });
        let (channel, name) = (step.key.channel.clone(), step.name.clone());
        let fact = Fact::Place { channel: channel.clone(), version, stay, last_seen, name };
        self.spread_rumour(now, &step.key.user, Rumour::Fact(fact));
        let kicked =
            |change: &Change| matches!(change, Change::ClientOffline { reason: Departure::Removed, .. });
        if changes.iter().any(kicked) {
            self.spread_rumour(now, &step.key.user, Rumour::Removed { channel });
        }
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer { node: self.node.name.clone(), epoch: self.node.epoch() }
    }

    /// Other shards of this node watch the channel too.
    fn spread(&mut self, told: &ChannelNews) {
        let entry = self.node.registry.find(crate::event::Space::Presence, told.channel.as_bytes());
        let mask = entry.map_or(0, |entry| entry.mask()) & !(1u64 << self.index);
        self.effects.news.extend(shards_of(mask).map(|shard| (shard, told.clone())));
    }

    pub(super) fn end_step(&mut self, step: &Step, outcome: Outcome) {
        self.presences.lines.leave(&step.key);
        if let Some(claim) = step.claim {
            self.finish(claim, outcome);
        }
    }

    /// A command has its answer: it runs again and finds it.
    pub(crate) fn finish(&mut self, claim: Claim, outcome: Outcome) {
        match claim {
            Claim::Order(number) => self.effects.orders.push((number, outcome)),
            Claim::Link { link, number } => {
                if self.presences.keep(link, number, outcome) {
                    self.effects.ready.push(link);
                }
            }
        }
    }
}

pub(crate) fn refusal(answer: &Answer) -> Refusal {
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

/// It is about somebody's own channel, which says whether he is there at all.
pub(super) fn is_own(step: &Step) -> bool {
    !step.anonymous && is_own_channel(&step.key.channel)
}

/// Somebody of his is connected.
fn is_arrival(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::UserOnline | Change::ClientOnline { .. }))
}

/// Whether a user's status may be another now.
fn concerns_followers(step: &Step, changes: &[Change]) -> bool {
    changes.iter().any(|change| match change {
        Change::UserOnline | Change::UserOffline { .. } => true,
        Change::ClientOnline { .. } => is_own(step),
        Change::ClientOffline { reason, .. } => is_own(step) || *reason == Departure::Removed,
        Change::ClientUpdated { .. } | Change::Face { .. } | Change::NotFound => false,
    })
}

/// The presence that a deadline is about.
pub(crate) fn key_of(deadline: &Deadline) -> Option<PresenceKey> {
    if &*deadline.kind != GRACE && !hold::is_hold(deadline) {
        return None;
    }
    let (length, rest) = deadline.name.split_once(':')?;
    let length: usize = length.parse().ok()?;
    let (channel, user) = (rest.get(..length)?, rest.get(length..)?.strip_prefix('/')?);
    Some(PresenceKey::new(channel, user))
}
