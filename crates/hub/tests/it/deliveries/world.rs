//! The nodes, their workers, the store, the endpoints and the time between them.
//! Must hold: everything depends on the seed alone.

use crate::harness::{SequentialRandom, TokenNames};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tavern_domain::delivery::{DeliveryOutcome, DeliveryProgress, EndpointReply, LogMark, RetryPolicy};
use tavern_domain::topic::SubscriptionMarks;
use tavern_domain::{Epoch, Time};
use tavern_hub::topics::delivery::{AttemptRequest, DeliveryNotice, DeliverySettings, DeliveryWorker};
use tavern_hub::{Node, RandomSource, Settings};
use tavern_store::memory::{Faults, MemoryEngine, MemoryStore, MessageFault, WorkFault};
use tavern_store::{
    AnswerReceiver, Append, BusPacket, Clock, Commit, Deadline, Document, DocumentKey, Found, ManualClock,
    NodeChange, Read, Row, RowKey, RowKind, Store, StoreAnswer, Ticket, Work,
};
use tavern_wire::json::event::{BatchFormat, stored};
use tavern_wire::record::{self, AttemptRecord, SubscriptionSettings};

pub const SETTINGS: DeliverySettings = DeliverySettings {
    patience: RetryPolicy { backoff_min_ms: 1_000, backoff_max_ms: 20_000, disable_after_ms: 0 },
    lease_ms: 30_000,
    check_ms: 2_000,
};

/// A post in progress: when it ends, on which node, the subscription, the batch, the reply of the endpoint.
type Flight = (Time, usize, Arc<str>, u64, EndpointReply<String>);

#[derive(Default)]
struct Answers(Mutex<Vec<(Ticket, StoreAnswer)>>);

impl AnswerReceiver for Answers {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

/// Nothing goes wrong in the store.
struct NoFaults;

impl Faults for NoFaults {
    fn message(&mut self, _: &str, _: &str, _: &BusPacket) -> MessageFault {
        MessageFault::once()
    }

    fn work(&mut self, _: &str, _: &Work) -> WorkFault {
        WorkFault::NONE
    }

    fn subscribe(&mut self, _: &str) -> Option<u64> {
        Some(0)
    }
}

pub struct TestNode {
    pub worker: DeliveryWorker,
    store: Arc<MemoryStore>,
    answers: Arc<Answers>,
}

/// How an endpoint replies to a post.
#[derive(Clone, Copy, PartialEq)]
pub enum Temper {
    Good,
    Bad,
    /// It takes all but the last event, and takes its time.
    Partly,
}

/// The number of a batch, the numbers of its events, its bytes.
pub type Got = (u64, Vec<u64>, Vec<u8>);

pub struct World {
    clock: Arc<ManualClock>,
    engine: Arc<MemoryEngine>,
    operator: Arc<MemoryStore>,
    operator_answers: Arc<Answers>,
    pub nodes: Vec<Option<TestNode>>,
    /// Until when each node sleeps; its lease may end meanwhile.
    pub asleep: Vec<Time>,
    /// One of this many nudges is lost; 0: none.
    pub deaf: u128,
    /// When the nodes check next for overdue deadlines.
    sweep: Time,
    pub rng: SequentialRandom,
    pub temper: Temper,
    pub flights: Vec<Flight>,
    /// The batches that each endpoint has received, in order.
    pub got: BTreeMap<Arc<str>, Vec<Got>>,
    tickets: u64,
    failures: Vec<String>,
    /// The errors of subscriptions that began to fail.
    pub failing: Vec<Arc<str>>,
    /// How many attempts the nodes keep.
    pub attempts_kept: u64,
}

impl World {
    pub fn new(seed: u128, nodes: usize, temper: Temper) -> World {
        let clock = Arc::new(ManualClock::at(Time(1_000_000)));
        let engine = MemoryEngine::stepped(clock.clone(), Box::new(NoFaults));
        let operator_answers = Arc::new(Answers::default());
        let operator = engine.store("operator", operator_answers.clone());
        let mut world = World {
            clock,
            engine,
            operator,
            operator_answers,
            nodes: Vec::new(),
            asleep: vec![Time(0); nodes],
            deaf: 0,
            sweep: Time(0),
            rng: SequentialRandom::new(seed + 1),
            temper,
            flights: Vec::new(),
            got: BTreeMap::new(),
            tickets: 1 << 40,
            failures: Vec::new(),
            failing: Vec::new(),
            attempts_kept: 4,
        };
        for at in 0..nodes {
            let node = world.open(at);
            world.nodes.push(Some(node));
        }
        world
    }

