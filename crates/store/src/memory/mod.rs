//! The memory engine: a hall in which the nodes of one process share a store and a bus. Keeps nothing on disk.
//! Driven in one of two ways. Prompt: work is done and answered on the calling thread. Stepped: work waits until
//! `step`, and a `Faults` decides what goes wrong; this is how the simulator drives it.
//! Must hold: the same calls in the same order give the same answers; an inbox is never called under the lock.

mod bus;
mod deadline;
mod document;
mod fault;
mod hold;
mod key;
mod lease;
mod letter;
mod log;
mod node;
mod presence;
mod session;
mod social;
mod store;

pub use bus::MemoryBus;
pub use fault::{Faults, NoFaults, Outcome, ParcelFate, WorkFate};
pub use store::MemoryStore;

use crate::bus::{BusError, Lost, Parcel};
use crate::clock::Clock;
use crate::interest::Interest;
use crate::limits;
use crate::store::{Answer, Found, Inbox, Outage, Read, StoreError, Ticket, Work};
use bus::Seats;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Desk, MemoryTables};
use tavern_domain::Time;

pub struct Hall {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    tables: MemoryTables,
    seats: Seats,
    /// Only the stepped drive has faults and an agenda. The agenda is bounded by what the simulator submits.
    faults: Option<Box<dyn Faults>>,
    agenda: BTreeMap<(Time, u64), Task>,
    tasks: u64,
    commits: u64,
}

enum Task {
    Perform { desk: Arc<Desk>, ticket: Ticket, work: Work, fate: WorkFate },
    Answer { desk: Arc<Desk>, ticket: Ticket, answer: Answer },
    Subscribe { seat: u64, interests: Vec<Interest>, ticket: Ticket, outcome: Result<(), BusError> },
    Deliver { seat: u64, parcel: Parcel },
    Lose { seat: u64, lost: Lost },
}

impl Hall {
    /// The prompt drive.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Hall> {
        Hall::driven(clock, None)
    }

    /// The stepped drive.
    pub fn stepped(clock: Arc<dyn Clock>, faults: Box<dyn Faults>) -> Arc<Hall> {
        Hall::driven(clock, Some(faults))
    }

    fn driven(clock: Arc<dyn Clock>, faults: Option<Box<dyn Faults>>) -> Arc<Hall> {
        let (tables, seats, agenda) = (MemoryTables::default(), Seats::default(), BTreeMap::new());
        Arc::new(Hall {
            clock,
            state: Mutex::new(State { tables, seats, faults, agenda, tasks: 0, commits: 0 }),
        })
    }

    /// A place at the store. `node` names it to the faults.
    pub fn store(self: &Arc<Hall>, node: &str, inbox: Arc<dyn Inbox>) -> Arc<MemoryStore> {
        Arc::new(MemoryStore::new(self.clone(), node, inbox))
    }

    /// Does the next thing that is due by the wall clock. False: nothing is. For one thread at a time.
    pub fn step(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let Some(entry) = state.agenda.first_entry().filter(|entry| entry.key().0 <= now) else {
            return false;
        };
        match entry.remove() {
            Task::Perform { desk, ticket, work, fate } => {
                let mut answer = Answer::Failed(StoreError::from(Outage::Injected));
                if fate.outcome != Outcome::FailBefore {
                    let done = state.tables.perform(now, &work);
                    state.commits += u64::from(matches!(done, Answer::Committed(_)));
                    if fate.outcome == Outcome::Perform {
                        answer = done;
                    }
                }
                state.add(now + fate.after_ms, Task::Answer { desk, ticket, answer });
            }
            Task::Answer { desk, ticket, answer } => {
                drop(state);
                desk.answer(vec![(ticket, answer)]);
            }
            Task::Subscribe { seat, interests, ticket, outcome } => {
                if outcome.is_ok() {
                    state.seats.subscribe(seat, interests);
                }
                let inbox = state.seats.inbox(seat);
                drop(state);
                inbox.inspect(|inbox| inbox.confirmed(ticket, outcome));
            }
            Task::Deliver { seat, parcel } => {
                let inbox = state.seats.inbox(seat);
                drop(state);
                inbox.inspect(|inbox| inbox.words(vec![parcel]));
            }
            Task::Lose { seat, lost } => {
                let inbox = state.seats.inbox(seat);
                drop(state);
                inbox.inspect(|inbox| inbox.lost(lost));
            }
        }
        true
    }

    /// Steps until nothing is due.
    pub fn settle(&self) {
        while self.step() {}
    }

    /// What the store would answer at this moment: for whoever judges it from outside. Asks no faults.
    pub fn peek(&self, read: Read) -> Found {
        let now = self.clock.now();
        match self.lock().tables.perform(now, &Work::Read(read)) {
            Answer::Read(found) => found,
            other => unreachable!("a read was answered with {other:?}"),
        }
    }

    /// How many commits were carried out in steps: while it stays, nothing has changed.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// When there is something to do again.
    pub fn next_due(&self) -> Option<Time> {
        self.lock().agenda.first_key_value().map(|((due, _), _)| *due)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, desk: &Arc<Desk>, works: Vec<(Ticket, Work)>) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.faults.is_none() {
            let mut answers = Vec::with_capacity(works.len());
            for (ticket, work) in works {
                answers.push((ticket, state.tables.perform(now, &work)));
            }
            drop(state);
            return desk.answer(answers);
        }
        for (ticket, work) in works {
            let fate = state.faults.as_mut().map_or(WorkFate::NONE, |faults| faults.work(&desk.node, &work));
            let desk = desk.clone();
            state.add(now + fate.before_ms, Task::Perform { desk, ticket, work, fate });
        }
    }

    fn publish(&self, batch: Vec<Parcel>) {
        let now = self.clock.now();
        let mut state = self.lock();
        let mut heard: BTreeMap<u64, Vec<Parcel>> = BTreeMap::new();
        for parcel in batch {
            for (seat, to) in state.seats.hearing(&parcel) {
                let Some(faults) = state.faults.as_mut() else {
                    heard.entry(seat).or_default().push(parcel.clone());
                    continue;
                };
                let fate = faults.parcel(&parcel.from.node, &to, &parcel);
                for after_ms in fate.copies {
                    state.add(now + after_ms, Task::Deliver { seat, parcel: parcel.clone() });
                }
                if fate.told {
                    state.add(now, Task::Lose { seat, lost: Lost::On(parcel.subject.clone()) });
                }
            }
        }
        let heard: Vec<_> = heard.into_iter().map(|(seat, words)| (state.seats.inbox(seat), words)).collect();
        drop(state);
        for (inbox, words) in heard {
            inbox.inspect(|inbox| inbox.words(words));
        }
    }

    /// True: it holds at once.
    fn subscribe(&self, seat: u64, interests: Vec<Interest>, ticket: Ticket) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        let Some(node) = state.seats.node(seat) else { return false };
        if state.seats.holds(seat, &interests) {
            return true;
        }
        let Some(faults) = state.faults.as_mut() else {
            state.seats.subscribe(seat, interests);
            return true;
        };
        let fate = faults.subscribe(&node);
        let refused = || BusError::Unavailable {
            retry_after_ms: limits::RETRY_AFTER_MS,
            source: Arc::new(Outage::Injected),
        };
        let outcome = if fate.is_some() { Ok(()) } else { Err(refused()) };
        state.add(now + fate.unwrap_or(0), Task::Subscribe { seat, interests, ticket, outcome });
        false
    }
}

impl State {
    fn add(&mut self, due: Time, task: Task) {
        self.agenda.insert((due, self.tasks), task);
        self.tasks += 1;
    }
}
