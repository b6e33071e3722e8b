//! Fault injection of the in-memory engine.

use std::sync::{Arc, Mutex};
use tavern_domain::{Epoch, Time};
use tavern_store::memory::{Faults, MemoryEngine, MessageFault, WorkFault, WorkOutcome};
use tavern_store::{
    AnswerReceiver, Bus, BusError, BusLoss, BusPacket, BusReceiver, Commit, Document, DocumentKey, Found,
    ManualClock, Read, Row, Store, StoreAnswer, StoreError, Subject, Ticket, Work, Writer,
};

/// Takes the next fault from a list.
struct Script {
    works: Vec<WorkFault>,
    messages: Vec<MessageFault>,
}

impl Faults for Script {
    fn work(&mut self, _node: &str, _work: &Work) -> WorkFault {
        if self.works.is_empty() { WorkFault::NONE } else { self.works.remove(0) }
    }

    fn message(&mut self, _from: &str, _to: &str, _message: &BusPacket) -> MessageFault {
        if self.messages.is_empty() { MessageFault::once() } else { self.messages.remove(0) }
    }
}

#[derive(Default)]
struct Receiver {
    answers: Mutex<Vec<(Ticket, StoreAnswer)>>,
    numbers: Mutex<Vec<u64>>,
    lost: Mutex<Vec<BusLoss>>,
}

impl AnswerReceiver for Receiver {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        self.answers.lock().unwrap().extend(answers);
    }
}

impl BusReceiver for Receiver {
    fn confirmed(&self, _ticket: Ticket, outcome: Result<(), BusError>) {
        outcome.unwrap();
    }

    fn messages(&self, messages: Vec<BusPacket>) {
        self.numbers.lock().unwrap().extend(messages.iter().map(|message| message.n));
    }

    fn lost(&self, lost: BusLoss) {
        self.lost.lock().unwrap().push(lost);
    }
}

fn engine(
    works: Vec<WorkFault>,
    messages: Vec<MessageFault>,
) -> (Arc<ManualClock>, Arc<MemoryEngine>, Arc<Receiver>) {
    let clock = Arc::new(ManualClock::at(Time(1000)));
    let engine = MemoryEngine::stepped(clock.clone(), Box::new(Script { works, messages }));
    (clock, engine, Arc::default())
}

fn put() -> Work {
    let document = Document { key: DocumentKey::new("thing", "a"), body: Arc::from(*b"x") };
    Work::Commit(Commit { puts: vec![Row::Document(document)], ..Commit::default() })
}

fn get() -> Work {
    Work::Read(Read::Document(DocumentKey::new("thing", "a")))
}

fn is_there(answer: &StoreAnswer) -> bool {
    matches!(answer, StoreAnswer::Read(Found::Document(Some(_))))
}

#[test]
fn work_can_fail_before_and_after_it_happened() {
    for (outcome, there) in [(WorkOutcome::FailBefore, false), (WorkOutcome::FailAfter, true)] {
        let (_, engine, receiver) = engine(vec![WorkFault { outcome, ..WorkFault::NONE }], Vec::new());
        engine.store("n1", receiver.clone()).submit(vec![(Ticket(1), put()), (Ticket(2), get())]);
        assert!(receiver.answers.lock().unwrap().is_empty(), "nothing happens before a step");
        engine.settle();
        let answers = receiver.answers.lock().unwrap();
        assert!(matches!(answers[0].1, StoreAnswer::Failed(StoreError::Unavailable { .. })));
        assert_eq!(is_there(&answers[1].1), there);
    }
}

#[test]
fn work_and_answers_can_be_late() {
    let late = WorkFault { before_ms: 10, outcome: WorkOutcome::Perform, after_ms: 5 };
    let (clock, engine, receiver) = engine(vec![late], Vec::new());
    let store = engine.store("n1", receiver.clone());
    store.submit(vec![(Ticket(1), put()), (Ticket(2), get())]);
    engine.settle();
    assert!(!is_there(&receiver.answers.lock().unwrap()[0].1), "the read overtook the commit");
    assert_eq!(engine.next_due(), Some(Time(1010)));
    clock.advance(10);
    store.submit(vec![(Ticket(3), get())]);
    engine.settle();
    assert!(is_there(&receiver.answers.lock().unwrap()[1].1), "done, but not yet answered");
    clock.advance(5);
    engine.settle();
    assert_eq!(receiver.answers.lock().unwrap()[2].0, Ticket(1));
    assert_eq!(engine.next_due(), None);
}

#[test]
fn a_crashed_node_gets_no_answer_but_its_work_is_done() {
    let (_, engine, receiver) = engine(Vec::new(), Vec::new());
    let (dead, alive) = (engine.store("n1", receiver.clone()), engine.store("n2", receiver.clone()));
    dead.submit(vec![(Ticket(1), put())]);
    dead.crash();
    alive.submit(vec![(Ticket(2), get())]);
    engine.settle();
    let answers = receiver.answers.lock().unwrap();
    assert_eq!(answers.iter().map(|(ticket, _)| ticket.0).collect::<Vec<_>>(), [2]);
    assert!(is_there(&answers[0].1));
}

#[test]
fn messages_can_be_lost_duplicated_delayed_and_reordered() {
    let faults = vec![
        MessageFault::lost(),
        MessageFault { copies: vec![0, 0], reported: false },
        MessageFault { copies: vec![20], reported: false },
        MessageFault::once(),
        MessageFault { copies: Vec::new(), reported: true },
    ];
    let (clock, engine, receiver) = engine(Vec::new(), faults);
    let (sender, listener) = (engine.bus("n1", receiver.clone()), engine.bus("n2", receiver.clone()));
    let subject = Subject::new("tavern", "game", b"A").unwrap();
    listener.subscribe(vec![subject.clone().into()], Ticket(1));
    engine.settle();
    let from = Writer::new("n1", Epoch(1));
    let (note, payload): (Arc<[u8]>, Arc<[u8]>) = (Arc::from(*b""), Arc::from(*b""));
    let message = |n| BusPacket {
        subject: subject.clone(),
        from: from.clone(),
        n,
        header: note.clone(),
        payload: payload.clone(),
    };
    sender.publish((0..5).map(message).collect());
    engine.settle();
    assert_eq!(*receiver.numbers.lock().unwrap(), [1, 1, 3]);
    assert_eq!(*receiver.lost.lock().unwrap(), [BusLoss::On(subject.clone())]);
    clock.advance(20);
    engine.settle();
    assert_eq!(*receiver.numbers.lock().unwrap(), [1, 1, 3, 2]);
}
