//! The interests of the node, the subscriptions that the server needs for them, and which of them are confirmed.
//! Knows no socket. Must hold: each subject that some interest needs is subscribed to once, and an interest is
//! confirmed only after the pong of the ping that followed its subscription.

use std::collections::{BTreeSet, HashMap};
use tavern_store::{Interest, Subject};

#[derive(Default)]
pub struct InterestTable {
    /// The number of the ping that will confirm it; None: it is confirmed.
    interests: HashMap<Interest, Option<u64>>,
    /// Those of them that match more than one subject.
    wide: BTreeSet<Interest>,
    /// How many interests need each subject at the server.
    subjects: HashMap<Subject, usize>,
}

impl InterestTable {
    pub fn holds(&self, interests: &[Interest]) -> bool {
        interests.iter().all(|interest| matches!(self.interests.get(interest), Some(None)))
    }

    pub fn matches(&self, subject: &Subject) -> bool {
        self.interests.contains_key(&Interest::Subject(subject.clone()))
            || self.wide.iter().any(|wide| wide.matches(subject))
    }

    /// Adds an interest, to be confirmed by that ping. Returns the subjects to subscribe to.
    pub fn add(&mut self, interest: &Interest, ping: u64) -> Vec<Subject> {
        match self.interests.get_mut(interest) {
            Some(None) => return Vec::new(),
            Some(waits) => {
                *waits = Some(ping);
                return Vec::new();
            }
            None => self.interests.insert(interest.clone(), Some(ping)),
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

    /// Returns the subjects to unsubscribe from.
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

    /// The ping was answered. Interests that were added again since wait for a later one.
    pub fn confirm(&mut self, interests: &[Interest], ping: u64) {
        for interest in interests {
            if let Some(waits) = self.interests.get_mut(interest).filter(|waits| **waits == Some(ping)) {
                *waits = None;
            }
        }
    }

    /// A new connection: nothing is confirmed until that ping is answered. Returns everything to subscribe to.
    pub fn restart(&mut self, ping: u64) -> (Vec<Interest>, Vec<Subject>) {
        self.interests.values_mut().for_each(|waits| *waits = Some(ping));
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
        let mut interests = InterestTable::default();
        assert_eq!(interests.add(&glob("game#a*"), 1).len(), 2);
        assert_eq!(interests.add(&glob("game#b*"), 1), []);
        assert_eq!(interests.add(&Subject::every_rest("p", "game").unwrap().into(), 1), []);
        assert_eq!(interests.remove(&glob("game#a*")), []);
        assert_eq!(interests.remove(&glob("game#b*")), [Subject::every_rest("p", "_name").unwrap()]);
        assert_eq!(interests.remove(&glob("game#b*")), []);
        assert!(interests.matches(&Subject::of_channel("p", b"game#z").unwrap()));
    }

    #[test]
    fn an_interest_that_was_removed_and_added_again_waits_for_its_own_ping() {
        let mut interests = InterestTable::default();
        let game = exact("A");
        interests.add(&game, 1);
        interests.remove(&game);
        interests.add(&game, 2);
        interests.confirm(std::slice::from_ref(&game), 1);
        assert!(!interests.holds(std::slice::from_ref(&game)));
        interests.confirm(std::slice::from_ref(&game), 2);
        assert!(interests.holds(std::slice::from_ref(&game)));
        let (all, subjects) = interests.restart(3);
        assert_eq!((all, subjects.len()), (vec![game.clone()], 1));
        assert!(!interests.holds(std::slice::from_ref(&game)));
    }
}
