//! One change of one user's presence: read, decide, commit; again on a conflict.

use super::Presence;
use super::doubt::{freshen, insist};
use super::task::{Act, Step, Task};
use super::transition::{tell_topic, transitions};
use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Notice, Reply, Timer};
use crate::event::Space;
use crate::node::ChannelNews;
use crate::node::registry::shards_of;
use crate::rows::{GRACE, Membership, remove_hold};
use crate::user::is_own_channel;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Attendance, Change, Departure, Fact, Home, Input, News, Rumour, Stay};
use tavern_engine::{
    Answer, Commit, Deadline, Expect, Found, Presence as PresenceRow, PresenceKey, Raise, Read, Receipt, Row,
    RowKey, Seen, StoreError, Ticket, Versioned, Work, Writer,
};
use tavern_wire::error::{Code, Refusal};

/// Conflicts in a row after which a command gives up: as many writers would have to be at one user.
const TRIES: u8 = 32;

impl Presence {
    /// Begins a step when its turn has come.
    pub(crate) fn begin_step(&mut self, core: &mut Core, step: Step) {
        if let Some(step) = self.lines.enter(step) {
            self.start_step(core, step);
            self.start_next(core);
        }
    }

    /// Somebody who arrives is taken to be absent, which is usually so and spares the reading.
    pub(super) fn start_step(&mut self, core: &mut Core, step: Step) {
        if matches!(step.act, Act::Input(Input::Join { .. })) && !step.again && !step.doubted {
            return self.decide(core, step, None);
        }
        match self.known(core, &step) {
            Some(known) => self.decide(core, step, Some(known)),
            None => self.read_step(core, step),
        }
    }

    /// Starts the steps whose turn has come. One that ends at once brings on the next, here and not inside itself.
    pub(super) fn start_next(&mut self, core: &mut Core) {
        if std::mem::replace(&mut self.lines.starting, true) {
            return;
        }
        while let Some(step) = self.lines.next() {
            self.start_step(core, step);
        }
        self.lines.starting = false;
    }

    fn read_step(&mut self, core: &mut Core, step: Step) {
        if matches!(step.act, Act::Ride { .. }) {
            return self.read_ride(core, step);
        }
        let work = Work::Read(Read::Presence(step.key.clone()));
        self.submit(core, Task::Read(step), work);
    }

