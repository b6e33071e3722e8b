//! The one algorithm of a commit, and the store's time and versions, over the tables of an embedded engine.
//! The tables keep; this decides nothing but order. Must hold: every check comes before the first change.

mod lease;
mod letter;
mod log;
mod node;

pub use letter::{Bag, Gone};

use crate::lease::Lease;
use crate::letter::Letter;
use crate::log::{Entry, Trim};
use crate::presence::{Held, PresenceKey, Raise};
use crate::row::{Deadline, Node, Row, RowKey, Versioned, Writer};
use crate::social::Seen;
use crate::store::{Commit, Receipt, StoreError};
use std::sync::Arc;
use tavern_domain::Time;

/// What an engine's tables can do inside one transaction.
pub trait Tables {
    /// 0: absent.
    fn version(&mut self, key: &RowKey) -> Result<u64, StoreError>;
    fn put(&mut self, row: &Row, version: u64) -> Result<(), StoreError>;
    fn delete(&mut self, key: &RowKey) -> Result<(), StoreError>;
    fn set_deadline(&mut self, deadline: &Deadline) -> Result<(), StoreError>;
    fn node(&mut self, node: &Writer) -> Result<Option<Node>, StoreError>;
    /// Every epoch of that name, in order.
    fn epochs(&mut self, name: &str) -> Result<Vec<Node>, StoreError>;
    fn put_node(&mut self, node: &Node) -> Result<(), StoreError>;
    fn forget_node(&mut self, node: &Writer) -> Result<(), StoreError>;
    /// Version and number of users of a channel; zeros when nobody is there.
    fn channel(&mut self, name: &Arc<str>) -> Result<(u64, u64), StoreError>;
    fn set_channel(&mut self, name: &Arc<str>, version: u64, now: Time) -> Result<(), StoreError>;
    fn forget_channel(&mut self, name: &Arc<str>) -> Result<(), StoreError>;
    /// Keeps the latest time; a user who is not known yet gets the version.
    fn see(&mut self, seen: &Seen, version: u64) -> Result<(), StoreError>;
    /// The channels in which an app holds a user while he is in this one.
    fn held_by(&mut self, carrier: &PresenceKey) -> Result<Vec<Arc<str>>, StoreError>;
    fn lease(&mut self, name: &Arc<str>) -> Result<Option<Occupied>, StoreError>;
    /// The last position of the log; 0: nothing was ever appended.
    fn head(&mut self) -> Result<u64, StoreError>;
    /// How many events a topic has had.
    fn count(&mut self, topic: &Arc<str>) -> Result<u64, StoreError>;
    /// Position and count of the event that a publisher gave this id.
    fn known_event(&mut self, topic: &Arc<str>, id: &Arc<str>) -> Result<Option<(u64, u64)>, StoreError>;
    /// At the head, and counted.
    fn append(&mut self, entry: &Entry) -> Result<(), StoreError>;
    fn trim(&mut self, trim: &Trim) -> Result<(), StoreError>;
    /// What is known of a user's inbox; nothing but zeros when it is empty.
    fn bag(&mut self, user: &Arc<str>) -> Result<Bag, StoreError>;
    fn add_letter(&mut self, user: &Arc<str>, letter: &Letter) -> Result<(), StoreError>;
    /// The letter of this number goes, with everything before it.
    fn take_letters(&mut self, user: &Arc<str>, through: u64) -> Result<Gone, StoreError>;
    fn take_oldest(&mut self, user: &Arc<str>) -> Result<Gone, StoreError>;
    /// An inbox that stands; one without letters and without anything dropped is all zeros, and no row.
    fn set_bag(&mut self, user: &Arc<str>, bag: &Bag) -> Result<(), StoreError>;
}

/// A lease as it is found: who has it, and whether his epoch is known to be open.
#[derive(Clone, Debug)]
pub struct Occupied {
    pub lease: Versioned<Lease>,
    pub vouched: bool,
}

/// The store's time, and the highest number that a deleted row has had. A row that comes back begins above it,
/// even when the clock stood still, so no row has to stay for the sake of its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    pub time: Time,
    pub floor: u64,
}

