//! Renews the lease of this node and cleans up after other nodes: expired leases, presences without a live node,
//! overdue deadlines. A state machine: time and the store's answers come in, work for the store and tasks for the
//! shards go out. Every node may run every part of it, concurrently too: the store arbitrates. Must hold: a node that
//! is not in the store is not a dead node; an epoch is closed before any row of it is changed; at most one lease
//! change and one check are in flight, however slow the store is, and a renewal waits for nothing else.

mod check;

use crate::node::Node;
use crate::rows::StaleUser;
use check::NodeCheck;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{ClientLoss, NodeEpoch};
use tavern_store::{
    Commit, Deadline, Found, NodeChange, NodeRow, Page, PresenceKey, PresenceRow, Read, Receipt, StoreAnswer,
    StoreError, Ticket, Work, Writer,
};

/// Intervals and timeouts.
#[derive(Clone, Copy, Debug)]
pub struct LivenessRules {
    pub heartbeat_ms: u64,
    pub lease_ms: u64,
    /// How long a node that stopped cleanly has to restart for the sessions it left in the store.
    pub drain_ms: u64,
    /// How often presences without a live node are swept, and how old they must be.
    pub sweep_ms: u64,
    pub sweep_age_ms: u64,
}

/// A presence whose node is dead, and how its clients were lost.
#[derive(Clone, Debug)]
pub struct TakenOver {
    pub presence: PresenceRow,
    pub node: NodeEpoch,
    pub loss: ClientLoss,
    /// When the node was last known to live: the end of its lease.
    pub seen: Time,
}

/// A task for the shards.
#[derive(Clone, Debug)]
pub enum LivenessTask {
    /// Any one shard: a presence whose node is dead.
    TakeOver(Box<TakenOver>),
    /// Any one shard: a deadline that its node did not handle in time.
    Overdue(Deadline),
    /// Any one shard: presences that no node will end.
    Sweep(StaleUser),
    /// Every shard: compare the watched channels with the store.
    Compare,
    /// Every shard: the node has a new epoch; announce the connected clients under it.
    Announce,
}

/// An event for the operator; the server logs it.
#[derive(Clone, Debug)]
pub enum LivenessEvent {
    Renewed,
    /// The renewal failed. None: the store did not answer in time.
    NotRenewed(Option<StoreError>),
    /// Another node closed the epoch of this one.
    Fenced,
    /// Another server runs with the name of this node, and has fenced it. This one must end.
    Replaced(Writer),
    NotOpened(StoreError),
    /// The lease of another node has expired.
    LeaseEnded(Writer),
    /// The check of other nodes is postponed to the next heartbeat.
    CheckPostponed(StoreError),
    /// A presence without a live node is removed.
    StalePresence(PresenceKey),
}

/// Work for the driver. The buffers are reused: drain them, do not replace them.
#[derive(Debug, Default)]
pub struct LivenessEffects {
    pub work: Vec<(Ticket, Work)>,
    pub tasks: Vec<LivenessTask>,
    pub events: Vec<LivenessEvent>,
}

pub struct Liveness {
    node: Arc<Node>,
    rules: LivenessRules,
    tickets: u64,
    /// The next heartbeat.
    heartbeat_due: Time,
    /// When the next lease of another node expires, unless it is renewed.
    check_due: Time,
    sweep_due: Time,
    /// The last overdue deadline that was read, if there were more.
    overdue_after: Option<Deadline>,
    lease: Option<PendingRequest<LeaseChange>>,
    /// A new epoch was asked for, and whether it was opened is unknown.
    opens: bool,
    /// The current epoch must end: the store may have lost some of its commits.
    replaces_epoch: bool,
    /// When the store last confirmed the lease.
    renewed_at: Time,
    /// Until then no node is declared dead: during a long store outage the others could not renew either.
    lenient_until: Time,
    check: Option<PendingRequest<NodeCheck>>,
    pub effects: LivenessEffects,
}

/// A request in flight: since when, and its purpose.
struct PendingRequest<T> {
    ticket: Ticket,
    since: Time,
    what: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseChange {
    Renew,
    Stop,
    /// Looks for a newer epoch of the same name: this one was fenced.
    Look,
    Open,
}

impl Liveness {
    /// The first heartbeat is due at once.
    pub fn new(node: Arc<Node>, rules: LivenessRules, now: Time) -> Liveness {
        Liveness {
            node,
            rules,
            tickets: 0,
            heartbeat_due: now,
            check_due: Time::NEVER,
            overdue_after: None,
            sweep_due: now + rules.sweep_ms,
            lease: None,
            opens: false,
            replaces_epoch: false,
            renewed_at: now,
            lenient_until: now,
            check: None,
            effects: LivenessEffects::default(),
        }
    }

    pub fn next_wake(&self) -> Time {
        self.heartbeat_due.min(self.check_due)
    }

    /// Runs what is due: the check of an expired lease, the heartbeat.
    pub fn wake(&mut self, now: Time) {
        if now >= self.check_due {
            self.check_due = Time::NEVER;
            if self.check.is_none() {
                self.begin_check(now);
            }
        }
        if now < self.heartbeat_due {
            return;
        }
        self.heartbeat_due = now + self.rules.heartbeat_ms;
        if self.lease.as_ref().is_none_or(|pending| self.is_late(now, pending.since)) {
            if self.lease.is_some() {
                self.effects.events.push(LivenessEvent::NotRenewed(None));
            }
            let renew = NodeChange::Renew { node: self.writer(), lease_ms: self.rules.lease_ms };
            self.submit_lease(now, LeaseChange::Renew, self.commit(renew));
        }
        if self.check.as_ref().is_none_or(|pending| self.is_late(now, pending.since)) {
            self.begin_check(now);
        }
    }

