//! One subscription on this node: its settings, its posts in progress, and its `Active` state while there is work.
//! Must hold: an idle subscription costs only its settings; a post is answered once, and its reply counts for its
//! batch no matter which activation of the queue started it; a delivered batch is not posted again before its
//! progress is saved.

use super::active::ActiveDelivery;
use super::attempts;
use super::lease::{DELIVERY, HeldLease};
use super::post::{AttemptAnswer, DeliveryNotice};
use super::rules;
use super::shared::{DeliveryRequest, DeliveryShared};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{
    Delivery, DeliveryEffect, DeliveryInput, DeliveryOutcome, EndpointReply, SubscriptionHealth,
};
use tavern_store::{Commit, Deadline, Document, DocumentKey, Expect, Read, StoreError, Versioned, Work};
use tavern_wire::record::{self, SubscriptionSettings};

/// The retry delay after an error that only the operator can fix.
const HOPELESS_MS: u64 = 30_000;
/// The delay after the lease of another node has ended.
const AFTERWARDS_MS: u64 = 100;

pub(super) struct DeliveryQueue {
    pub subscription: Arc<SubscriptionSettings>,
    /// The version of its document.
    pub version: u64,
    pub state: DeliveryState,
    /// There may be events that this node has not read.
    pub unread: bool,
    /// Posts in progress, with their replies once they arrive: they may outlive the machine that started them.
    /// Delivered ones stay until the progress is saved.
    pub posts: BTreeMap<u64, Option<AttemptAnswer>>,
    /// Another node delivered it before.
    pub follows: bool,
    /// When it is checked next.
    pub alarm: Option<Time>,
    /// The deadline of another worker, or of an earlier activation, that was found overdue.
    pub overdue: Option<Time>,
}

pub(super) enum DeliveryState {
    /// Nothing to do.
    Idle,
    /// Waits to be loaded.
    Waits,
    Loads(ReadProgress),
    /// Another node delivers it, at least until the alarm.
    Elsewhere,
    Active(Box<ActiveDelivery>),
}

/// The parts that are loaded so far.
#[derive(Default)]
pub(super) struct ReadProgress {
    /// Something has changed since the load started.
    pub stale: bool,
    pub progress: Option<Option<Versioned<Document>>>,
    pub marks: Option<Option<Versioned<Document>>>,
}

impl DeliveryQueue {
    pub fn new(subscription: Arc<SubscriptionSettings>, version: u64) -> DeliveryQueue {
        DeliveryQueue {
            subscription,
            version,
            state: DeliveryState::Idle,
            unread: true,
            posts: BTreeMap::new(),
            follows: false,
            alarm: None,
            overdue: None,
        }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.subscription.name
    }

    pub fn active(&mut self) -> Option<&mut ActiveDelivery> {
        match &mut self.state {
            DeliveryState::Active(active) => Some(active),
            _ => None,
        }
    }

    /// The number of its activation, while it is active.
    pub fn life(&self) -> u64 {
        match &self.state {
            DeliveryState::Active(active) => active.life,
            _ => 0,
        }
    }

    /// There may be new events.
    pub fn feed(&mut self, shared: &mut DeliveryShared, now: Time) {
        self.unread = true;
        match &mut self.state {
            // Another node may have enabled it, and deliver it: that node must learn of the events.
            DeliveryState::Active(active) if active.machine.progress().disabled.is_some() => {
                self.check(shared);
            }
            // A queue that cannot accept events now checks again when it can.
            DeliveryState::Active(active) if active.reads || active.machine.want(now).is_none() => {}
            DeliveryState::Active(active) => {
                active.idle_since = None;
                self.step(shared, now);
            }
            DeliveryState::Idle => self.wait_for_load(shared),
            DeliveryState::Elsewhere => shared.effects.nudges.push(self.name().clone()),
            DeliveryState::Waits | DeliveryState::Loads(_) => {}
        }
    }

    pub fn wait_for_load(&mut self, shared: &mut DeliveryShared) {
        if shared.stopping
            || self.subscription.pull
            || matches!(self.state, DeliveryState::Waits | DeliveryState::Loads(_))
        {
            return;
        }
        self.state = DeliveryState::Waits;
        shared.wait_for_load(self.name());
    }

