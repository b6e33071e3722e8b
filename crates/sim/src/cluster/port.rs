//! The connection of a process to the store and the bus: requests go out with their sender, answers and bus messages
//! wait here until the process takes them. A node that sleeps finds everything here when it wakes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tavern_store::memory::{MemoryEngine, MemoryStore};
use tavern_store::{
    AnswerReceiver, BusError, BusLoss, BusPacket, BusReceiver, Store, StoreAnswer, Ticket, Work,
};

/// The sender of a store request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Shard(usize),
    Liveness,
    Adoption,
    SimDelivery,
    /// The process itself: it starts or stops.
    Process,
}

pub struct Port {
    pub store: Arc<MemoryStore>,
    pub inbox: Arc<PortInbox>,
    asked: BTreeMap<u64, (Asker, Ticket)>,
    tickets: u64,
}

#[derive(Default)]
pub struct PortInbox {
    answers: Mutex<Vec<(Ticket, StoreAnswer)>>,
    messages: Mutex<Vec<Arrived>>,
}

/// The inputs from the bus, in order.
#[derive(Clone, Debug)]
pub enum Arrived {
    Message(BusPacket),
    Confirmed(Ticket, Result<(), BusError>),
    Lost(BusLoss),
}

fn take<T>(queue: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *queue.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put<T>(queue: &Mutex<Vec<T>>, items: impl IntoIterator<Item = T>) {
    queue.lock().unwrap_or_else(PoisonError::into_inner).extend(items);
}

fn is_empty<T>(queue: &Mutex<Vec<T>>) -> bool {
    queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
}

impl AnswerReceiver for PortInbox {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        put(&self.answers, answers);
    }
}

impl BusReceiver for PortInbox {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        put(&self.messages, [Arrived::Confirmed(ticket, outcome)]);
    }

    fn messages(&self, packets: Vec<BusPacket>) {
        put(&self.messages, packets.into_iter().map(Arrived::Message));
    }

    fn lost(&self, lost: BusLoss) {
        put(&self.messages, [Arrived::Lost(lost)]);
    }
}

impl Port {
    pub fn new(engine: &Arc<MemoryEngine>, name: &str) -> Port {
        let inbox: Arc<PortInbox> = Arc::default();
        Port { store: engine.store(name, inbox.clone()), inbox, asked: BTreeMap::new(), tickets: 0 }
    }

    pub fn submit(&mut self, asker: Asker, own: Ticket, work: Work) {
        let ticket = self.ticket(asker, own);
        self.store.submit(vec![(ticket, work)]);
    }

    /// An answer that the store itself did not give.
    pub fn answer(&mut self, asker: Asker, own: Ticket, answer: StoreAnswer) {
        let ticket = self.ticket(asker, own);
        put(&self.inbox.answers, [(ticket, answer)]);
    }

    fn ticket(&mut self, asker: Asker, own: Ticket) -> Ticket {
        self.tickets += 1;
        self.asked.insert(self.tickets, (asker, own));
        Ticket(self.tickets)
    }

    pub fn take_answers(&mut self) -> Vec<(Asker, Ticket, StoreAnswer)> {
        let answers = take(&self.inbox.answers);
        let known = answers.into_iter().filter_map(|(ticket, answer)| {
            let (asker, own) = self.asked.remove(&ticket.0)?;
            Some((asker, own, answer))
        });
        known.collect()
    }

    pub fn take_messages(&self) -> Vec<Arrived> {
        take(&self.inbox.messages)
    }

    pub fn is_empty(&self) -> bool {
        is_empty(&self.inbox.answers) && is_empty(&self.inbox.messages)
    }
}
