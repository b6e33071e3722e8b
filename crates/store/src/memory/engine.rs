//! One store and one bus that the nodes of a process share. Stores nothing on disk. Has two modes. Immediate: work is
//! done and answered on the calling thread. Stepped: work waits until `step`, and `Faults` decides what fails; the
//! simulator uses this mode. Must hold: the same calls in the same order give the same answers; a receiver is never
//! called under the lock.

use super::bus::BusSubscribers;
use super::fault::{Faults, WorkFault, WorkOutcome};
use super::tables::MemoryTables;
use crate::bus::{BusError, BusLoss, BusPacket, BusReceiver};
use crate::clock::Clock;
use crate::error::{Outage, StoreError};
use crate::interest::Interest;
use crate::limits;
use crate::read::{Found, Read};
use crate::store::{AnswerReceiver, StoreAnswer, Ticket, Work};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_domain::Time;

/// The in-memory engine. The nodes of a process share one; `store` and `bus` give each node its handles.
pub struct MemoryEngine {
    clock: Arc<dyn Clock>,
    state: Mutex<EngineState>,
}

/// The receiver of one node's answers.
pub(super) struct NodeAnswers {
    pub node: Arc<str>,
    pub receiver: Arc<dyn AnswerReceiver>,
    pub crashed: AtomicBool,
}

struct EngineState {
    tables: MemoryTables,
    subscribers: BusSubscribers,
    /// Only in stepped mode. The agenda is bounded by what the simulator submits.
    faults: Option<Box<dyn Faults>>,
    agenda: BTreeMap<(Time, u64), EngineTask>,
    tasks: u64,
    commits: u64,
}

enum EngineTask {
    Perform { answers: Arc<NodeAnswers>, ticket: Ticket, work: Work, fault: WorkFault },
    Answer { answers: Arc<NodeAnswers>, ticket: Ticket, answer: StoreAnswer },
    Subscribe { subscriber: u64, interests: Vec<Interest>, ticket: Ticket, outcome: Result<(), BusError> },
    Deliver { subscriber: u64, message: BusPacket },
    Lose { subscriber: u64, lost: BusLoss },
}