    pub fn start_load(&mut self, shared: &mut DeliveryShared) {
        if !matches!(self.state, DeliveryState::Waits) {
            return;
        }
        self.state = DeliveryState::Loads(ReadProgress::default());
        shared.loading += 1;
        let name = self.name();
        let read = |kind| Work::Read(Read::Document(DocumentKey::new(kind, name)));
        shared.ask(DeliveryRequest::Progress(name.clone()), read(record::DELIVERY));
        shared.ask(DeliveryRequest::Marks(name.clone()), read(record::MARKS));
    }

    /// A part of a load has arrived.
    pub fn loaded(&mut self, shared: &mut DeliveryShared, now: Time, note: impl FnOnce(&mut ReadProgress)) {
        let DeliveryState::Loads(load) = &mut self.state else { return };
        note(load);
        let ReadProgress { progress: Some(progress), marks: Some(marks), stale } = load else { return };
        let (progress, marks, stale) = (progress.take(), marks.take(), *stale);
        shared.loading -= 1;
        self.state = DeliveryState::Idle;
        if stale {
            return self.wait_for_load(shared);
        }
        let overdue = self.overdue.take();
        let (Some(progress), Some(marks)) = (progress, marks) else { return };
        match (record::read_progress(&progress.row.body), record::read_marks(&marks.row.body)) {
            (Ok(kept), Ok(read)) => {
                let machine = Delivery::new(now, kept, rules(&self.subscription), shared.settings.patience);
                let (lease, marks) = (HeldLease::new(overdue), (read, marks.version));
                let active = ActiveDelivery::new(shared.new_life(), machine, lease, marks, progress.version);
                self.state = DeliveryState::Active(Box::new(active));
                self.unread = true;
                self.give(shared, now, None);
            }
            (Err(error), _) | (_, Err(error)) => shared.failure(self.name(), error.to_string()),
        }
    }

    pub fn load_failed(&mut self, shared: &mut DeliveryShared, now: Time, error: &StoreError) {
        if matches!(self.state, DeliveryState::Loads(_)) {
            shared.loading -= 1;
            self.state = DeliveryState::Idle;
            self.load_again(shared, now, error);
        }
    }

    /// Gives the machine an input, or only the time, and performs its effects.
    pub fn give(&mut self, shared: &mut DeliveryShared, now: Time, input: Option<DeliveryInput>) {
        let mut effects = Vec::new();
        let Some(active) = self.active() else { return };
        match input {
            Some(input) => active.machine.handle(now, input, &mut effects),
            None => active.machine.wake(now, &mut effects),
        }
        let mut others = Vec::new();
        let mut save = None;
        for effect in effects {
            match effect {
                DeliveryEffect::Save { parked, retried } => save = Some((parked, retried)),
                other => others.push(other),
            }
        }
        for effect in &others {
            shared.effects.notices.extend(DeliveryNotice::of(self.name(), effect));
        }
        if let Some(active) = self.active() {
            active.unannounced.extend(others);
        }
        if let Some((parked, retried)) = save {
            self.save(shared, now, &parked, &retried);
        }
        self.step(shared, now);
    }

    /// Does what its state requires: read, send, renew the lease, or go idle.
    pub fn step(&mut self, shared: &mut DeliveryShared, now: Time) {
        self.read_more(shared, now);
        let (lease_ms, linger_ms) = (shared.settings.lease_ms, shared.linger_ms());
        let (name, unread) = (self.name().clone(), self.unread);
        let Some(active) = self.active() else { return };
        let ready = active.machine.is_ready(now) && !shared.stopping;
        // While a batch fills, a node that learns of an event must wake this one.
        let fills = shared.has_neighbours() && active.is_filling() && !shared.stopping;
        let (held, busy) = (active.lease.is_held(now), active.machine.in_flight() > 0);
        if ready && held && !active.queued {
            active.queued = true;
            shared.ready.push_back(name);
        }
        let ends = active.lease.ends().unwrap_or(now);
        let renew = busy && ends.since(now) <= lease_ms / 3;
        if (((ready || fills) && !held) || renew) && !active.lease.taking {
            active.lease.taking = true;
            self.take_lease(shared, now);
        }
        let Some(active) = self.active() else { return };
        let mut due = active.machine.next_wake();
        if busy {
            // Renew before it expires, while a slow endpoint has not replied.
            let renewal = Time(ends.ms().saturating_sub(lease_ms / 3)).max(now + 1);
            due = Some(due.unwrap_or(Time::NEVER).min(renewal));
        }
        if active.is_done(unread) {
            let since = *active.idle_since.get_or_insert(now);
            due = Some(since + linger_ms);
        } else {
            active.idle_since = None;
        }
        if let Some(due) = due {
            self.set_alarm(shared, due.max(now));
        }
    }

