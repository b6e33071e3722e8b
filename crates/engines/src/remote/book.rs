//! What the node listens to, what the server must be asked for because of it, and which of it holds.
//! Knows no socket. Must hold: the server is asked once for each subject that some interest needs, and an interest
//! holds only after the flight that asked for it came back.

use std::collections::{BTreeSet, HashMap};
use tavern_store::interest::Interest;
use tavern_store::subject::Subject;

#[derive(Default)]
pub struct Book {
    /// The number of the flight that will confirm it; None: it holds.
    interests: HashMap<Interest, Option<u64>>,
    /// Those of them that name more than one subject.
    wide: BTreeSet<Interest>,
    /// How many interests need each subject at the server.
    subjects: HashMap<Subject, usize>,
}

impl Book {
    pub fn holds(&self, interests: &[Interest]) -> bool {
        interests.iter().all(|interest| matches!(self.interests.get(interest), Some(None)))
    }

    pub fn hears(&self, subject: &Subject) -> bool {
        self.interests.contains_key(&Interest::Subject(subject.clone()))
            || self.wide.iter().any(|wide| wide.hears(subject))
    }

    /// To be confirmed by that flight. Gives what the server is to be asked for.
    pub fn add(&mut self, interest: &Interest, flight: u64) -> Vec<Subject> {
        match self.interests.get_mut(interest) {
            Some(None) => return Vec::new(),
            Some(waits) => {
                *waits = Some(flight);
                return Vec::new();
            }
            None => self.interests.insert(interest.clone(), Some(flight)),
        };
        if interest.exact().is_none() {
            self.wide.insert(interest.clone());
        }
        let mut fresh = interest.subjects();
        fresh.retain(|subject| {
            let needed = self.subjects.entry(subject.clone()).or_default();
            *needed += 1;
            *needed == 1
        });
        fresh
    }

    /// Gives what the server need not send any more.
    pub fn remove(&mut self, interest: &Interest) -> Vec<Subject> {
        if self.interests.remove(interest).is_none() {
            return Vec::new();
        }
        self.wide.remove(interest);
        let mut unneeded = interest.subjects();
        unneeded.retain(|subject| match self.subjects.get_mut(subject) {
            Some(1) => self.subjects.remove(subject).is_some(),
            Some(needed) => {
                *needed -= 1;
                false
            }
            None => false,
        });
        unneeded
    }

    /// A flight came back. What was asked for anew since then waits for a later one.
    pub fn confirm(&mut self, interests: &[Interest], flight: u64) {
        for interest in interests {
            if let Some(waits) = self.interests.get_mut(interest).filter(|waits| **waits == Some(flight)) {
                *waits = None;
            }
        }
    }

    /// A new connection: nothing holds until that flight comes back. Gives everything to ask for.
    pub fn restart(&mut self, flight: u64) -> (Vec<Interest>, Vec<Subject>) {
        self.interests.values_mut().for_each(|waits| *waits = Some(flight));
        (self.interests.keys().cloned().collect(), self.subjects.keys().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(rest: &str) -> Interest {
        Subject::new("p", "game", rest.as_bytes()).unwrap().into()
    }

    fn glob(glob: &str) -> Interest {
        Interest::Channels { prefix: "p".into(), glob: glob.as_bytes().into() }
    }

    #[test]
    fn a_shared_subject_is_asked_for_once() {
        let mut book = Book::default();
        assert_eq!(book.add(&glob("game#a*"), 1).len(), 2);
        assert_eq!(book.add(&glob("game#b*"), 1), []);
        assert_eq!(book.add(&Subject::every_rest("p", "game").unwrap().into(), 1), []);
        assert_eq!(book.remove(&glob("game#a*")), []);
        assert_eq!(book.remove(&glob("game#b*")), [Subject::every_rest("p", "_name").unwrap()]);
        assert_eq!(book.remove(&glob("game#b*")), []);
        assert!(book.hears(&Subject::of_channel("p", b"game#z").unwrap()));
    }

    #[test]
    fn what_was_let_go_and_asked_for_again_waits_for_its_own_flight() {
        let mut book = Book::default();
        let game = exact("A");
        book.add(&game, 1);
        book.remove(&game);
        book.add(&game, 2);
        book.confirm(std::slice::from_ref(&game), 1);
        assert!(!book.holds(std::slice::from_ref(&game)));
        book.confirm(std::slice::from_ref(&game), 2);
        assert!(book.holds(std::slice::from_ref(&game)));
        let (interests, subjects) = book.restart(3);
        assert_eq!((interests, subjects.len()), (vec![game.clone()], 1));
        assert!(!book.holds(std::slice::from_ref(&game)));
    }
}
