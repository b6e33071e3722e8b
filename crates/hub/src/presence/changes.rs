//! Presence changes in progress: their transactions, and what follows from their commits.
//! Must hold: a departure that has started is committed eventually; the session remembers every client that may be
//! present, so that it leaves with the session; followers and watchers are notified after the commit.

use super::change::{PresenceAction, PresenceChange};
use super::decision::{CommittedPresence, PresenceDecision, PresenceOutcome};
use super::hold::{HoldDecision, forget_hold};
use super::queue::ChangeQueue;
use super::sweep::{SweepDecision, SweptPresence};
use super::topic::wake_topics;
use crate::core::listener::ListenerId;
use crate::core::{CommandReply, Core, Feature, Notice, ReplyTo, Timer, refusal};
use crate::event::Namespace;
use crate::node::ChannelUpdate;
use crate::node::registry::shards_of;
use crate::rows::{GRACE, StaleUser};
use crate::transaction::{Facts, TransactionEnd, TransactionProgress, Transactions};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::presence::{
    Attendance, AttendanceChange, AttendanceInput, ChannelClient, ClientLoss, OfflineReason, PresenceSummary,
    PresenceUpdate, UserFact, UserUpdate, Visibility,
};
use tavern_domain::{ClientId, Time};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{
    Commit, Expect, PresenceHold, PresenceKey, PresenceRow, Receipt, RowKey, StoreAnswer, StoreError, Ticket,
    Versioned, Work,
};

pub(super) struct PresenceChanges {
    transactions: Transactions<PresenceDecision>,
    queue: ChangeQueue,
    /// How many changes of a session are in progress.
    busy: HashMap<ListenerId, u32, RandomState>,
    /// Changes that the store did not accept and that nothing else would repeat.
    retries: VecDeque<(Time, PresenceChange)>,
}

impl PresenceChanges {
    pub fn new() -> PresenceChanges {
        PresenceChanges {
            transactions: Transactions::new(Feature::Presence),
            queue: ChangeQueue::default(),
            busy: HashMap::default(),
            retries: VecDeque::new(),
        }
    }

    pub fn owns(&self, ticket: Ticket) -> bool {
        self.transactions.owns(ticket)
    }

    /// Whether a change of a session is still in progress.
    pub fn is_busy(&self, id: ListenerId) -> bool {
        self.busy.contains_key(&id) || self.queue.has(id)
    }

    /// Whether a change of a user in a channel is in progress or will be retried.
    pub fn is_under_way(&self, key: &PresenceKey) -> bool {
        self.queue.is_occupied(key)
    }

    /// The channels in which a change of a user is in progress or waits.
    pub fn channels_of(&self, user: &str) -> Vec<Arc<str>> {
        self.queue.channels_of(user)
    }

    /// Starts a change when it reaches the head of its queue.
    pub fn begin(&mut self, core: &mut Core, change: PresenceChange) {
        if let Some(change) = self.queue.enter(change) {
            self.start(core, change);
            self.start_next(core);
        }
    }

    /// Puts a user into a channel for an app.
    pub fn hold(&mut self, core: &mut Core, hold: PresenceHold, claim: ReplyTo) {
        let decision = PresenceDecision::Hold(HoldDecision { hold, claim });
        let progress = self.transactions.begin(core, decision, Facts::default());
        self.progressed(core, progress);
    }

    /// Removes presences without a live node.
    pub fn sweep(&mut self, core: &mut Core, stale: StaleUser) {
        let decision = PresenceDecision::Sweep(SweepDecision(stale));
        let progress = self.transactions.begin(core, decision, Facts::default());
        self.progressed(core, progress);
    }

    /// Retries changes that the store did not accept.
    pub fn retry(&mut self, core: &mut Core) {
        while let Some((_, change)) = self.retries.pop_front_if(|(due, _)| *due <= core.now) {
            self.start(core, change);
        }
        self.start_next(core);
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let progress = self.transactions.answered(core, ticket, answer);
        self.progressed(core, progress);
        self.start_next(core);
    }

