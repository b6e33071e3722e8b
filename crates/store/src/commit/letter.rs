//! Letters: freed, posted and, beyond the bounds of an inbox, dropped. Must hold: numbers of one inbox only grow; what is
//! dropped unread is remembered until somebody has read past it.

use super::{Mark, Tables};
use crate::letter::{Freed, Letter, NewLetter};
use crate::store::{Commit, Receipt, StoreError};

/// What must be known of an inbox to change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bag {
    /// The highest number given; 0: it is empty and begins anew.
    pub last: u64,
    /// The highest number that was dropped unread; 0: none.
    pub dropped: u64,
    /// How many there are, and the length of all.
    pub letters: usize,
    pub bytes: usize,
}

/// Letters that are there no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// The highest number among them; 0: there was none.
    pub through: u64,
    pub letters: usize,
    pub bytes: usize,
}

impl Bag {
    fn lose(&mut self, gone: Gone) {
        self.letters = self.letters.saturating_sub(gone.letters);
        self.bytes = self.bytes.saturating_sub(gone.bytes);
    }
}

impl FromIterator<(u64, usize)> for Gone {
    /// Number and length of each, the oldest first.
    fn from_iter<T: IntoIterator<Item = (u64, usize)>>(letters: T) -> Gone {
        letters.into_iter().fold(Gone::default(), |gone, (n, bytes)| Gone {
            through: n,
            letters: gone.letters + 1,
            bytes: gone.bytes + bytes,
        })
    }
}

pub(super) fn post(
    tables: &mut impl Tables,
    mark: &mut Mark,
    commit: &Commit,
    receipt: &mut Receipt,
) -> Result<(), StoreError> {
    for freed in &commit.freed {
        free(tables, mark, freed)?;
    }
    for new in &commit.letters {
        let n = add(tables, mark, new, receipt)?;
        receipt.letters.push(n);
    }
    Ok(())
}

fn free(tables: &mut impl Tables, mark: &mut Mark, freed: &Freed) -> Result<(), StoreError> {
    let mut bag = tables.bag(&freed.user)?;
    let gone = tables.take_letters(&freed.user, freed.through)?;
    bag.lose(gone);
    if freed.unread {
        bag.dropped = bag.dropped.max(gone.through);
    } else if bag.dropped <= freed.through {
        bag.dropped = 0;
    }
    if bag.letters == 0 && bag.dropped == 0 {
        mark.bury(bag.last);
        bag = Bag::default();
    }
    tables.set_bag(&freed.user, &bag)
}

fn add(tables: &mut impl Tables, mark: &Mark, new: &NewLetter, receipt: &Receipt) -> Result<u64, StoreError> {
    let mut bag = tables.bag(&new.user)?;
    let n = mark.next(bag.last);
    let letter = Letter { n, at: receipt.time, body: new.body.clone() };
    tables.add_letter(&new.user, &letter)?;
    bag = Bag { last: n, letters: bag.letters + 1, bytes: bag.bytes + new.body.len(), ..bag };
    // The newest stays, however large.
    while bag.letters > 1 && (bag.letters > new.most_letters || bag.bytes > new.most_bytes) {
        let gone = tables.take_oldest(&new.user)?;
        if gone.letters == 0 {
            // It was counted wrongly by another hand.
            break;
        }
        bag.lose(gone);
        bag.dropped = gone.through;
    }
    tables.set_bag(&new.user, &bag)?;
    Ok(n)
}