    /// Another node, with the settings as they are now.
    pub fn add_node(&mut self) {
        self.asleep.push(Time(0));
        let node = self.open(self.nodes.len());
        self.nodes.push(Some(node));
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Retries until it succeeds: a publisher repeats a failed request, under the same id.
    fn commit(
        &mut self,
        store: &Arc<MemoryStore>,
        operator_answers: &Arc<Answers>,
        commit: &Commit,
    ) -> tavern_store::Receipt {
        loop {
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            store.submit(vec![(ticket, Work::Commit(commit.clone()))]);
            let found = loop {
                let mut answers = operator_answers.0.lock().unwrap();
                let at = answers.iter().position(|(known, _)| *known == ticket);
                if let Some(at) = at {
                    break answers.remove(at).1;
                }
                drop(answers);
                assert!(self.engine.step(), "the store answers");
            };
            if let StoreAnswer::Committed(receipt) = found {
                return receipt;
            }
        }
    }

    fn open(&mut self, at: usize) -> TestNode {
        let name = format!("n{at}");
        let answers = Arc::new(Answers::default());
        let store = self.engine.store(&name, answers.clone());
        let open = NodeChange::Open { name: name.as_str().into(), lease_ms: 600_000 };
        let commit = Commit { node: Some(open), ..Commit::default() };
        let epoch = self.commit(&store, &answers, &commit).epoch.unwrap_or(Epoch(0));
        let mut settings = Settings { node: name.clone(), epoch, ..Settings::default() };
        settings.topics.attempts_kept = self.attempts_kept;
        let node = Node::new(settings, Box::new(TokenNames));
        let others = (0..self.asleep.len()).filter(|other| *other != at);
        node.set_other_nodes(others.map(|other| format!("n{other}").into()).collect());
        let seed = self.rng.next();
        let worker = DeliveryWorker::new(node, SETTINGS, Box::new(SequentialRandom::new(seed)), self.now());
        TestNode { worker, store, answers }
    }

    pub fn subscribe(&mut self, name: &str, topics: &[&str], concurrency: u32) {
        self.subscribe_for(name, topics, concurrency, 1 << 20);
    }

    pub fn subscribe_for(&mut self, name: &str, topics: &[&str], concurrency: u32, max_bytes: u64) {
        let topics: Vec<Arc<str>> = topics.iter().map(|topic| Arc::from(*topic)).collect();
        let subscription = SubscriptionSettings {
            name: name.into(),
            owner: "k".into(),
            topics: topics.clone(),
            callback: Some("http://endpoint/".into()),
            timeout_ms: 200,
            max_events: 5,
            max_bytes,
            max_backlog_bytes: 0,
            format: BatchFormat::Standard,
            concurrency,
            pull: false,
            uuid: None,
            headers: BTreeMap::new(),
            secrets: Vec::new(),
            created_at: 1,
        };
        let counts = topics.iter().map(|topic| (topic.clone(), 0)).collect();
        let row = |kind: &str, name: &str, body: Vec<u8>| {
            Row::Document(Document { key: DocumentKey::new(kind, name), body: body.into() })
        };
        let puts = vec![
            row(record::SUBSCRIPTION, name, record::write(&subscription)),
            row(record::MARKS, name, record::write_marks(&SubscriptionMarks::begin(0, counts))),
            row(
                record::DELIVERY,
                name,
                record::write_progress(&DeliveryProgress::starting(LogMark::default())),
            ),
            row(record::EVENTS, record::SUBSCRIPTIONS, Vec::new()),
        ];
        let (operator, operator_answers) = (self.operator.clone(), self.operator_answers.clone());
        self.commit(&operator, &operator_answers, &Commit { puts, ..Commit::default() });
    }

    pub fn publish(&mut self, at: usize, topic: &str, n: u64) {
        let body = stored("x", None, 0, &n.to_string()).into();
        let append = Append { topic: topic.into(), id: Some(n.to_string().into()), body };
        let (operator, operator_answers) = (self.operator.clone(), self.operator_answers.clone());
        self.commit(&operator, &operator_answers, &Commit { appends: vec![append], ..Commit::default() });
        let now = self.now();
        if let Some(node) = &mut self.nodes[at] {
            node.worker.published(now, topic);
        }
    }

    /// A subscription is created while the first node reads the list, which does not have it; it is read before the list.
    pub fn subscribe_during_the_read_of_the_list(&mut self, name: &str, topics: &[&str]) {
        let now = self.now();
        self.with_node(|node| node.worker.nudged(now, &"".into()));
        // The version of the list, then the list.
        for _ in 0..2 {
            self.with_node(|node| {
                node.worker.wake(now);
                node.store.submit(std::mem::take(&mut node.worker.effects().work));
            });
            while self.nodes[0].as_ref().is_some_and(|node| node.answers.0.lock().unwrap().is_empty()) {
                assert!(self.engine.step(), "the store answers");
            }
            let answers = self.with_node(|node| std::mem::take(&mut *node.answers.0.lock().unwrap()));
            if matches!(answers[..], [(_, StoreAnswer::Read(Found::Rows(_)))]) {
                self.subscribe(name, topics, 1);
                self.with_node(|node| node.worker.changed(&name.into()));
                self.settle();
            }
            self.with_node(|node| {
                answers.into_iter().for_each(|(ticket, answer)| node.worker.answered(now, ticket, answer));
            });
        }
    }

    fn with_node<T>(&mut self, run: impl FnOnce(&mut TestNode) -> T) -> T {
        run(self.nodes[0].as_mut().expect("a node"))
    }

    pub fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for at in 0..self.nodes.len() {
                quiet &= self.carry_out(at);
            }
            if quiet && !self.engine.step() {
                return;
            }
        }
    }