    /// A client that joins is assumed to be absent, which is usually true and saves a read.
    fn start(&mut self, core: &mut Core, change: PresenceChange) {
        let facts = if change.is_join() && !change.reads_first && !change.unknown {
            Facts::assuming(change.key.clone(), None)
        } else {
            known(core, &change)
                .map_or_else(Facts::default, |row| Facts::assuming(change.key.clone(), Some(row)))
        };
        if let Some(id) = change.listener {
            *self.busy.entry(id).or_default() += 1;
        }
        let progress = self.transactions.begin(core, PresenceDecision::Change(Box::new(change)), facts);
        self.progressed(core, progress);
    }

    /// Starts the changes at the head of their queues. One that ends at once starts the next, in this loop and not
    /// recursively.
    fn start_next(&mut self, core: &mut Core) {
        if std::mem::replace(&mut self.queue.starting, true) {
            return;
        }
        while let Some(change) = self.queue.next() {
            self.start(core, change);
        }
        self.queue.starting = false;
    }

    fn progressed(&mut self, core: &mut Core, progress: TransactionProgress<PresenceDecision>) {
        let TransactionProgress::Ended(decision, mut ended) = progress else { return };
        match decision {
            PresenceDecision::Hold(hold) => self.hold_ended(core, hold, &ended),
            PresenceDecision::Sweep(_) => {
                // Presences that could not be swept are found again by the next sweep.
                if let TransactionEnd::Committed(PresenceOutcome::Swept(swept), receipt) = ended {
                    self.swept(core, swept, &receipt);
                }
            }
            PresenceDecision::Change(change) => {
                let others = match &mut ended {
                    TransactionEnd::Committed(outcome, _) | TransactionEnd::Done(outcome) => {
                        outcome.take_others()
                    }
                    TransactionEnd::Failed { .. } => Vec::new(),
                };
                if let Some(id) = change.listener
                    && let Some(count) = self.busy.get_mut(&id)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.busy.remove(&id);
                    }
                }
                let announces = change.is_own_channel().then(|| change.key.clone());
                self.change_ended(core, *change, ended);
                others.into_iter().for_each(|key| self.begin(core, PresenceChange::sync_visibility(key)));
                if let Some(key) = announces.filter(|key| !self.is_under_way(key)) {
                    core.notify(Notice::UserAnnounced { user: key.user });
                }
            }
        }
    }

    fn hold_ended(
        &mut self,
        core: &mut Core,
        decision: HoldDecision,
        ended: &TransactionEnd<PresenceOutcome>,
    ) {
        let HoldDecision { hold, claim } = decision;
        if let TransactionEnd::Failed { answer, .. } = ended {
            return core.finish(claim, Err(refusal(answer)));
        }
        if let Some(until) = hold.until {
            core.agenda.set(until, Timer::HoldEnds(hold.key.clone()));
        }
        let change = sync_held(core, hold.key, Vec::new());
        self.begin(core, PresenceChange { claim: Some(claim), ..change });
    }

    fn change_ended(
        &mut self,
        core: &mut Core,
        change: PresenceChange,
        ended: TransactionEnd<PresenceOutcome>,
    ) {
        match ended {
            TransactionEnd::Committed(PresenceOutcome::Changed(changed), receipt) => {
                self.committed(core, *changed, &receipt);
            }
            TransactionEnd::Committed(..) => self.end(core, &change, Ok(Vec::new())),
            TransactionEnd::Done(PresenceOutcome::Refused(refusal)) => self.end(core, &change, Err(refusal)),
            TransactionEnd::Done(PresenceOutcome::Resolved(attendee)) => {
                if let Some(ChannelClient { client, node: node_epoch, state, .. }) = attendee {
                    // It was committed: update its session.
                    let action =
                        PresenceAction::Input(AttendanceInput::Join { client, node: node_epoch, state });
                    self.note(core, &PresenceChange { action, ..change.clone() });
                }
                self.queue.leave(&change.key);
            }
            TransactionEnd::Done(PresenceOutcome::Unchanged { change, version, wakes }) => {
                match change.action {
                    PresenceAction::Wake if !wakes => forget_deadline(core, &change.key, version),
                    PresenceAction::Release => forget_hold(core, &change.key),
                    _ => {}
                }
                self.note(core, &change);
                self.end(core, &change, Ok(Vec::new()));
            }
            TransactionEnd::Done(_) => self.queue.leave(&change.key),
            TransactionEnd::Failed { answer, unknown } => {
                self.failed(core, change, unknown.is_some(), &answer)
            }
        }
    }

    fn end(&mut self, core: &mut Core, change: &PresenceChange, reply: CommandReply) {
        self.queue.leave(&change.key);
        if let Some(claim) = change.claim {
            core.finish(claim, reply);
        }
    }

    /// The store did not accept a change: refuses the caller. An unknown outcome is resolved; a departure is retried,
    /// and so is every change without a caller that nothing else would repeat.
    fn failed(&mut self, core: &mut Core, mut change: PresenceChange, unknown: bool, answer: &StoreAnswer) {
        let Some(claim) = change.claim.take() else { return self.retry_later(core, change, answer) };
        core.finish(claim, Err(refusal(answer)));
        let too_large = matches!(answer, StoreAnswer::Failed(StoreError::TooLarge { .. }));
        match &change.action {
            PresenceAction::Input(AttendanceInput::Leave { .. }) if !too_large => {
                self.retry_later(core, change, answer)
            }
            PresenceAction::Input(AttendanceInput::Join { .. } | AttendanceInput::Update { .. })
                if unknown =>
            {
                change.unknown = true;
                self.start(core, change);
            }
            _ => self.queue.leave(&change.key),
        }
    }

    /// The change keeps its place in the queue. Commands behind it are refused at once.
    fn retry_later(&mut self, core: &mut Core, change: PresenceChange, answer: &StoreAnswer) {
        for claim in self.queue.give_up(&change.key) {
            core.finish(claim, Err(refusal(answer)));
        }
        let due = core.now + RETRY_AFTER_MS;
        self.retries.push_back((due, change));
        core.agenda.set(due, Timer::RetryPresence);
    }

    /// Committed: the caller gets the reply, then others are notified.
    fn committed(&mut self, core: &mut Core, changed: CommittedPresence, receipt: &Receipt) {
        let CommittedPresence { change, at, changes, due, stay, alone, concerns_party } = changed;
        if let Some(due) = due {
            core.agenda.set(due, Timer::GraceEnds(change.key.clone()));
        }
        self.note(core, &change);
        let version = alone.and_then(|_| receipt.version(&RowKey::Presence(change.key.clone())));
        note_alone(core, &change, version.zip(alone));
        self.end(core, &change, Ok(Vec::new()));
        wake_topics(core, &change.key.channel, receipt);
        let user = change.key.user.clone();
        let connected = change.is_own_channel() && is_arrival(&changes);
        self.announce(core, change, at, changes, stay, receipt);
        if concerns_party {
            core.notify(Notice::MemberChanged { user, recorded: true });
        } else if connected {
            core.notify(Notice::UserConnected { user });
        }
    }

    fn swept(&mut self, core: &mut Core, swept: Vec<SweptPresence>, receipt: &Receipt) {
        for swept in swept {
            wake_topics(core, &swept.change.key.channel, receipt);
            core.stats.presences_swept.add(1);
            self.announce(core, swept.change, core.now, swept.changes, swept.stay, receipt);
        }
    }

    /// Notifies held presences, followers, and watchers here and on other nodes.
    pub fn announce(
        &mut self,
        core: &mut Core,
        change: PresenceChange,
        at: Time,
        changes: Vec<AttendanceChange>,
        stay: Option<PresenceSummary>,
        receipt: &Receipt,
    ) {
        self.move_held(core, &change, &changes, receipt);
        if changes.is_empty() {
            return;
        }
        let raised = receipt.channel(&change.key.channel);
        let (to, begins) = raised.map_or((0, false), |raised| (raised.version, raised.was_empty));
        if !change.anonymous && concerns_followers(&change, &changes) {
            let version = receipt.version(&RowKey::Presence(change.key.clone())).unwrap_or(0);
            notify_followers(core, &change, version, stay, &changes);
        }
        let PresenceChange { key, name, anonymous, .. } = change;
        let visibility = change.visibility.unwrap_or_default();
        let update =
            Arc::new(PresenceUpdate { user: key.user, name, anonymous, visibility, at, changes, to, begins });
        let channel_update = ChannelUpdate { channel: key.channel, update };
        core.effects.bus_messages.extend(core.node.presence_packet(&channel_update));
        let entry = core.node.registry.find(Namespace::Presence, channel_update.channel.as_bytes());
        let mask = entry.map_or(0, |entry| entry.mask()) & !(1u64 << core.index);
        core.effects.channel_updates.extend(shards_of(mask).map(|shard| (shard, channel_update.clone())));
        core.notify(Notice::PresenceChanged(channel_update));
    }

    /// A carrier has changed: updates the held presences that depend on it.
    fn move_held(
        &mut self,
        core: &mut Core,
        change: &PresenceChange,
        changes: &[AttendanceChange],
        receipt: &Receipt,
    ) {
        for held in receipt.held.iter().filter(|held| held.held_with == change.key) {
            // A client that joined that channel itself stays.
            let session = change.listener.and_then(|id| core.session(id));
            let stays = session.is_some_and(|session| session.present.has(&held.channel));
            let departed = changes.iter().filter_map(|change| match change {
                AttendanceChange::ClientOffline { client, reason } if !stays => Some((*client, *reason)),
                _ => None,
            });
            let departed = departed.collect();
            let key = PresenceKey { channel: held.channel.clone(), user: held.held_with.user.clone() };
            let change = sync_held(core, key, departed);
            self.begin(core, change);
        }
    }

    /// A change of a session was committed: the session remembers where it is present, for its loss and its resume.
    fn note(&mut self, core: &mut Core, change: &PresenceChange) {
        let Some(id) = change.listener else { return };
        let joined = match &change.action {
            PresenceAction::Input(AttendanceInput::Join { state, .. }) => state.clone(),
            PresenceAction::Input(AttendanceInput::Update { state, .. }) => Some(state.clone()),
            PresenceAction::Input(AttendanceInput::Leave { .. }) => {
                // It may have reconnected while the change waited.
                if let Some(session) = core.session_mut(id) {
                    session.present.leave(&change.key.channel);
                }
                return;
            }
            _ => return,
        };
        let channel = change.key.channel.clone();
        let Some(session) = core.session_mut(id) else {
            // It ended while it was joining: nothing else would remove it.
            if let PresenceAction::Input(AttendanceInput::Join { client, .. }) = &change.action
                && !self.queue.has_followers(change)
            {
                core.notify(Notice::ClientWithoutSession { key: change.key.clone(), client: *client });
            }
            return;
        };
        session.present.enter(&channel, joined);
        let lost = session.lost;
        let visibility = core.users.visibility(&change.key.user);
        if visibility.is_some_and(|shown| !change.anonymous && Some(shown) != change.visibility) {
            // The visibility changed while the client joined.
            self.begin(core, PresenceChange::sync_visibility(change.key.clone()));
        }
        if !lost {
            return core.schedule_loss(id);
        }
        if let Some(loss) = loss_of(core, id, &channel) {
            self.begin(core, loss);
        }
    }
}

