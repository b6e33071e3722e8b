//! Nodes of one shard each, their store in memory, and the time between them.
//! Must hold: everything depends on the clock and on the commands of a test alone.

use crate::harness::{SequentialRandom, TokenNames};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tavern_domain::{Epoch, Time};
use tavern_hub::topics::delivery::DeliveryNotice;
use tavern_hub::topics::{
    Pulled, ReplayFrom, SubscriptionChange, SubscriptionState, TopicCaller, TopicCommand, TopicReply,
};
use tavern_hub::{Node, RandomSource, RetentionRules, Settings, Shard, ShardEvent};
use tavern_store::memory::{Faults, MemoryEngine, MemoryStore, MessageFault, WorkFault, WorkOutcome};
use tavern_store::{
    AnswerReceiver, BusPacket, Clock, Commit, Deadline, Document, DocumentKey, Found, ManualClock,
    NodeChange, Read, Row, Store, StoreAnswer, Ticket, Work,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::PublishedEvent;

pub const HOUR_MS: u64 = 3_600_000;

#[derive(Default)]
struct Answers(Mutex<Vec<(Ticket, StoreAnswer)>>);

impl AnswerReceiver for Answers {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

/// How long a slow request takes.
pub const SLOW_MS: u64 = 30_000;

/// Which requests of a node are slow; empty again as soon as there was one.
pub type SlowRequest = Arc<Mutex<Option<fn(&str, &Work) -> bool>>>;

/// Every so many requests one fails before or after the commit.
struct Luck {
    rng: SequentialRandom,
    unlucky: Arc<AtomicBool>,
    slow: SlowRequest,
}

impl Faults for Luck {
    fn message(&mut self, _: &str, _: &str, _: &BusPacket) -> MessageFault {
        MessageFault::once()
    }

    fn work(&mut self, node: &str, work: &Work) -> WorkFault {
        if self.slow.lock().unwrap().take_if(|slow| slow(node, work)).is_some() {
            return WorkFault { before_ms: SLOW_MS, ..WorkFault::NONE };
        }
        match self.unlucky.load(Ordering::Relaxed).then(|| self.rng.next() % 20) {
            Some(0) => WorkFault { outcome: WorkOutcome::FailBefore, ..WorkFault::NONE },
            Some(1) => WorkFault { outcome: WorkOutcome::FailAfter, ..WorkFault::NONE },
            _ => WorkFault::NONE,
        }
    }

    fn subscribe(&mut self, _: &str) -> Option<u64> {
        Some(0)
    }
}

pub struct TestNode {
    pub shard: Shard,
    store: Arc<MemoryStore>,
    answers: Arc<Answers>,
}

pub struct Cluster {
    pub clock: Arc<ManualClock>,
    engine: Arc<MemoryEngine>,
    pub nodes: Vec<TestNode>,
    number: u64,
    /// How many requests the store was sent.
    pub works: usize,
    pub replies: Vec<(u64, Result<TopicReply, Refusal>)>,
    slow: SlowRequest,
    /// Subscriptions that lost events: first and last.
    pub lost: Vec<(String, u64, u64)>,
}

pub fn rules() -> RetentionRules {
    RetentionRules { retention_ms: HOUR_MS, max_bytes: 1 << 30, low_bytes: 1 << 29, dedupe_max: 1_000_000 }
}

impl Cluster {
    pub fn new(nodes: usize, retention: Option<RetentionRules>) -> Cluster {
        Cluster::with_luck(nodes, retention, false)
    }

    pub fn with_luck(nodes: usize, retention: Option<RetentionRules>, unlucky: bool) -> Cluster {
        let clock = Arc::new(ManualClock::at(Time(10 * HOUR_MS)));
        let switch = Arc::new(AtomicBool::new(false));
        let slow = SlowRequest::default();
        let luck = Luck { rng: SequentialRandom::new(5), unlucky: switch.clone(), slow: slow.clone() };
        let engine = MemoryEngine::stepped(clock.clone(), Box::new(luck));
        let mut cluster = Cluster {
            clock,
            engine,
            nodes: Vec::new(),
            number: 0,
            works: 0,
            replies: Vec::new(),
            slow,
            lost: Vec::new(),
        };
        for at in 0..nodes {
            cluster.open(at, retention);
        }
        switch.store(unlucky, Ordering::Relaxed);
        cluster
    }

    pub fn open(&mut self, at: usize, retention: Option<RetentionRules>) {
        let name = format!("n{at}");
        let answers = Arc::new(Answers::default());
        let store = self.engine.store(&name, answers.clone());
        let open = NodeChange::Open { name: name.as_str().into(), lease_ms: 600_000 };
        store.submit(vec![(Ticket(1), Work::Commit(Commit { node: Some(open), ..Commit::default() }))]);
        while self.engine.step() {}
        let Some((_, StoreAnswer::Committed(receipt))) = answers.0.lock().unwrap().pop() else {
            panic!("opened")
        };
        let epoch = receipt.epoch.unwrap_or(Epoch(0));
        let mut settings = Settings { node: name, epoch, ..Settings::default() };
        settings.topics.retention = retention;
        let node = Node::new(settings, Box::new(TokenNames));
        let shard = Shard::new(node, 0, Box::new(SequentialRandom::new(at as u128)), self.clock.now());
        self.nodes.push(TestNode { shard, store, answers });
    }

    /// Carries requests and answers until there are none.
    pub fn settle(&mut self) {
        loop {
            let mut quiet = true;
            let now = self.clock.now();
            for node in &mut self.nodes {
                for (ticket, answer) in std::mem::take(&mut *node.answers.0.lock().unwrap()) {
                    node.shard.handle(now, ShardEvent::Answer(ticket, answer));
                }
                let work = std::mem::take(&mut node.shard.core.effects.work);
                quiet &= work.is_empty();
                self.works += work.len();
                node.store.submit(work);
                let effects = node.shard.topic_effects();
                self.replies.append(&mut effects.replies);
                assert!(effects.corrupt.is_empty());
                for notice in effects.notices.drain(..) {
                    if let DeliveryNotice::Lost { subscription, first, last } = notice {
                        self.lost.push((subscription.to_string(), first, last));
                    }
                }
            }
            if !self.engine.step() && quiet {
                return;
            }
        }
    }

    pub fn pass(&mut self, ms: u64) {
        let until = self.clock.now() + ms;
        while self.clock.now() < until {
            let now = self.clock.now();
            let wakes = self.nodes.iter().filter_map(|node| node.shard.next_wake());
            let next = wakes.min().unwrap_or(until).max(now + 1).min(until);
            self.clock.advance(next.since(now));
            for node in &mut self.nodes {
                node.shard.wake(next);
            }
            self.settle();
        }
    }

    /// The next such request takes a while.
    pub fn slow_down(&mut self, slow: fn(&str, &Work) -> bool) {
        *self.slow.lock().unwrap() = Some(slow);
    }

    /// Time passes until a node has sent such a request.
    pub fn pass_until_slow(&mut self, slow: fn(&str, &Work) -> bool) {
        self.slow_down(slow);
        for _ in 0..200 {
            if self.slow.lock().unwrap().is_none() {
                return;
            }
            self.pass(1_000);
        }
        panic!("no such request");
    }

    pub fn ask(&mut self, at: usize, key: &str, command: TopicCommand) -> u64 {
        self.number += 1;
        let caller = TopicCaller { id: key.into(), admin: key == "admin" };
        let input = ShardEvent::Topic { number: self.number, caller, command };
        self.nodes[at].shard.handle(self.clock.now(), input);
        self.settle();
        self.number
    }

    pub fn reply(&mut self, number: u64) -> Option<Result<TopicReply, Refusal>> {
        let at = self.replies.iter().position(|(known, _)| *known == number)?;
        Some(self.replies.remove(at).1)
    }

    /// A command that does not wait.
    pub fn run(&mut self, key: &str, command: TopicCommand) -> Result<TopicReply, Refusal> {
        let number = self.ask(0, key, command);
        self.reply(number).expect("a reply")
    }

    pub fn refused(&mut self, key: &str, command: TopicCommand) -> Code {
        self.run(key, command).expect_err("a refusal").code
    }

    pub fn subscribe(&mut self, name: &str, topics: &[&str]) {
        self.put("ann", name, pulled(topics)).unwrap();
    }

    pub fn put(&mut self, key: &str, name: &str, change: SubscriptionChange) -> Result<TopicReply, Refusal> {
        self.run(key, TopicCommand::PutSubscription { name: name.into(), change: Box::new(change) })
    }

    pub fn publish(&mut self, at: usize, topic: &str, events: usize) {
        let event = |n: usize| PublishedEvent { id: None, body: format!("{{\"n\":{n}}}").into_bytes() };
        let events = (0..events).map(event).collect();
        let command = TopicCommand::Publish { topic: topic.into(), once: None, events };
        let number = self.ask(at, "ann", command);
        assert!(matches!(self.reply(number), Some(Ok(TopicReply::Published(_)))));
    }

    pub fn show(&mut self, name: &str) -> SubscriptionState {
        match self.run("ann", TopicCommand::ShowSubscription { name: name.into() }).unwrap() {
            TopicReply::Subscription(state) => *state,
            other => panic!("{other:?}"),
        }
    }

    pub fn pull(&mut self, name: &str, after: Option<u64>, limit: u32) -> Pulled {
        let command = TopicCommand::Pull { name: name.into(), after, limit, wait_ms: 0 };
        match self.run("ann", command).unwrap() {
            TopicReply::Pulled(pulled) => pulled,
            other => panic!("{other:?}"),
        }
    }

    pub fn replay(&mut self, name: &str, from: ReplayFrom) -> Result<(u64, bool), Code> {
        match self.run("ann", TopicCommand::Replay { name: name.into(), from }) {
            Ok(TopicReply::Replayed { from_seq, rewound }) => Ok((from_seq, rewound)),
            Ok(other) => panic!("{other:?}"),
            Err(refused) => Err(refused.code),
        }
    }

    pub fn handle(&mut self, at: usize, input: ShardEvent) {
        self.nodes[at].shard.handle(self.clock.now(), input);
        self.settle();
    }

    /// The deadlines that are due by now.
    pub fn overdue(&self) -> Vec<Deadline> {
        match self.engine.peek(Read::DueDeadlines { by: self.clock.now(), after: None, limit: 10 }) {
            Found::Deadlines(page) => page.rows,
            other => panic!("{other:?}"),
        }
    }

    pub fn document(&self, kind: &str, name: &str) -> Option<Document> {
        match self.engine.peek(Read::Document(DocumentKey::new(kind, name))) {
            Found::Document(found) => found.map(|found| found.row),
            other => panic!("{other:?}"),
        }
    }

    pub fn write(&mut self, kind: &str, name: &str, body: Vec<u8>) {
        let row = Document { key: DocumentKey::new(kind, name), body: body.into() };
        let commit = Commit { puts: vec![Row::Document(row)], ..Commit::default() };
        self.nodes[0].store.submit(vec![(Ticket(u64::MAX), Work::Commit(commit))]);
        while self.engine.step() {}
        self.nodes[0].answers.0.lock().unwrap().clear();
    }
}

pub fn pulled(topics: &[&str]) -> SubscriptionChange {
    SubscriptionChange {
        topics: Some(topics.iter().map(|topic| Arc::from(*topic)).collect()),
        pull: Some(true),
        spare_secret: "whsec_spare".into(),
        ..SubscriptionChange::default()
    }
}

pub fn seqs(pulled: &Pulled) -> (u32, u64, u64) {
    (pulled.count, pulled.first_seq, pulled.last_seq)
}