impl Mark {
    /// Time is max(last stored, wall).
    pub fn now(&mut self, wall: Time) -> Time {
        self.time = self.time.max(wall);
        self.time
    }

    /// Numbers begin at the time in microseconds and then count by one.
    fn next(&self, last: u64) -> u64 {
        if last > 0 { last + 1 } else { self.begin(0) }
    }

    fn begin(&self, last: u64) -> u64 {
        self.time.0.saturating_mul(1000).min(i64::MAX as u64).max(self.floor + 1).max(last + 1)
    }

    fn bury(&mut self, number: u64) {
        self.floor = self.floor.max(number);
    }
}

pub fn apply(
    tables: &mut impl Tables,
    mark: &mut Mark,
    wall: Time,
    commit: &Commit,
) -> Result<Receipt, StoreError> {
    let time = mark.now(wall);
    if let Some(writer) = &commit.writer {
        node::open(tables, writer)?;
    }
    for expect in &commit.expects {
        let found = tables.version(&expect.key)?;
        if found != expect.version {
            return Err(StoreError::Conflict { key: expect.key.clone(), expected: expect.version, found });
        }
    }
    let mut receipt = Receipt { time, ..Receipt::default() };
    lease::check(tables, time, commit)?;
    if let Some(change) = &commit.node {
        node::change(tables, mark, change, &mut receipt)?;
    }
    for key in &commit.deletes {
        let version = match key {
            RowKey::Deadline { .. } => 0,
            RowKey::Key(_)
            | RowKey::Session(_)
            | RowKey::Document(_)
            | RowKey::Presence(_)
            | RowKey::Hold(_)
            | RowKey::User(_)
            | RowKey::Follow { .. }
            | RowKey::Lease(_) => mark.next(tables.version(key)?),
        };
        mark.bury(version);
        tables.delete(key)?;
        receipt.deleted.push(version);
    }
    for row in &commit.puts {
        let version = mark.next(tables.version(&row.key())?);
        tables.put(row, version)?;
        receipt.put.push(version);
    }
    for raise in &commit.raises {
        let (version, begun) = raise_channel(tables, mark, time, raise)?;
        receipt.raised.push(version);
        receipt.begun.push(begun);
    }
    for seen in &commit.seen {
        tables.see(seen, mark.begin(0))?;
    }
    receipt.held = held(tables, commit)?;
    for deadline in &commit.deadlines {
        // Version 0 means absent, so nothing is due at 0.
        tables.set_deadline(&Deadline { due: deadline.due.max(Time(1)), ..deadline.clone() })?;
    }
    lease::take(tables, mark, commit, &mut receipt)?;
    log::append(tables, commit, &mut receipt)?;
    letter::post(tables, mark, commit, &mut receipt)?;
    Ok(receipt)
}

fn held(tables: &mut impl Tables, commit: &Commit) -> Result<Vec<Held>, StoreError> {
    let mut held = Vec::new();
    for key in commit.puts.iter().map(Row::key).chain(commit.deletes.iter().cloned()) {
        if let RowKey::Presence(carrier) = key {
            let channels = tables.held_by(&carrier)?;
            held.extend(channels.into_iter().map(|channel| Held { carrier: carrier.clone(), channel }));
        }
    }
    Ok(held)
}

/// The store is the sequencer: what watchers are told is numbered here. A channel that has emptied needs no row to keep
/// its number; it may jump when somebody comes back.
fn raise_channel(
    tables: &mut impl Tables,
    mark: &mut Mark,
    now: Time,
    raise: &Raise,
) -> Result<(u64, bool), StoreError> {
    let (last, users) = tables.channel(&raise.channel)?;
    let version = match (last, raise.by) {
        (last, 0) => last,
        (0, by) => mark.begin(0) + u64::from(by - 1),
        (last, by) => last + u64::from(by),
    };
    if users > 0 {
        tables.set_channel(&raise.channel, version, now)?;
    } else {
        tables.forget_channel(&raise.channel)?;
        mark.bury(version);
    }
    Ok((version, last == 0))
}
