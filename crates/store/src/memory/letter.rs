//! Inboxes, in memory.

use super::store::page;
use crate::commit::{Bag, Gone};
use crate::letter::{Letter, Letters};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Inboxes(BTreeMap<Arc<str>, Inbox>);

#[derive(Default)]
struct Inbox {
    bag: Bag,
    letters: BTreeMap<u64, Letter>,
}

impl Inboxes {
    pub fn bag(&self, user: &str) -> Bag {
        self.0.get(user).map(|inbox| inbox.bag).unwrap_or_default()
    }

    pub fn add(&mut self, user: &Arc<str>, letter: &Letter) {
        self.0.entry(user.clone()).or_default().letters.insert(letter.n, letter.clone());
    }

    pub fn take(&mut self, user: &str, through: u64) -> Gone {
        let Some(inbox) = self.0.get_mut(user) else { return Gone::default() };
        let kept = inbox.letters.split_off(&through.saturating_add(1));
        let taken = std::mem::replace(&mut inbox.letters, kept);
        taken.iter().map(|(n, letter)| (*n, letter.body.len())).collect()
    }

    pub fn take_oldest(&mut self, user: &str) -> Gone {
        let oldest = self.0.get_mut(user).and_then(|inbox| inbox.letters.pop_first());
        oldest.iter().map(|(n, letter)| (*n, letter.body.len())).collect()
    }

    pub fn set(&mut self, user: &Arc<str>, bag: &Bag) {
        if bag.last == 0 {
            self.0.remove(user);
        } else {
            self.0.entry(user.clone()).or_default().bag = *bag;
        }
    }

    pub fn letters(&self, user: &str, after: u64, limit: u32) -> Letters {
        let inbox = self.0.get(user);
        let letters = inbox.into_iter().flat_map(|inbox| {
            inbox.letters.range((Bound::Excluded(after), Bound::Unbounded)).map(|(_, letter)| letter.clone())
        });
        Letters {
            dropped: inbox.map_or(0, |inbox| inbox.bag.dropped),
            page: page(limit, |letter| letter.body.len(), letters),
        }
    }
}