    /// The store answered. A late answer to a request that was submitted again is ignored.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: StoreAnswer) {
        if let Some(pending) = self.lease.take_if(|pending| pending.ticket == ticket) {
            self.lease_answered(now, pending.what, answer);
        } else if let Some(pending) = self.check.take_if(|pending| pending.ticket == ticket) {
            self.check_answered(now, pending.what, answer);
        }
    }

    /// Half a lease without an answer: retry. A lost answer must not cost the node its lease.
    fn is_late(&self, now: Time, since: Time) -> bool {
        now >= since + (self.rules.lease_ms / 2).max(self.rules.heartbeat_ms)
    }

    fn lease_answered(&mut self, now: Time, what: LeaseChange, answer: StoreAnswer) {
        match (what, answer) {
            (LeaseChange::Renew, StoreAnswer::Failed(StoreError::Fenced { .. })) => {
                self.effects.events.push(LivenessEvent::Fenced);
                let read = Read::Nodes { after: Some(self.writer()), limit: 1 };
                self.submit_lease(now, LeaseChange::Look, Work::Read(read));
            }
            (LeaseChange::Look, StoreAnswer::Read(Found::Nodes(page))) => match self.successor(page) {
                Some(successor) => self.effects.events.push(LivenessEvent::Replaced(successor)),
                None => self.open_epoch(now),
            },
            (LeaseChange::Look, StoreAnswer::Failed(error)) => {
                self.effects.events.push(LivenessEvent::NotOpened(error));
            }
            (LeaseChange::Look, _) => {}
            (LeaseChange::Renew, StoreAnswer::Failed(error)) => {
                self.effects.events.push(LivenessEvent::NotRenewed(Some(error)));
            }
            (LeaseChange::Renew, _) => {
                self.lease_confirmed(now);
                self.effects.events.push(LivenessEvent::Renewed);
                if self.replaces_epoch {
                    self.replace_epoch(now);
                }
            }
            (
                LeaseChange::Stop,
                StoreAnswer::Committed(_) | StoreAnswer::Failed(StoreError::Fenced { .. }),
            ) => {
                self.open_epoch(now);
            }
            // Retried after the next renewal.
            (LeaseChange::Stop, _) => {}
            (LeaseChange::Open, StoreAnswer::Committed(receipt)) => {
                self.lease_confirmed(now);
                self.epoch_opened(&receipt);
            }
            (LeaseChange::Open, StoreAnswer::Failed(error)) => {
                self.effects.events.push(LivenessEvent::NotOpened(error));
            }
            (LeaseChange::Open, StoreAnswer::Read(_)) => {}
        }
    }

    /// Starts a new epoch because the store may have lost the last commits of this one. The old epoch is stopped
    /// cleanly, so that other nodes wait for its clients to be announced again.
    pub fn replace_epoch(&mut self, now: Time) {
        self.replaces_epoch = true;
        let stop = NodeChange::Stop { node: self.writer() };
        self.submit_lease(now, LeaseChange::Stop, self.commit(stop));
    }

    /// The open epoch of another server with this name, if this node's is followed by one.
    fn successor(&self, next: Page<NodeRow>) -> Option<Writer> {
        let next = next.rows.into_iter().next()?;
        let is_other = *next.writer.node == *self.node.settings.node && next.closed_at.is_none();
        // An epoch that this node may have opened itself is not another server.
        (is_other && !self.opens).then_some(next.writer)
    }

    fn open_epoch(&mut self, now: Time) {
        self.opens = true;
        let name: Arc<str> = self.node.settings.node.as_str().into();
        let open = NodeChange::Open { name, lease_ms: self.rules.lease_ms };
        let commit = Commit { node: Some(open), ..Commit::default() };
        self.submit_lease(now, LeaseChange::Open, Work::Commit(commit));
    }

    /// After an outage in which leases may have expired, the other nodes get one lease time to renew theirs.
    fn lease_confirmed(&mut self, now: Time) {
        if self.is_out_of_touch(now) {
            self.lenient_until = now + self.rules.lease_ms;
        }
        self.renewed_at = now;
    }

    /// The store has not confirmed the lease for so long that the leases of other nodes may have expired too.
    fn is_out_of_touch(&self, now: Time) -> bool {
        now.since(self.renewed_at) > (self.rules.lease_ms / 2).max(2 * self.rules.heartbeat_ms)
    }

    /// The node has a new epoch, because it was fenced or replaced its own. Presences that other nodes ended under the
    /// old epoch stay ended; connected clients are announced under the new one.
    fn epoch_opened(&mut self, receipt: &Receipt) {
        let Some(epoch) = receipt.epoch else { return };
        (self.replaces_epoch, self.opens) = (false, false);
        self.node.begin_epoch(epoch);
        // A check that started earlier would find connected clients under the old epoch and declare them lost.
        self.check = None;
        self.effects.tasks.push(LivenessTask::Announce);
    }

    fn writer(&self) -> Writer {
        Writer::new(&self.node.settings.node, self.node.epoch())
    }

    /// A change of a node's row, written by this node.
    fn commit(&self, change: NodeChange) -> Work {
        Work::Commit(Commit { writer: Some(self.writer()), node: Some(change), ..Commit::default() })
    }

    fn submit_lease(&mut self, now: Time, what: LeaseChange, work: Work) {
        let ticket = self.submit(work);
        self.lease = Some(PendingRequest { ticket, since: now, what });
    }

    fn submit(&mut self, work: Work) -> Ticket {
        self.tickets += 1;
        self.effects.work.push((Ticket(self.tickets), work));
        Ticket(self.tickets)
    }
}