impl MemoryEngine {
    /// In immediate mode: work is done on the calling thread.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<MemoryEngine> {
        MemoryEngine::with_faults(clock, None)
    }

    /// In stepped mode: work waits until `step`.
    pub fn stepped(clock: Arc<dyn Clock>, faults: Box<dyn Faults>) -> Arc<MemoryEngine> {
        MemoryEngine::with_faults(clock, Some(faults))
    }

    fn with_faults(clock: Arc<dyn Clock>, faults: Option<Box<dyn Faults>>) -> Arc<MemoryEngine> {
        let (tables, subscribers, agenda) =
            (MemoryTables::default(), BusSubscribers::default(), BTreeMap::new());
        let state = EngineState { tables, subscribers, faults, agenda, tasks: 0, commits: 0 };
        Arc::new(MemoryEngine { clock, state: Mutex::new(state) })
    }

    /// Runs the next item that is due by the clock. False: nothing is due. For one thread at a time.
    pub fn step(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let Some(entry) = state.agenda.first_entry().filter(|entry| entry.key().0 <= now) else {
            return false;
        };
        match entry.remove() {
            EngineTask::Perform { answers, ticket, work, fault } => {
                let mut answer = StoreAnswer::Failed(StoreError::from(Outage::Injected));
                if fault.outcome != WorkOutcome::FailBefore {
                    let done = state.tables.perform(now, &work);
                    state.commits += u64::from(matches!(done, StoreAnswer::Committed(_)));
                    if fault.outcome == WorkOutcome::Perform {
                        answer = done;
                    }
                }
                state.add(now + fault.after_ms, EngineTask::Answer { answers, ticket, answer });
            }
            EngineTask::Answer { answers, ticket, answer } => {
                drop(state);
                answers.answer(vec![(ticket, answer)]);
            }
            EngineTask::Subscribe { subscriber, interests, ticket, outcome } => {
                if outcome.is_ok() {
                    state.subscribers.subscribe(subscriber, interests);
                }
                let receiver = state.subscribers.receiver(subscriber);
                drop(state);
                receiver.inspect(|receiver| receiver.confirmed(ticket, outcome));
            }
            EngineTask::Deliver { subscriber, message } => {
                let receiver = state.subscribers.receiver(subscriber);
                drop(state);
                receiver.inspect(|receiver| receiver.messages(vec![message]));
            }
            EngineTask::Lose { subscriber, lost } => {
                let receiver = state.subscribers.receiver(subscriber);
                drop(state);
                receiver.inspect(|receiver| receiver.lost(lost));
            }
        }
        true
    }

    /// Steps until nothing is due.
    pub fn settle(&self) {
        while self.step() {}
    }

    /// What the store would answer now, without faults: for judges.
    pub fn peek(&self, read: Read) -> Found {
        let now = self.clock.now();
        match self.lock().tables.perform(now, &Work::Read(read)) {
            StoreAnswer::Read(found) => found,
            other => unreachable!("a read was answered with {other:?}"),
        }
    }

    /// How many commits were performed in steps: while it does not grow, nothing has changed.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// When the next thing is due.
    pub fn next_due(&self) -> Option<Time> {
        self.lock().agenda.first_key_value().map(|((due, _), _)| *due)
    }

    fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn submit(&self, answers: &Arc<NodeAnswers>, works: Vec<(Ticket, Work)>) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.faults.is_none() {
            let mut done = Vec::with_capacity(works.len());
            for (ticket, work) in works {
                done.push((ticket, state.tables.perform(now, &work)));
            }
            drop(state);
            return answers.answer(done);
        }
        for (ticket, work) in works {
            let fault =
                state.faults.as_mut().map_or(WorkFault::NONE, |faults| faults.work(&answers.node, &work));
            let answers = answers.clone();
            state.add(now + fault.before_ms, EngineTask::Perform { answers, ticket, work, fault });
        }
    }

    pub(super) fn join(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> u64 {
        self.lock().subscribers.join(node, receiver)
    }

    pub(super) fn leave(&self, subscriber: u64) {
        self.lock().subscribers.leave(subscriber);
    }

    pub(super) fn publish(&self, batch: Vec<BusPacket>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let mut delivered: BTreeMap<u64, Vec<BusPacket>> = BTreeMap::new();
        for message in batch {
            for (subscriber, to) in state.subscribers.matching(&message) {
                let Some(faults) = state.faults.as_mut() else {
                    delivered.entry(subscriber).or_default().push(message.clone());
                    continue;
                };
                let fault = faults.message(&message.from.node, &to, &message);
                for after_ms in fault.copies {
                    state.add(now + after_ms, EngineTask::Deliver { subscriber, message: message.clone() });
                }
                if fault.reported {
                    state.add(
                        now,
                        EngineTask::Lose { subscriber, lost: BusLoss::On(message.subject.clone()) },
                    );
                }
            }
        }
        let delivered: Vec<_> = delivered
            .into_iter()
            .map(|(subscriber, messages)| (state.subscribers.receiver(subscriber), messages))
            .collect();
        drop(state);
        for (receiver, messages) in delivered {
            receiver.inspect(|receiver| receiver.messages(messages));
        }
    }

    /// True: it is confirmed at once.
    pub(super) fn subscribe(&self, subscriber: u64, interests: Vec<Interest>, ticket: Ticket) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let Some(node) = state.subscribers.node(subscriber) else { return false };
        if state.subscribers.has(subscriber, &interests) {
            return true;
        }
        let Some(faults) = state.faults.as_mut() else {
            state.subscribers.subscribe(subscriber, interests);
            return true;
        };
        let delay_ms = faults.subscribe(&node);
        let refused = || BusError::Unavailable {
            retry_after_ms: limits::RETRY_AFTER_MS,
            source: Arc::new(Outage::Injected),
        };
        let outcome = if delay_ms.is_some() { Ok(()) } else { Err(refused()) };
        state.add(
            now + delay_ms.unwrap_or(0),
            EngineTask::Subscribe { subscriber, interests, ticket, outcome },
        );
        false
    }

    pub(super) fn unsubscribe(&self, subscriber: u64, interests: &[Interest]) {
        self.lock().subscribers.unsubscribe(subscriber, interests);
    }
}

impl EngineState {
    fn add(&mut self, due: Time, task: EngineTask) {
        self.agenda.insert((due, self.tasks), task);
        self.tasks += 1;
    }
}

impl NodeAnswers {
    pub fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        if !self.crashed.load(Ordering::SeqCst) {
            self.receiver.answer(answers);
        }
    }
}
