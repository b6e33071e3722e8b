//! The node under test, its store and its clock.

use std::sync::{Arc, Mutex};
use tavern_domain::presence::{Attendance, ChannelClient, NodeEpoch, OfflineReason};
use tavern_domain::{ClientId, Epoch, Identity, Time};
use tavern_hub::{Liveness, LivenessEvent, LivenessRules, LivenessTask, Node, Settings, TokenVerifier};
use tavern_store::memory::{Faults, MemoryEngine, MemoryStore, WorkFault, WorkOutcome};
use tavern_store::{
    AnswerReceiver, ChannelVersionBump, Commit, Found, ManualClock, NodeChange, PresenceKey, PresenceRow,
    Read, Row, Store, StoreAnswer, Ticket, Work, Writer,
};
use tavern_wire::error::{Code, Refusal};

pub const RULES: LivenessRules = LivenessRules {
    heartbeat_ms: 2_000,
    lease_ms: 10_000,
    drain_ms: 15_000,
    sweep_ms: 60_000,
    sweep_age_ms: 120_000,
};

/// Refuses every token: these tests have no clients.
struct RefuseAll;

impl TokenVerifier for RefuseAll {
    fn verify(&self, _token: &str, _now: Time) -> Result<Identity, Refusal> {
        Err(Refusal::new(Code::Unauthenticated, "no clients here"))
    }
}

/// How the store answers the node under test.
#[derive(Clone, Copy, PartialEq)]
pub enum StoreHealth {
    Up,
    Down,
    /// Epochs are opened, and the node does not learn it.
    Forgetful,
    /// Every answer takes a minute.
    Slow,
}

struct StoreFaults(Arc<Mutex<StoreHealth>>);

impl Faults for StoreFaults {
    fn work(&mut self, node: &str, work: &Work) -> WorkFault {
        let opens = matches!(work, Work::Commit(Commit { node: Some(NodeChange::Open { .. }), .. }));
        match *self.0.lock().unwrap() {
            _ if node == "setup" => WorkFault::NONE,
            StoreHealth::Up => WorkFault::NONE,
            StoreHealth::Forgetful if opens => {
                WorkFault { outcome: WorkOutcome::FailAfter, ..WorkFault::NONE }
            }
            StoreHealth::Forgetful => WorkFault::NONE,
            StoreHealth::Down => WorkFault { outcome: WorkOutcome::FailBefore, ..WorkFault::NONE },
            StoreHealth::Slow => WorkFault { before_ms: 60_000, ..WorkFault::NONE },
        }
    }
}

#[derive(Default)]
pub struct Answers(pub Mutex<Vec<(Ticket, StoreAnswer)>>);

impl AnswerReceiver for Answers {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

/// The node under test, and its store.
pub struct Harness {
    pub clock: Arc<ManualClock>,
    pub engine: Arc<MemoryEngine>,
    pub health: Arc<Mutex<StoreHealth>>,
    pub node: Arc<Node>,
    pub liveness: Liveness,
    pub store: Arc<MemoryStore>,
    pub answers: Arc<Answers>,
    pub tasks: Vec<LivenessTask>,
    pub events: Vec<LivenessEvent>,
    /// How much work was submitted, and how much of it writes.
    pub submitted: usize,
    pub commits: usize,
}

impl Harness {
    pub fn new() -> Harness {
        let clock = Arc::new(ManualClock::at(Time(1_000_000)));
        let health = Arc::new(Mutex::new(StoreHealth::Up));
        let engine = MemoryEngine::stepped(clock.clone(), Box::new(StoreFaults(health.clone())));
        let answers: Arc<Answers> = Arc::default();
        let store = engine.store("own", answers.clone());
        let epoch = open(&engine, "own", RULES.lease_ms);
        let settings = Settings { node: "own".into(), epoch, ..Settings::default() };
        let node = Node::new(settings, Box::new(RefuseAll));
        let liveness = Liveness::new(node.clone(), RULES, Time(1_000_000));
        let (tasks, events) = (Vec::new(), Vec::new());
        Harness {
            clock,
            engine,
            health,
            node,
            liveness,
            store,
            answers,
            tasks,
            events,
            submitted: 0,
            commits: 0,
        }
    }