/// Makes a held presence follow its carrier.
pub(super) fn sync_held(
    core: &mut Core,
    key: PresenceKey,
    departed: Vec<(ClientId, OfflineReason)>,
) -> PresenceChange {
    let own = ClientId::from_random(core.rng.next());
    PresenceChange::of(key, PresenceAction::SyncHeld { departed, own })
}

/// A session's client is lost in a channel, since its last sign of life.
pub(super) fn loss_of(core: &Core, id: ListenerId, channel: &str) -> Option<PresenceChange> {
    let at = core.session(id)?.lost_at(core.node.settings.poll_idle_ms);
    loss_at(core, id, channel, at)
}

pub(super) fn loss_at(core: &Core, id: ListenerId, channel: &str, at: Time) -> Option<PresenceChange> {
    let loss = ClientLoss { at, grace_ms: core.node.settings.grace_ms(channel), reason: OfflineReason::Lost };
    let node = core.node.name.clone();
    super::session::change_of(
        core,
        id,
        channel,
        |client| AttendanceInput::LoseAt { client, node, loss },
        None,
    )
}

/// The presence that a session is about to leave or lose, when it is known without a read. A client that leaves on
/// purpose is removed from the session's channels at once.
fn known(core: &mut Core, change: &PresenceChange) -> Option<Versioned<PresenceRow>> {
    let node_epoch = core.node.node_epoch();
    let session = core.session_mut(change.listener?)?;
    let channel = &change.key.channel;
    let state = match &change.action {
        PresenceAction::Input(AttendanceInput::Leave { .. }) => session.present.leave(channel),
        PresenceAction::Input(AttendanceInput::Lose { .. } | AttendanceInput::LoseAt { .. }) => {
            session.present.state(channel).cloned()
        }
        _ => return None,
    };
    let (version, since) = session.alone.remove(channel)?;
    let client = ChannelClient { client: session.client, node: node_epoch, state: state?, since, lost: None };
    let attendance = Attendance::restore(vec![client], since, None);
    let PresenceChange { key, name, anonymous, visibility, .. } = change.clone();
    // A session that was just adopted may be of a user who hides.
    let visibility = visibility.or(anonymous.then(Visibility::default))?;
    Some(Versioned { version, row: PresenceRow { key, anonymous, name, visibility, attendance } })
}

