//! The node's vigil: it renews its own lease, and looks after what others left: nodes whose lease has ended, presences
//! nobody vouches for, deadlines nobody settled. A machine: time and the store's answers come in, work for the store and
//! orders for the shards go out. Any node may do any part of it, twice too: the store arbitrates.
//! Must hold: an unknown node is not a dead node; an epoch is closed before anything of it is touched; of each duty at
//! most one work is under way, however long the store takes, and renewing the lease waits for nothing else.

mod round;

use crate::node::Node;
use crate::rows::Astray;
use round::Round;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Home, Loss};
use tavern_engine::{
    Answer, Commit, Deadline, NodeChange, Presence, PresenceKey, Receipt, StoreError, Ticket, Work, Writer,
};

/// How often, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub heartbeat_ms: u64,
    pub lease_ms: u64,
    /// How long a node that said goodbye may take to come back for what it left in the store.
    pub drain_ms: u64,
    /// How often presences are swept that no living node vouches for, and how old they must be.
    pub sweep_ms: u64,
    pub sweep_age_ms: u64,
}

/// What the shards must do.
#[derive(Clone, Debug)]
pub enum Chore {
    /// Any one shard: a presence whose node is gone, and how its clients were lost.
    TakeOver(Box<(Presence, Home, Loss)>),
    /// Any one shard: a deadline that nobody has settled.
    Overdue(Deadline),
    /// Any one shard: a presence that nobody will end.
    Sweep(Astray),
    /// Every shard: compare the watched channels with the store.
    Look,
    /// Every shard: the node has a new epoch, its living clients are announced under it.
    Announce,
}

/// What somebody who looks after the server wants to know.
#[derive(Clone, Debug)]
pub enum Notice {
    Renewed,
    /// Without an error the store did not answer in time.
    NotRenewed(Option<StoreError>),
    /// Others took this node for dead.
    Fenced,
    NotOpened(StoreError),
    /// The lease of another node has ended.
    Ended(Writer),
    /// The look at other nodes is put off to the next heartbeat.
    PutOff(StoreError),
    /// No living node vouches for it: it is removed.
    Astray(PresenceKey),
}

/// What the driver must carry out. Buffers are reused: drain them, keep them.
#[derive(Debug, Default)]
pub struct Duties {
    pub work: Vec<(Ticket, Work)>,
    pub orders: Vec<Chore>,
    pub notices: Vec<Notice>,
}

pub struct Vigil {
    node: Arc<Node>,
    rules: Rules,
    tickets: u64,
    /// The next heartbeat.
    due: Time,
    /// When the next lease of another node ends, unless it is renewed.
    look_due: Time,
    /// The next sweep.
    sweep_due: Time,
    lease: Option<Asked<Lease>>,
    /// This life must end, because the store may have forgotten things of it.
    anew: bool,
    /// When the store took the lease last.
    renewed: Time,
    /// Until then nobody is taken for dead: a store that was away for long kept the others from renewing too.
    lenient_until: Time,
    round: Option<Asked<Round>>,
    pub duties: Duties,
}

/// A work under way, since when, and what its answer is for.
struct Asked<T> {
    ticket: Ticket,
    since: Time,
    what: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    Renew,
    Part,
    Open,
}

impl Vigil {
    /// The first heartbeat is due at once.
    pub fn new(node: Arc<Node>, rules: Rules, now: Time) -> Vigil {
        let sweep_due = now + rules.sweep_ms;
        let duties = Duties::default();
        Vigil {
            node,
            rules,
            tickets: 0,
            due: now,
            look_due: Time::NEVER,
            sweep_due,
            lease: None,
            anew: false,
            renewed: now,
            lenient_until: now,
            round: None,
            duties,
        }
    }

    pub fn next_wake(&self) -> Time {
        self.due.min(self.look_due)
    }

    /// Time has passed: perhaps the heart beats.
    pub fn wake(&mut self, now: Time) {
        if now >= self.look_due {
            self.look_due = Time::NEVER;
            if self.round.is_none() {
                self.begin_round(now);
            }
        }
        if now < self.due {
            return;
        }
        self.due = now + self.rules.heartbeat_ms;
        if self.lease.as_ref().is_none_or(|asked| self.is_late(now, asked.since)) {
            if self.lease.is_some() {
                self.duties.notices.push(Notice::NotRenewed(None));
            }
            let renew = NodeChange::Renew { node: self.writer(), lease_ms: self.rules.lease_ms };
            self.ask_lease(now, Lease::Renew, self.change(renew));
        }
        if self.round.as_ref().is_none_or(|asked| self.is_late(now, asked.since)) {
            self.begin_round(now);
        }
    }

