//! State that the queues of one worker share: the settings, requests to the store, the schedule, the round-robin
//! order, the effects.
//! Must hold: a request is answered once; loads and posts in progress are counted.

use super::post::{AttemptRequest, DeliveryNotice};
use crate::node::{Node, RandomSource};
use crate::replica::ReplicaHost;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::RetryPolicy;
use tavern_store::{Commit, Deadline, Expect, Read, Ticket, Work, Writer};

/// Queues that are loaded at the same time: a node that starts loads all of them.
const LOADS: usize = 64;
/// Posts in progress at once. Each is a socket; one subscription has at most its `concurrency` of them.
const POSTS: usize = 4_096;
/// How long an idle queue keeps its state: the next event often follows soon.
const LINGER_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
pub struct DeliverySettings {
    pub patience: RetryPolicy,
    /// How long a worker holds a subscription without renewing its lease.
    pub lease_ms: u64,
    /// How often it checks whether other nodes have changed subscriptions.
    pub check_ms: u64,
}

/// Work for the driver. The buffers are reused: drain them, do not replace them.
#[derive(Debug, Default)]
pub struct DeliveryEffects {
    pub work: Vec<(Ticket, Work)>,
    pub posts: Vec<AttemptRequest>,
    /// Subscriptions with new events that another node delivers.
    pub nudges: Vec<Arc<str>>,
    pub notices: Vec<DeliveryNotice>,
}

/// The purpose of a request to the store.
#[derive(Debug)]
pub(super) enum DeliveryRequest {
    /// One subscription, as it is now.
    One(Arc<str>),
    Progress(Arc<str>),
    Marks(Arc<str>),
    /// Whether another writer has changed the progress.
    Check(Arc<str>),
    /// These belong to one activation of a queue.
    Events(Arc<str>, u64),
    Fetch(Arc<str>, u64, u64),
    Take(Arc<str>, u64),
    Save(Arc<str>, u64),
    /// How many events topics have had.
    Counts,
    /// A deadline was moved or deleted: nothing depends on the answer.
    Unwatch,
}

pub(super) struct DeliveryShared {
    node: Arc<Node>,
    pub settings: DeliverySettings,
    rng: Box<dyn RandomSource + Send>,
    tickets: u64,
    requests: HashMap<Ticket, DeliveryRequest>,
    /// The time of the current input.
    pub now: Time,
    lives: u64,
    due: BTreeSet<(Time, Arc<str>)>,
    /// Queues that wait to be loaded.
    loads: VecDeque<Arc<str>>,
    pub loading: usize,
    /// Queues that may send, round-robin.
    pub ready: VecDeque<Arc<str>>,
    /// Posts in progress.
    pub posts: usize,
    pub stopping: bool,
    /// A subscription receives announcements about deliveries.
    pub announces: bool,
    /// Such an announcement was published.
    pub announced: bool,
    pub effects: DeliveryEffects,
}

impl DeliveryShared {
    pub fn new(
        node: Arc<Node>,
        settings: DeliverySettings,
        rng: Box<dyn RandomSource + Send>,
        now: Time,
    ) -> DeliveryShared {
        DeliveryShared {
            node,
            settings,
            rng,
            tickets: 0,
            requests: HashMap::new(),
            now,
            lives: 0,
            due: BTreeSet::new(),
            loads: VecDeque::new(),
            loading: 0,
            ready: VecDeque::new(),
            posts: 0,
            stopping: false,
            announces: false,
            announced: false,
            effects: DeliveryEffects::default(),
        }
    }

    pub fn writer(&self) -> Writer {
        Writer { node: self.node.name.clone(), epoch: self.node.epoch() }
    }

    /// How many attempts of each subscription are stored.
    pub fn attempts_kept(&self) -> u64 {
        self.node.settings.topics.attempts_kept
    }

    /// Whether there are other live nodes, which may deliver the same subscriptions.
    pub fn has_neighbours(&self) -> bool {
        !self.node.other_nodes().is_empty()
    }

    pub fn roll(&mut self) -> u64 {
        self.rng.next() as u64
    }

    /// A number for the next activation of a queue.
    pub fn new_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    pub fn ask(&mut self, request: DeliveryRequest, work: Work) {
        let ticket = self.submit(work);
        self.requests.insert(ticket, request);
    }

    fn submit(&mut self, work: Work) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.effects.work.push((ticket, work));
        ticket
    }

    pub fn take_request(&mut self, ticket: Ticket) -> Option<DeliveryRequest> {
        self.requests.remove(&ticket)
    }

    pub fn notify(&mut self, notice: DeliveryNotice) {
        self.effects.notices.push(notice);
    }

    pub fn failure(&mut self, name: &Arc<str>, what: String) {
        self.notify(DeliveryNotice::Trouble { subscription: name.clone(), what });
    }

    /// The work on a subscription is done: deletes its deadline, unless another worker has moved it.
    pub fn unwatch(&mut self, deadline: &Deadline) {
        let expects = vec![Expect { key: deadline.key(), version: deadline.due.ms() }];
        let deletes = vec![deadline.key()];
        let commit = Commit { writer: Some(self.writer()), expects, deletes, ..Commit::default() };
        self.ask(DeliveryRequest::Unwatch, Work::Commit(commit));
    }

    /// How long an idle queue keeps its state: less than its lease, or other nodes would check it.
    pub fn linger_ms(&self) -> u64 {
        LINGER_MS.min(self.settings.lease_ms / 2)
    }

    pub fn may_post(&self) -> bool {
        self.posts < POSTS
    }

    pub fn wait_for_load(&mut self, name: &Arc<str>) {
        self.loads.push_back(name.clone());
    }

    /// The next queue to load, if there is room.
    pub fn next_load(&mut self) -> Option<Arc<str>> {
        if self.loading < LOADS { self.loads.pop_front() } else { None }
    }

    pub fn schedule(&mut self, name: &Arc<str>, before: Option<Time>, at: Time) {
        if let Some(before) = before {
            self.due.remove(&(before, name.clone()));
        }
        self.due.insert((at, name.clone()));
    }

    pub fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }

    pub fn take_due(&mut self, now: Time) -> Option<Arc<str>> {
        if self.next_due()? > now {
            return None;
        }
        self.due.pop_first().map(|(_, name)| name)
    }
}

impl ReplicaHost for DeliveryShared {
    type Owner = ();

    fn now(&self) -> Time {
        self.now
    }

    fn read(&mut self, (): (), read: Read) -> Ticket {
        self.submit(Work::Read(read))
    }

    fn wake(&mut self, (): (), due: Time, name: &Arc<str>) {
        self.schedule(name, None, due);
    }
}