/// Remembers whether a session's client is the only presence of its user.
fn note_alone(core: &mut Core, change: &PresenceChange, alone: Option<(u64, Time)>) {
    let Some(session) = change.listener.and_then(|id| core.session_mut(id)) else { return };
    match alone.filter(|_| session.present.has(&change.key.channel)) {
        Some(alone) => drop(session.alone.insert(change.key.channel.clone(), alone)),
        None => drop(session.alone.remove(&change.key.channel)),
    }
}

/// A user's status may have changed: notifies their followers, and their sessions of a removal by an app.
fn notify_followers(
    core: &mut Core,
    change: &PresenceChange,
    version: u64,
    stay: Option<PresenceSummary>,
    changes: &[AttendanceChange],
) {
    let last_seen = changes.iter().find_map(|change| match change {
        AttendanceChange::UserOffline { last_seen, .. } => Some(*last_seen),
        _ => None,
    });
    // Nobody saw when they left: it is not shown later either.
    let last_seen = last_seen.filter(|_| change.visibility != Some(Visibility::Nobody));
    let (channel, user) = (change.key.channel.clone(), change.key.user.clone());
    let name = change.name.clone();
    let fact = UserFact::Channel { channel: channel.clone(), version, presence: stay, last_seen, name };
    core.notify(Notice::StatusUpdate { user: user.clone(), update: UserUpdate::Fact(fact) });
    let removed = |change: &AttendanceChange| {
        matches!(change, AttendanceChange::ClientOffline { reason: OfflineReason::Removed, .. })
    };
    if changes.iter().any(removed) {
        core.notify(Notice::StatusUpdate { user, update: UserUpdate::Removed { channel } });
    }
}

