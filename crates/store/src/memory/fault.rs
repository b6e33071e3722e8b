//! What goes wrong in the stepped drive. Decided outside, by the simulator and its seed; carried out by the hall.

use crate::bus::Parcel;
use crate::store::Work;

/// Asked once for each work, each recipient of a parcel and each subscribe. The answers of the trait itself are
/// "nothing goes wrong".
pub trait Faults: Send {
    fn work(&mut self, _node: &str, _work: &Work) -> WorkFate {
        WorkFate::NONE
    }

    fn parcel(&mut self, _from: &str, _to: &str, _parcel: &Parcel) -> ParcelFate {
        ParcelFate::once()
    }

    /// How many milliseconds until it is confirmed; `None`: it is refused.
    fn subscribe(&mut self, _node: &str) -> Option<u64> {
        Some(0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Faults for NoFaults {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkFate {
    /// How long the work travels, and how long its answer travels back.
    pub before_ms: u64,
    pub outcome: Outcome,
    pub after_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Perform,
    /// Nothing happens and the caller hears `Unavailable`.
    FailBefore,
    /// It happens and the caller hears `Unavailable` all the same.
    FailAfter,
}

/// One entry for each copy that arrives, with its delay: none is a loss, two a repetition, unequal delays of
/// neighbours a change of order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParcelFate {
    pub copies: Vec<u64>,
    /// The recipient is told that something was lost.
    pub told: bool,
}

impl WorkFate {
    pub const NONE: WorkFate = WorkFate { before_ms: 0, outcome: Outcome::Perform, after_ms: 0 };
}

impl ParcelFate {
    pub fn once() -> ParcelFate {
        ParcelFate { copies: vec![0], told: false }
    }

    pub fn lost() -> ParcelFate {
        ParcelFate { copies: Vec::new(), told: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::{Bus, BusError, BusInbox, Lost};
    use crate::clock::ManualClock;
    use crate::memory::Hall;
    use crate::row::{Document, DocumentKey, Row, Writer};
    use crate::store::{Answer, Commit, Found, Inbox, Read, Store, StoreError, Ticket};
    use crate::subject::Subject;
    use std::sync::{Arc, Mutex};
    use tavern_domain::{Epoch, Time};

    /// Takes the next fate from a list.
    struct Script {
        works: Vec<WorkFate>,
        parcels: Vec<ParcelFate>,
    }

    impl Faults for Script {
        fn work(&mut self, _node: &str, _work: &Work) -> WorkFate {
            if self.works.is_empty() { WorkFate::NONE } else { self.works.remove(0) }
        }

        fn parcel(&mut self, _from: &str, _to: &str, _parcel: &Parcel) -> ParcelFate {
            if self.parcels.is_empty() { ParcelFate::once() } else { self.parcels.remove(0) }
        }
    }

    #[derive(Default)]
    struct Ears {
        answers: Mutex<Vec<(Ticket, Answer)>>,
        words: Mutex<Vec<u64>>,
        lost: Mutex<Vec<Lost>>,
    }

    impl Inbox for Ears {
        fn answer(&self, answers: Vec<(Ticket, Answer)>) {
            self.answers.lock().unwrap().extend(answers);
        }
    }

    impl BusInbox for Ears {
        fn confirmed(&self, _ticket: Ticket, outcome: Result<(), BusError>) {
            outcome.unwrap();
        }

        fn words(&self, parcels: Vec<Parcel>) {
            self.words.lock().unwrap().extend(parcels.iter().map(|parcel| parcel.n));
        }

        fn lost(&self, lost: Lost) {
            self.lost.lock().unwrap().push(lost);
        }
    }

    fn hall(works: Vec<WorkFate>, parcels: Vec<ParcelFate>) -> (Arc<ManualClock>, Arc<Hall>, Arc<Ears>) {
        let clock = Arc::new(ManualClock::at(Time(1000)));
        let hall = Hall::stepped(clock.clone(), Box::new(Script { works, parcels }));
        (clock, hall, Arc::default())
    }

    fn put() -> Work {
        let document = Document { key: DocumentKey::new("thing", "a"), body: Arc::from(*b"x") };
        Work::Commit(Commit { puts: vec![Row::Document(document)], ..Commit::default() })
    }

    fn get() -> Work {
        Work::Read(Read::Document(DocumentKey::new("thing", "a")))
    }

    fn is_there(answer: &Answer) -> bool {
        matches!(answer, Answer::Read(Found::Document(Some(_))))
    }

    #[test]
    fn work_can_fail_before_and_after_it_happened() {
        for (outcome, there) in [(Outcome::FailBefore, false), (Outcome::FailAfter, true)] {
            let (_, hall, ears) = hall(vec![WorkFate { outcome, ..WorkFate::NONE }], Vec::new());
            hall.store("n1", ears.clone()).submit(vec![(Ticket(1), put()), (Ticket(2), get())]);
            assert!(ears.answers.lock().unwrap().is_empty(), "nothing happens before a step");
            hall.settle();
            let answers = ears.answers.lock().unwrap();
            assert!(matches!(answers[0].1, Answer::Failed(StoreError::Unavailable { .. })));
            assert_eq!(is_there(&answers[1].1), there);
        }
    }

    #[test]
    fn work_and_answers_can_be_late() {
        let late = WorkFate { before_ms: 10, outcome: Outcome::Perform, after_ms: 5 };
        let (clock, hall, ears) = hall(vec![late], Vec::new());
        let store = hall.store("n1", ears.clone());
        store.submit(vec![(Ticket(1), put()), (Ticket(2), get())]);
        hall.settle();
        assert!(!is_there(&ears.answers.lock().unwrap()[0].1), "the read overtook the commit");
        assert_eq!(hall.next_due(), Some(Time(1010)));
        clock.advance(10);
        store.submit(vec![(Ticket(3), get())]);
        hall.settle();
        assert!(is_there(&ears.answers.lock().unwrap()[1].1), "done, but not yet answered");
        clock.advance(5);
        hall.settle();
        assert_eq!(ears.answers.lock().unwrap()[2].0, Ticket(1));
        assert_eq!(hall.next_due(), None);
    }

    #[test]
    fn a_crashed_node_hears_no_answer_though_its_work_happens() {
        let (_, hall, ears) = hall(Vec::new(), Vec::new());
        let (dead, alive) = (hall.store("n1", ears.clone()), hall.store("n2", ears.clone()));
        dead.submit(vec![(Ticket(1), put())]);
        dead.crash();
        alive.submit(vec![(Ticket(2), get())]);
        hall.settle();
        let answers = ears.answers.lock().unwrap();
        assert_eq!(answers.iter().map(|(ticket, _)| ticket.0).collect::<Vec<_>>(), [2]);
        assert!(is_there(&answers[0].1));
    }

    #[test]
    fn words_can_be_lost_repeated_late_and_out_of_order() {
        let fates = vec![
            ParcelFate::lost(),
            ParcelFate { copies: vec![0, 0], told: false },
            ParcelFate { copies: vec![20], told: false },
            ParcelFate::once(),
            ParcelFate { copies: Vec::new(), told: true },
        ];
        let (clock, hall, ears) = hall(Vec::new(), fates);
        let (speaker, listener) = (hall.bus("n1", ears.clone()), hall.bus("n2", ears.clone()));
        let subject = Subject::new("tavern", "game", b"A").unwrap();
        listener.subscribe(vec![subject.clone().into()], Ticket(1));
        hall.settle();
        let from = Writer::new("n1", Epoch(1));
        let (note, payload): (Arc<[u8]>, Arc<[u8]>) = (Arc::from(*b""), Arc::from(*b""));
        let parcel = |n| Parcel {
            subject: subject.clone(),
            from: from.clone(),
            n,
            note: note.clone(),
            payload: payload.clone(),
        };
        speaker.publish((0..5).map(parcel).collect());
        hall.settle();
        assert_eq!(*ears.words.lock().unwrap(), [1, 1, 3]);
        assert_eq!(*ears.lost.lock().unwrap(), [Lost::On(subject.clone())]);
        clock.advance(20);
        hall.settle();
        assert_eq!(*ears.words.lock().unwrap(), [1, 1, 3, 2]);
    }
}