    /// Sets its alarm, unless an earlier one is set.
    fn set_alarm(&mut self, shared: &mut DeliveryShared, at: Time) {
        if self.alarm.is_none_or(|alarm| at < alarm) {
            let before = self.alarm.replace(at);
            shared.schedule(self.name(), before, at);
        }
    }

    /// Its alarm is due.
    pub fn wake(&mut self, shared: &mut DeliveryShared, now: Time) {
        self.alarm = None;
        let unread = self.unread;
        match &mut self.state {
            DeliveryState::Active(active) => {
                let linger_ms = shared.linger_ms();
                let rested = active.idle_since.is_some_and(|since| now.since(since) >= linger_ms);
                if rested && active.is_done(unread) {
                    let deadline = active.lease.deadline(&self.subscription.name);
                    self.state = DeliveryState::Idle;
                    deadline.iter().for_each(|deadline| shared.unwatch(deadline));
                    return;
                }
                self.give(shared, now, None);
            }
            DeliveryState::Elsewhere => {
                self.state = DeliveryState::Idle;
                self.wait_for_load(shared);
            }
            DeliveryState::Idle if unread => self.wait_for_load(shared),
            DeliveryState::Idle | DeliveryState::Waits | DeliveryState::Loads(_) => {}
        }
    }

    /// Its deadline was not renewed: its worker stopped, or left the deadline behind.
    pub fn is_overdue(&mut self, shared: &mut DeliveryShared, now: Time, due: Time) {
        match &mut self.state {
            DeliveryState::Active(active) => {
                if active.lease.is_last(due) {
                    // It is active here, without a lease: it waits for its endpoint, or is idle.
                    self.move_deadline(shared, now, due);
                }
            }
            DeliveryState::Waits | DeliveryState::Loads(_) => self.overdue = Some(due),
            DeliveryState::Idle | DeliveryState::Elsewhere => {
                (self.state, self.unread, self.overdue) = (DeliveryState::Idle, true, Some(due));
                self.wait_for_load(shared);
            }
        }
    }

    fn move_deadline(&mut self, shared: &mut DeliveryShared, now: Time, due: Time) {
        let expected = Deadline::new(due, DELIVERY, self.name());
        let Some(deadline) = self.watch(shared, now) else { return };
        let expects = vec![Expect { key: expected.key(), version: due.ms() }];
        let commit =
            Commit { writer: Some(shared.writer()), expects, deadlines: vec![deadline], ..Commit::default() };
        shared.ask(DeliveryRequest::Unwatch, Work::Commit(commit));
    }

    /// Its settings have changed.
    pub fn change(
        &mut self,
        shared: &mut DeliveryShared,
        now: Time,
        subscription: Arc<SubscriptionSettings>,
        version: u64,
    ) {
        (self.subscription, self.version) = (subscription, version);
        if self.subscription.pull && matches!(self.state, DeliveryState::Active(_)) {
            self.state = DeliveryState::Idle;
        }
        let rules = rules(&self.subscription);
        self.give(shared, now, Some(DeliveryInput::Rules(rules)));
        // Its topics may have changed, and with them its marks.
        self.check(shared);
    }

    /// Checks whether another writer has changed the progress; a change of topics does.
    pub fn check(&mut self, shared: &mut DeliveryShared) {
        if matches!(self.state, DeliveryState::Active(_)) {
            let key = DocumentKey::new(record::DELIVERY, self.name());
            shared.ask(DeliveryRequest::Check(self.name().clone()), Work::Read(Read::Document(key)));
        }
    }

    /// Loads it again unless the progress is still what this node has written.
    pub fn checked(&mut self, shared: &mut DeliveryShared, version: u64) {
        if self.active().is_some_and(|active| active.version != version && active.machine.is_at_rest()) {
            self.state = DeliveryState::Idle;
            self.unread = true;
            self.wait_for_load(shared);
        }
    }

    /// A read or a commit failed: the state here is stale.
    pub fn failed(&mut self, shared: &mut DeliveryShared, now: Time, error: StoreError) {
        if !matches!(self.state, DeliveryState::Active(_)) {
            return;
        }
        match error {
            StoreError::LeaseHeld { until, .. } => {
                (self.state, self.follows) = (DeliveryState::Elsewhere, true);
                self.set_alarm(shared, until + AFTERWARDS_MS);
                shared.effects.nudges.push(self.name().clone());
            }
            error => {
                self.state = DeliveryState::Idle;
                self.load_again(shared, now, &error);
            }
        }
    }