    fn carry_out(&mut self, at: usize) -> bool {
        let now = self.now();
        if now < self.asleep[at] {
            return true;
        }
        let Some(node) = &mut self.nodes[at] else { return true };
        for (ticket, answer) in std::mem::take(&mut *node.answers.0.lock().unwrap()) {
            node.worker.answered(now, ticket, answer);
        }
        node.worker.wake(now);
        let effects = node.worker.effects();
        let (work, posts) = (std::mem::take(&mut effects.work), std::mem::take(&mut effects.posts));
        let nudges = std::mem::take(&mut effects.nudges);
        for notice in std::mem::take(&mut effects.notices) {
            match notice {
                DeliveryNotice::Trouble { what, .. } => self.failures.push(what),
                DeliveryNotice::Failing { error, .. } => self.failing.push(error),
                _ => {}
            }
        }
        let quiet = work.is_empty() && posts.is_empty() && nudges.is_empty();
        node.store.submit(work);
        for name in nudges {
            if self.deaf > 0 && self.rng.next().is_multiple_of(self.deaf) {
                continue;
            }
            for other in (0..self.nodes.len()).filter(|other| *other != at) {
                if let Some(node) = &mut self.nodes[other] {
                    node.worker.nudged(now, &name);
                }
            }
        }
        posts.into_iter().for_each(|post| self.receive(at, post));
        quiet
    }

    fn receive(&mut self, at: usize, post: AttemptRequest) {
        let name = post.subscription.name.clone();
        let mut seqs: Vec<u64> = post.events.iter().map(|event| event.seq()).collect();
        let (hang, reply) = match self.temper {
            Temper::Good => (1, DeliveryOutcome::Delivered.into()),
            Temper::Bad => {
                seqs.clear();
                (1 + (self.rng.next() % 3_000) as u64, DeliveryOutcome::Failed.into())
            }
            Temper::Partly => {
                let last = seqs.pop().unwrap_or(0);
                // Events are called by the numbers that they were published with, from 0 on.
                (1_000, EndpointReply::partly(vec![(last - 1).to_string()]))
            }
        };
        if !seqs.is_empty() {
            self.got.entry(name.clone()).or_default().push((post.batch, seqs, post.body()));
        }
        self.flights.push((self.now() + hang, at, name, post.batch, reply));
    }

    /// The progress of a subscription is written once more, unchanged, by another writer.
    pub fn touch(&mut self, name: &str) {
        let key = DocumentKey::new(record::DELIVERY, name);
        let Found::Document(Some(found)) = self.engine.peek(Read::Document(key)) else {
            panic!("no progress")
        };
        let (operator, operator_answers) = (self.operator.clone(), self.operator_answers.clone());
        let puts = vec![Row::Document(found.row)];
        self.commit(&operator, &operator_answers, &Commit { puts, ..Commit::default() });
    }

