//! Letters: freed, posted and, beyond the bounds of an inbox, dropped. Must hold: numbers of one inbox only grow; what is
//! dropped unread is remembered until somebody has read past it.

use super::{Mark, Tables};
use crate::letter::{Freed, Letter, NewLetter};
use crate::store::{Commit, Receipt, StoreError};
use std::collections::VecDeque;

/// What must be known of an inbox to change it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bag {
    /// The highest number given; 0: it is empty and begins anew.
    pub last: u64,
    /// The highest number that was dropped unread; 0: none.
    pub dropped: u64,
    /// Number and length of each letter, the oldest first.
    pub letters: VecDeque<(u64, usize)>,
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
    let mut through = 0;
    while let Some((n, _)) = bag.letters.pop_front_if(|(n, _)| *n <= freed.through) {
        through = n;
    }
    if through > 0 {
        tables.remove_letters(&freed.user, through)?;
    }
    if freed.unread {
        bag.dropped = bag.dropped.max(through);
    } else if bag.dropped <= freed.through {
        bag.dropped = 0;
    }
    settle(tables, mark, freed, &bag)
}

fn settle(tables: &mut impl Tables, mark: &mut Mark, freed: &Freed, bag: &Bag) -> Result<(), StoreError> {
    if bag.letters.is_empty() && bag.dropped == 0 {
        mark.bury(bag.last);
        return tables.set_bag(&freed.user, 0, 0);
    }
    tables.set_bag(&freed.user, bag.last, bag.dropped)
}

fn add(tables: &mut impl Tables, mark: &Mark, new: &NewLetter, receipt: &Receipt) -> Result<u64, StoreError> {
    let mut bag = tables.bag(&new.user)?;
    let n = mark.next(bag.last);
    let letter = Letter { n, at: receipt.time, body: new.body.clone() };
    tables.add_letter(&new.user, &letter)?;
    bag.letters.push_back((n, new.body.len()));
    // The newest stays, however large.
    let mut bytes: usize = bag.letters.iter().map(|(_, bytes)| bytes).sum();
    let mut through = 0;
    while bag.letters.len() > 1 && (bag.letters.len() > new.most_letters || bytes > new.most_bytes) {
        let Some((n, size)) = bag.letters.pop_front() else { break };
        (through, bytes) = (n, bytes - size);
    }
    if through > 0 {
        tables.remove_letters(&new.user, through)?;
        bag.dropped = through;
    }
    tables.set_bag(&new.user, n, bag.dropped)?;
    Ok(n)
}