/// Deletes a deadline that no longer applies.
fn forget_deadline(core: &mut Core, key: &PresenceKey, version: u64) {
    let deadline = RowKey::Deadline { kind: GRACE.into(), name: key.to_string().into() };
    // Fails if a client was lost since: then the deadline applies again.
    let expects = vec![Expect { key: RowKey::Presence(key.clone()), version }];
    let writer = Some(core.writer());
    let commit = Commit { writer, expects, deletes: vec![deadline], ..Commit::default() };
    core.submit(Feature::None, Work::Commit(commit));
}

/// A client of the user is connected.
fn is_arrival(changes: &[AttendanceChange]) -> bool {
    changes
        .iter()
        .any(|change| matches!(change, AttendanceChange::UserOnline | AttendanceChange::ClientOnline { .. }))
}

/// Whether a user's status may have changed.
fn concerns_followers(change: &PresenceChange, changes: &[AttendanceChange]) -> bool {
    let own = change.is_own_channel();
    changes.iter().any(|change| match change {
        AttendanceChange::UserOnline | AttendanceChange::UserOffline { .. } => true,
        AttendanceChange::ClientOnline { .. } => own,
        AttendanceChange::ClientOffline { reason, .. } => own || *reason == OfflineReason::Removed,
        AttendanceChange::ClientUpdated { .. }
        | AttendanceChange::VisibilityChanged { .. }
        | AttendanceChange::NotFound => false,
    })
}
