//! Inboxes, in memory.

use super::store::page;
use crate::commit::Bag;
use crate::letter::{Letter, Letters};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Inboxes(BTreeMap<Arc<str>, Inbox>);

#[derive(Default)]
struct Inbox {
    last: u64,
    dropped: u64,
    letters: BTreeMap<u64, Letter>,
}

impl Inboxes {
    pub fn bag(&self, user: &str) -> Bag {
        let Some(inbox) = self.0.get(user) else { return Bag::default() };
        let letters = inbox.letters.values().map(|letter| (letter.n, letter.body.len())).collect();
        Bag { last: inbox.last, dropped: inbox.dropped, letters }
    }

    pub fn add(&mut self, user: &Arc<str>, letter: &Letter) {
        self.0.entry(user.clone()).or_default().letters.insert(letter.n, letter.clone());
    }

    pub fn remove(&mut self, user: &str, through: u64) {
        if let Some(inbox) = self.0.get_mut(user) {
            inbox.letters = inbox.letters.split_off(&(through + 1));
        }
    }

    pub fn set(&mut self, user: &Arc<str>, last: u64, dropped: u64) {
        if last == 0 {
            self.0.remove(user);
        } else {
            let inbox = self.0.entry(user.clone()).or_default();
            (inbox.last, inbox.dropped) = (last, dropped);
        }
    }

    pub fn letters(&self, user: &str, after: u64, limit: u32) -> Letters {
        let inbox = self.0.get(user);
        let letters = inbox.into_iter().flat_map(|inbox| {
            inbox.letters.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, letter)| letter.clone())
        });
        Letters {
            dropped: inbox.map_or(0, |inbox| inbox.dropped),
            page: page(limit, |letter| letter.body.len(), letters),
        }
    }
}