    /// Loads it again after an error.
    fn load_again(&mut self, shared: &mut DeliveryShared, now: Time, error: &StoreError) {
        self.unread = true;
        let wait_ms = match error {
            StoreError::Conflict { .. } => return self.wait_for_load(shared),
            StoreError::Unavailable { retry_after_ms, .. } => *retry_after_ms,
            // The node will have a new epoch soon.
            StoreError::Fenced { .. } => 1_000,
            error => {
                shared.failure(self.name(), error.to_string());
                HOPELESS_MS
            }
        };
        self.set_alarm(shared, now + wait_ms);
    }

    /// Its turn to send one batch. It is queued again if it can send more.
    pub fn post_next(&mut self, shared: &mut DeliveryShared, now: Time) {
        let name = self.name().clone();
        let DeliveryState::Active(active) = &mut self.state else { return };
        active.queued = false;
        if !active.lease.is_held(now) {
            return;
        }
        let Some(sending) = active.machine.start(now) else { return };
        active.started.insert(sending.batch);
        if active.machine.is_ready(now) {
            active.queued = true;
            shared.ready.push_back(name);
        }
        match self.posts.get(&sending.batch) {
            // It was sent before this machine was created.
            Some(None) => {}
            Some(Some(answer)) => {
                let answer = answer.clone();
                self.settle(shared, now, sending.batch, answer);
            }
            None => self.send(shared, now, sending),
        }
    }

    /// A post that started before this machine was created: its events are not in memory. A reply about single events
    /// cannot be applied, and a dead letter would be empty; the batch is sent again.
    fn is_unusable(&self, batch: u64, reply: &EndpointReply<String>) -> bool {
        let DeliveryState::Active(active) = &self.state else { return false };
        let of_events = matches!(
            reply.outcome,
            DeliveryOutcome::Partly | DeliveryOutcome::TooLarge | DeliveryOutcome::Refused
        );
        of_events && active.machine.batch(batch).is_some_and(|sent| active.entries(sent).is_none())
    }

    /// The endpoint has replied to a post.
    pub fn posted(&mut self, shared: &mut DeliveryShared, now: Time, batch: u64, answer: AttemptAnswer) {
        let known = matches!(&self.state, DeliveryState::Active(active) if active.started.contains(&batch));
        self.posts.insert(batch, Some(answer.clone()));
        if known {
            self.settle(shared, now, batch, answer);
        }
    }

    fn settle(&mut self, shared: &mut DeliveryShared, now: Time, batch: u64, answer: AttemptAnswer) {
        let (roll, kept) = (shared.roll(), shared.attempts_kept());
        let unusable = self.is_unusable(batch, &answer.reply);
        let reply = match unusable {
            true => EndpointReply { error: answer.reply.error.clone(), ..DeliveryOutcome::Failed.into() },
            false => answer.reply.clone(),
        };
        if !reply.is_taken() {
            // It will be retried.
            self.posts.remove(&batch);
        }
        let subscription = self.name().clone();
        let Some(active) = self.active() else { return };
        active.started.remove(&batch);
        let reply = active.numbered(batch, reply);
        if let Some(sent) = active.machine.batch(batch) {
            let (reason, events, waited_ms) = (sent.reason, sent.entries(), now.since(sent.accepted));
            let outcome = reply.outcome;
            let number = active.machine.progress().attempted() + 1;
            active.attempts.add(attempts::attempt(number, now, sent, &answer), kept);
            shared.notify(DeliveryNotice::Attempted { subscription, reason, outcome, events, waited_ms });
        }
        let was_healthy = active.machine.progress().health() == SubscriptionHealth::Healthy;
        self.give(shared, now, Some(DeliveryInput::Answered { batch, reply, random: roll }));
        self.tell_failing(shared, was_healthy);
    }

    fn tell_failing(&mut self, shared: &mut DeliveryShared, was_healthy: bool) {
        let subscription = self.name().clone();
        let Some(progress) = self.active().map(|active| active.machine.progress()) else { return };
        let fails = matches!(progress.health(), SubscriptionHealth::Failing | SubscriptionHealth::Throttled);
        if let (true, true, Some(error)) = (was_healthy, fails, &progress.last_error) {
            shared.notify(DeliveryNotice::Failing { subscription, error: error.text.clone() });
        }
    }
}