    /// The store has answered.
    pub(crate) fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: Answer) {
        let Some(task) = self.take(ticket) else { return };
        self.carry_on(core, task, answer);
        self.start_next(core);
    }

    fn carry_on(&mut self, core: &mut Core, task: Task, answer: Answer) {
        match (task, answer) {
            (Task::Read(step), Answer::Read(Found::Presence(found))) => self.decide(core, step, found),
            (Task::Commit { step, at, changes, due, stay, alone }, Answer::Committed(receipt)) => {
                if let Some(due) = due {
                    core.agenda.set(due, Timer::GraceEnds(step.key.clone()));
                }
                let version = receipt.put.first().copied();
                self.note_step(core, &step);
                self.note_alone(core, &step, version.zip(alone));
                self.committed(core, step, at, changes, stay, &receipt);
            }
            (Task::Membership(mut step, found), Answer::Read(Found::Document(document))) => {
                let document =
                    document.map(|found| Versioned { version: found.version, row: found.row.body });
                step.membership = Some(Membership::read(document.as_ref()).unwrap_or_default());
                self.decide(core, step, found);
            }
            (Task::Membership(step, _), answer) => self.step_failed(core, step, false, &answer),
            (Task::Holding(holding), answer) => self.hold_answered(core, holding, answer),
            (Task::Ride(step, hold), answer) => {
                if let Some((step, answer)) = self.ride_read(core, step, hold, answer) {
                    self.step_failed(core, step, false, &answer);
                }
            }
            (Task::Commit { mut step, .. }, Answer::Failed(StoreError::Conflict { .. }))
                if step.tries < TRIES =>
            {
                (step.tries, step.membership) = (step.tries + 1, None);
                self.read_step(core, step);
            }
            (Task::Astray { astray, tries, swept }, answer) => {
                self.astray_answered(core, astray, tries, swept, answer);
            }
            (Task::Look { channel }, Answer::Read(Found::Roster(roster))) => {
                self.compare(core, &channel, &roster);
            }
            // Looked at again with the next heartbeat.
            (Task::Look { .. }, _) => {}
            (Task::Roster { channel }, answer) => self.roster_read(core, channel, answer),
            (Task::Who { claim, counts_only, viewer }, answer) => {
                let reply = self.who_read(core, counts_only, viewer.as_deref(), answer);
                core.finish(claim, reply);
            }
            (Task::Read(step), answer) => self.step_failed(core, step, false, &answer),
            (Task::Commit { step, .. }, answer) => self.step_failed(core, step, true, &answer),
        }
    }

    fn decide(&mut self, core: &mut Core, mut step: Step, found: Option<Versioned<PresenceRow>>) {
        let now = core.now;
        if step.doubted {
            return self.find_out(core, step, found.as_ref());
        }
        let joins = matches!(step.act, Act::Input(Input::Join { .. }));
        if joins && step.listener.is_some_and(|id| !is_settled(core, id)) {
            // It has ended or moves: joining for it now would take it from whoever vouches for it.
            let refusal = Refusal::new(Code::Gone, "the session has ended; say hello again");
            return self.end_step(core, &step, Err(refusal));
        }
        if !freshen(core, &mut step) {
            return self.lines.leave(&step.key);
        }
        insist(core, &mut step, found.as_ref());
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
        let home = core.home();
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
            return self.end_step(core, &step, Err(refusal));
        }
        if matches!(step.act, Act::Wake) && before.next_wake().is_none() {
            self.forget_deadline(core, &step.key, version);
        }
        if attendance == before && changes.is_empty() {
            if matches!(step.act, Act::Release) {
                self.forget_hold(core, &step.key);
            }
            self.note_step(core, &step);
            return self.end_step(core, &step, Ok(Vec::new()));
        }
        if step.membership.is_none() && concerns_parties(&step, &before, &attendance, &changes) {
            // What is cached may be stale: then the commit conflicts, and it is read.
            if step.tries == 0 {
                step.membership = step.hint.take();
            }
            if step.membership.is_none() {
                let work = Work::Read(Read::Document(Membership::key(&step.key.user)));
                return self.submit(core, Task::Membership(step, read), work);
            }
        }
        let mut commit = commit_of(core, &step, home, version, &before, attendance.clone(), &changes);
        if let Some(membership) = &step.membership {
            membership.note_departure(now, &step.key.user, said_bye(&changes), &mut commit);
        }
        if matches!(step.act, Act::Release) {
            remove_hold(&mut commit, &step.key);
        }
        self.submit_commit(core, step, &attendance, changes, commit);
    }

    pub(super) fn submit_commit(
        &mut self,
        core: &mut Core,
        step: Step,
        attendance: &Attendance,
        changes: Vec<Change>,
        commit: Commit,
    ) {
        let now = core.now;
        let due = attendance.next_wake();
        let stay = Stay::of(attendance);
        let alone = step.listener.and(attendance.alone());
        self.submit(core, Task::Commit { step, at: now, changes, due, stay, alone }, Work::Commit(commit));
    }

    /// A deadline that means nothing any more must not be looked at for ever.
    fn forget_deadline(&mut self, core: &mut Core, key: &PresenceKey, version: u64) {
        let deadline = RowKey::Deadline { kind: GRACE.into(), name: key.to_string().into() };
        // Unless somebody was lost meanwhile: then it means something again.
        let expects = vec![Expect { key: RowKey::Presence(key.clone()), version }];
        let writer = Some(core.writer());
        let commit = Commit { writer, expects, deletes: vec![deadline], ..Commit::default() };
        core.submit(Feature::None, Work::Commit(commit));
    }

    /// It is so: whoever waits is told, then everybody who watches.
    fn committed(
        &mut self,
        core: &mut Core,
        step: Step,
        at: Time,
        changes: Vec<Change>,
        stay: Option<Stay>,
        receipt: &Receipt,
    ) {
        self.end_step(core, &step, Ok(Vec::new()));
        tell_topic(core, receipt);
        let concerned = step.membership.as_ref().is_some_and(Membership::is_concerned);
        let user = step.key.user.clone();
        let connected = is_own(&step) && is_arrival(&changes);
        self.tell_commit(core, step, at, changes, stay, receipt);
        if concerned {
            core.notify(Notice::MemberChanged { user, recorded: true });
        } else if connected {
            core.notify(Notice::UserConnected { user });
        }
    }

    /// Everybody whom it concerns hears what became so: riders, followers, watchers here and elsewhere.
    pub(super) fn tell_commit(
        &mut self,
        core: &mut Core,
        step: Step,
        at: Time,
        changes: Vec<Change>,
        stay: Option<Stay>,
        receipt: &Receipt,
    ) {
        self.move_riders(core, &step, &changes, receipt);
        if changes.is_empty() {
            return;
        }
        let to = receipt.raised.first().copied().unwrap_or(0);
        let begins = receipt.begun.first().copied().unwrap_or(false);
        if !step.anonymous && concerns_followers(&step, &changes) {
            // Who is gone was deleted; what else was put is not his presence.
            let version = if stay.is_some() { receipt.put.first() } else { receipt.deleted.last() };
            let version = version.copied().unwrap_or(0);
            self.tell_place(core, &step, version, stay, &changes);
        }
        let Step { key, name, anonymous, .. } = step;
        let visibility = step.visibility.unwrap_or_default();
        let news = Arc::new(News { user: key.user, name, anonymous, visibility, at, changes, to, begins });
        let told = ChannelNews { channel: key.channel, news };
        core.effects.abroad.extend(core.node.news_parcel(&told));
        self.spread(core, &told);
        self.hear_news(core, &told);
    }

    /// Where somebody is has changed: his followers hear of it, and an app's kick reaches his sessions.
    fn tell_place(
        &mut self,
        core: &mut Core,
        step: &Step,
        version: u64,
        stay: Option<Stay>,
        changes: &[Change],
    ) {
        let last_seen = changes.iter().find_map(|change| match change {
            Change::UserOffline { last_seen, .. } => Some(*last_seen),
            _ => None,
        });
        let (channel, name) = (step.key.channel.clone(), step.name.clone());
        let fact = Fact::Place { channel: channel.clone(), version, stay, last_seen, name };
        let user = step.key.user.clone();
        core.notify(Notice::StatusUpdate { user: user.clone(), update: Rumour::Fact(fact) });
        let kicked =
            |change: &Change| matches!(change, Change::ClientOffline { reason: Departure::Removed, .. });
        if changes.iter().any(kicked) {
            core.notify(Notice::StatusUpdate { user, update: Rumour::Removed { channel } });
        }
    }

    /// Other shards of this node watch the channel too.
    fn spread(&mut self, core: &mut Core, told: &ChannelNews) {
        let entry = core.node.registry.find(Space::Presence, told.channel.as_bytes());
        let mask = entry.map_or(0, |entry| entry.mask()) & !(1u64 << core.index);
        core.effects.news.extend(shards_of(mask).map(|shard| (shard, told.clone())));
    }

    pub(super) fn end_step(&mut self, core: &mut Core, step: &Step, reply: Reply) {
        self.lines.leave(&step.key);
        if let Some(claim) = step.claim {
            core.finish(claim, reply);
        }
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

/// Whether parties care: none of the user's clients is connected any more, or they are gone for good.
fn concerns_parties(step: &Step, before: &Attendance, after: &Attendance, changes: &[Change]) -> bool {
    let gone = changes.iter().any(|change| matches!(change, Change::UserOffline { .. }));
    let lost = before.living().next().is_some() && after.living().next().is_none();
    is_own(step) && (gone || lost)
}

/// The user left on purpose.
fn said_bye(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::UserOffline { reason, .. } if reason.is_explicit()))
}

/// Whether a session is here and stays.
fn is_settled(core: &Core, id: ListenerId) -> bool {
    let session = core.listeners.get(id).and_then(|listener| listener.session());
    session.is_some_and(|session| !session.frozen)
}

/// The commit that makes a decided step so.
pub(super) fn commit_of(
    core: &Core,
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
        commit.puts.push(Row::Presence(PresenceRow { key, anonymous, name, visibility, attendance }));
    } else {
        commit.deletes.push(key);
    }
    if let Some(Change::UserOffline { last_seen, .. }) = changes.last()
        && is_own(step)
    {
        commit.seen.push(Seen { user: step.key.user.clone(), at: *last_seen });
    }
    commit.appends = transitions(core, step, changes);
    commit
}