    /// The stored attempts of all subscriptions, by number.
    pub fn attempts(&self) -> Vec<AttemptRecord> {
        let after = Some(RowKey::Document(DocumentKey::new(record::ATTEMPT, "")));
        let Found::Rows(page) = self.engine.peek(Read::Rows { kind: RowKind::Document, after, limit: 1_000 })
        else {
            panic!("no rows")
        };
        let mut attempts: Vec<AttemptRecord> = page
            .rows
            .iter()
            .filter_map(|found| match &found.row {
                Row::Document(row) if row.key.kind() == record::ATTEMPT => record::read(&row.body).ok(),
                _ => None,
            })
            .collect();
        attempts.sort_by_key(|attempt| attempt.number);
        attempts
    }

    /// The deadlines of deliveries that are due by now.
    pub fn deadlines(&mut self, by: Time) -> Vec<Deadline> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let read = Read::DueDeadlines { by, after: None, limit: 1_000 };
        self.operator.submit(vec![(ticket, Work::Read(read))]);
        loop {
            let mut answers = self.operator_answers.0.lock().unwrap();
            if let Some(at) = answers.iter().position(|(known, _)| *known == ticket) {
                return match answers.remove(at).1 {
                    StoreAnswer::Read(Found::Deadlines(page)) => page.rows,
                    _ => Vec::new(),
                };
            }
            drop(answers);
            assert!(self.engine.step(), "the store answers");
        }
    }

    /// The check that the liveness of each node makes at a heartbeat.
    fn look(&mut self) {
        let now = self.now();
        if now < self.sweep {
            return;
        }
        self.sweep = now + SETTINGS.check_ms;
        let overdue = self.deadlines(now - 1_000);
        for (node, asleep) in self.nodes.iter_mut().zip(&self.asleep) {
            if let Some(node) = node.as_mut().filter(|_| *asleep <= now) {
                overdue.iter().for_each(|deadline| node.worker.overdue(now, deadline));
            }
        }
    }

    pub fn pass(&mut self, ms: u64) {
        let until = self.now() + ms;
        while self.now() < until {
            let now = self.now();
            let awake = self.nodes.iter().zip(&self.asleep).filter(|(_, asleep)| **asleep <= now);
            let wakes = awake.filter_map(|(node, _)| Some(node.as_ref()?.worker.next_wake()));
            let sleepers = self.asleep.iter().copied().filter(|asleep| *asleep > now);
            let next = wakes
                .chain(self.flights.iter().map(|flight| flight.0))
                .chain(sleepers)
                .chain([self.sweep])
                .min()
                .unwrap_or(until);
            self.clock.advance(next.max(now + 1).min(until).since(now));
            let now = self.now();
            let (done, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.flights)
                .into_iter()
                .partition(|flight| flight.0 <= now && self.asleep[flight.1] <= now);
            self.flights = rest;
            for (_, at, name, batch, reply) in done {
                if let Some(node) = &mut self.nodes[at] {
                    node.worker.posted(now, &name, batch, reply.into());
                }
            }
            self.look();
            self.settle();
        }
    }

    /// Everything arrived, in order, and duplicates are identical.
    pub fn check(&self, name: &str, events: u64, ordered: bool) {
        let got = self.got.get(name).map_or(&[][..], Vec::as_slice);
        let mut bodies: BTreeMap<u64, &Got> = BTreeMap::new();
        let mut reached = 0;
        let mut all = std::collections::BTreeSet::new();
        for post in got {
            let (batch, seqs, _) = post;
            if let Some(before) = bodies.insert(*batch, post) {
                assert_eq!(before, post, "batch {batch} of {name} is the same again");
            } else if ordered {
                assert_eq!(
                    seqs.first(),
                    Some(&(reached + 1)),
                    "{name}: batch {batch} follows what came before"
                );
            }
            reached = reached.max(seqs.last().copied().unwrap_or(0));
            all.extend(seqs.iter().copied());
        }
        let expected: std::collections::BTreeSet<u64> = (1..=events).collect();
        assert_eq!(all, expected, "{name} has everything without holes");
        assert_eq!(self.failures, [] as [String; 0]);
    }
}