    pub fn now(&self) -> Time {
        use tavern_store::Clock;
        self.clock.now()
    }

    pub fn settle(&mut self) {
        loop {
            let effects = std::mem::take(&mut self.liveness.effects);
            self.submitted += effects.work.len();
            self.commits += effects.work.iter().filter(|(_, work)| matches!(work, Work::Commit(_))).count();
            self.store.submit(effects.work);
            self.tasks.extend(effects.tasks);
            self.events.extend(effects.events);
            self.engine.settle();
            let answers = std::mem::take(&mut *self.answers.0.lock().unwrap());
            if answers.is_empty() {
                return;
            }
            for (ticket, answer) in answers {
                self.liveness.answered(self.now(), ticket, answer);
            }
        }
    }

    pub fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.clock.advance(100);
            self.liveness.wake(self.now());
            self.settle();
        }
    }

    pub fn set(&self, health: StoreHealth) {
        *self.health.lock().unwrap() = health;
    }

    pub fn nodes(&self) -> Vec<tavern_store::NodeRow> {
        match ask(&self.engine, Work::Read(Read::Nodes { after: None, limit: 100 })) {
            StoreAnswer::Read(Found::Nodes(page)) => page.rows,
            other => panic!("expected nodes, got {other:?}"),
        }
    }

    pub fn taken(&self) -> Vec<(Arc<str>, OfflineReason, Time)> {
        let taken = self.tasks.iter().filter_map(|task| match task {
            LivenessTask::TakeOver(taken) => {
                Some((taken.presence.key.user.clone(), taken.loss.reason, taken.loss.at))
            }
            _ => None,
        });
        taken.collect()
    }

    pub fn last_seen(&self) -> Vec<Time> {
        let seen = self.tasks.iter().filter_map(|task| match task {
            LivenessTask::TakeOver(taken) => Some(taken.seen),
            _ => None,
        });
        seen.collect()
    }

    pub fn count(&self, is: impl Fn(&LivenessTask) -> bool) -> usize {
        self.tasks.iter().filter(|task| is(task)).count()
    }
}

/// Asks the store as another node, for which it is always up.
pub fn ask(engine: &Arc<MemoryEngine>, work: Work) -> StoreAnswer {
    let answers: Arc<Answers> = Arc::default();
    engine.store("setup", answers.clone()).submit(vec![(Ticket(0), work)]);
    engine.settle();
    let answer = answers.0.lock().unwrap().pop();
    answer.expect("no answer").1
}

pub fn open(engine: &Arc<MemoryEngine>, name: &str, lease_ms: u64) -> Epoch {
    let open = NodeChange::Open { name: name.into(), lease_ms };
    match ask(engine, Work::Commit(Commit { node: Some(open), ..Commit::default() })) {
        StoreAnswer::Committed(receipt) => receipt.epoch.unwrap(),
        other => panic!("expected an epoch, got {other:?}"),
    }
}

pub fn change(engine: &Arc<MemoryEngine>, change: NodeChange) {
    let answer = ask(engine, Work::Commit(Commit { node: Some(change), ..Commit::default() }));
    assert!(matches!(answer, StoreAnswer::Committed(_)), "{answer:?}");
}

pub fn put(engine: &Arc<MemoryEngine>, user: &str, writer: &Writer) {
    let client = ChannelClient {
        client: ClientId::from_random(1),
        node: NodeEpoch::from(writer),
        state: None,
        since: Time(7),
        lost: None,
    };
    let row = PresenceRow {
        key: PresenceKey::new("game#A", user),
        anonymous: false,
        name: None,
        visibility: tavern_domain::presence::Visibility::Everyone,
        attendance: Attendance::restore(vec![client], Time(7), None),
    };
    let raises = vec![ChannelVersionBump { channel: "game#A".into(), by: 2 }];
    let commit = Commit { puts: vec![Row::Presence(row)], raises, ..Commit::default() };
    assert!(matches!(ask(engine, Work::Commit(commit)), StoreAnswer::Committed(_)));
}