    /// The store has answered. An answer that nobody waits for any more changes nothing.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        if let Some(asked) = self.lease.take_if(|asked| asked.ticket == ticket) {
            self.lease_answered(now, asked.what, answer);
        } else if let Some(asked) = self.round.take_if(|asked| asked.ticket == ticket) {
            self.round_answered(now, asked.what, answer);
        }
    }

    /// Twice within a lease: an answer that is lost must not cost the node its life.
    fn is_late(&self, now: Time, since: Time) -> bool {
        now >= since + (self.rules.lease_ms / 2).max(self.rules.heartbeat_ms)
    }

    fn lease_answered(&mut self, now: Time, what: Lease, answer: Answer) {
        match (what, answer) {
            (Lease::Renew, Answer::Failed(StoreError::Fenced { .. })) => {
                self.duties.notices.push(Notice::Fenced);
                self.open_again(now);
            }
            (Lease::Renew, Answer::Failed(error)) => {
                self.duties.notices.push(Notice::NotRenewed(Some(error)));
            }
            (Lease::Renew, _) => {
                self.store_answered(now);
                self.duties.notices.push(Notice::Renewed);
                if self.anew {
                    self.begin_anew(now);
                }
            }
            (Lease::Part, Answer::Committed(_) | Answer::Failed(StoreError::Fenced { .. })) => {
                self.open_again(now);
            }
            // Tried again when the lease is renewed.
            (Lease::Part, _) => {}
            (Lease::Open, Answer::Committed(receipt)) => {
                self.store_answered(now);
                self.begin_again(&receipt);
            }
            (Lease::Open, Answer::Failed(error)) => self.duties.notices.push(Notice::NotOpened(error)),
            (Lease::Open, Answer::Read(_)) => {}
        }
    }

    /// The store may have forgotten what it said last: nothing of this life is believed but what is announced again. It ends
    /// like one that said goodbye, so that the others give its clients time.
    pub fn begin_anew(&mut self, now: Time) {
        self.anew = true;
        let stop = NodeChange::Stop { node: self.writer() };
        self.ask_lease(now, Lease::Part, self.change(stop));
    }

    fn open_again(&mut self, now: Time) {
        let name: Arc<str> = self.node.settings.node.as_str().into();
        let open = NodeChange::Open { name, lease_ms: self.rules.lease_ms };
        let commit = Commit { node: Some(open), ..Commit::default() };
        self.ask_lease(now, Lease::Open, Work::Commit(commit));
    }

    /// After a silence in which leases may have ended, the others get the time of one lease to renew theirs.
    fn store_answered(&mut self, now: Time) {
        if self.is_out_of_touch(now) {
            self.lenient_until = now + self.rules.lease_ms;
        }
        self.renewed = now;
    }

    /// The store has not taken the lease for so long that those of others may have ended too.
    fn is_out_of_touch(&self, now: Time) -> bool {
        now.since(self.renewed) > (self.rules.lease_ms / 2).max(2 * self.rules.heartbeat_ms)
    }

    /// Others took this node for dead, because it slept or could not reach the store: what they ended stays ended, and
    /// who lives here is announced anew.
    fn begin_again(&mut self, receipt: &Receipt) {
        let Some(epoch) = receipt.epoch else { return };
        self.anew = false;
        self.node.begin_epoch(epoch);
        // A look that began before would find the living clients still under the old epoch and take them for lost.
        self.round = None;
        self.duties.orders.push(Chore::Announce);
    }

    fn writer(&self) -> Writer {
        Writer::new(&self.node.settings.node, self.node.epoch())
    }

    /// A step in the life of a node, written by this one.
    fn change(&self, change: NodeChange) -> Work {
        Work::Commit(Commit { writer: Some(self.writer()), node: Some(change), ..Commit::default() })
    }

    fn ask_lease(&mut self, now: Time, what: Lease, work: Work) {
        let ticket = self.submit(work);
        self.lease = Some(Asked { ticket, since: now, what });
    }

    fn submit(&mut self, work: Work) -> Ticket {
        self.tickets += 1;
        self.duties.work.push((Ticket(self.tickets), work));
        Ticket(self.tickets)
    }
}
