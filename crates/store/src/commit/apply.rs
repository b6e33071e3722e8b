//! The one algorithm of a commit, over the tables of an engine. It only decides the order.
//! Must hold: every check comes before the first change.

use super::change::{ChangedChannel, ChangedRow, Commit, Receipt};
use super::tables::Tables;
use super::version::VersionClock;
use super::{history, inbox, lease, log, node};
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::presence::{ChannelVersionBump, HeldPresence};
use crate::row::RowKey;
use crate::totals::StoreTotals;
use tavern_domain::Time;

/// Expectations that are searched for the version of a row before it is looked up in the tables. Most commits have fewer
/// than ten.
const SEARCHED_EXPECTS: usize = 32;

/// Checks a commit, then applies it. An engine calls this inside one transaction of its own.
pub fn apply(
    tables: &mut impl Tables,
    clock: &mut VersionClock,
    wall: Time,
    commit: &Commit,
) -> Result<Receipt, StoreError> {
    let time = clock.advance(wall);
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
        node::change(tables, clock, change, &mut receipt)?;
    }
    for (at, key) in commit.deletes.iter().enumerate() {
        let version = match key {
            // Not counted in the totals either.
            RowKey::Deadline { .. } => 0,
            RowKey::Key(_)
            | RowKey::Session(_)
            | RowKey::Document(_)
            | RowKey::Presence(_)
            | RowKey::Hold(_)
            | RowKey::User(_)
            | RowKey::Follow { .. }
            | RowKey::Lease(_) => {
                let last = match expected(commit, key) {
                    Some(version) if !commit.deletes[..at].contains(key) => version,
                    _ => tables.version(key)?,
                };
                if last > 0 {
                    clock.totals -= StoreTotals::of(key);
                }
                clock.next(last)
            }
        };
        clock.retire(version);
        tables.delete(key)?;
        receipt.deleted.push(ChangedRow { key: key.clone(), version });
    }
    for (at, row) in commit.puts.iter().enumerate() {
        let key = row.key();
        let last = match expected(commit, &key) {
            Some(version) if is_first_change(commit, at, &key) => version,
            _ => tables.version(&key)?,
        };
        if last == 0 {
            clock.totals += StoreTotals::of(&key);
        }
        let version = clock.next(last);
        tables.put(row, version)?;
        receipt.put.push(ChangedRow { key, version });
    }
    for raise in &commit.raises {
        let (version, was_empty) = raise_channel(tables, clock, time, raise)?;
        receipt.raised.push(ChangedChannel { channel: raise.channel.clone(), version, was_empty });
    }
    for seen in &commit.seen {
        tables.see(seen, clock.begin(0))?;
    }
    receipt.held = held(tables, commit)?;
    for deadline in &commit.deadlines {
        // Version 0 means absent, so no deadline is due at 0.
        tables.set_deadline(&Deadline { due: deadline.due.max(Time(1)), ..deadline.clone() })?;
    }
    lease::take(tables, clock, commit, &mut receipt)?;
    log::append(tables, commit, &mut receipt)?;
    inbox::apply(tables, clock, commit, &mut receipt)?;
    history::apply(tables, clock, commit, &mut receipt)?;
    Ok(receipt)
}

/// The version that the row had before the commit, if the commit expects it: it was just checked.
fn expected(commit: &Commit, key: &RowKey) -> Option<u64> {
    let few = commit.expects.len() <= SEARCHED_EXPECTS;
    let mut expects = commit.expects.iter().filter(|_| few);
    expects.find(|expect| expect.key == *key).map(|expect| expect.version)
}

/// Whether nothing before this put changes the row.
fn is_first_change(commit: &Commit, at: usize, key: &RowKey) -> bool {
    !commit.deletes.contains(key) && !commit.puts[..at].iter().any(|row| row.key() == *key)
}

fn held(tables: &mut impl Tables, commit: &Commit) -> Result<Vec<HeldPresence>, StoreError> {
    let mut held = Vec::new();
    for presence in commit.presences() {
        let channels = tables.held_with(presence)?;
        held.extend(
            channels.into_iter().map(|channel| HeldPresence { held_with: presence.clone(), channel }),
        );
    }
    Ok(held)
}

/// The store numbers the changes of a channel. An empty channel needs no row for its version: the next version may
/// jump.
fn raise_channel(
    tables: &mut impl Tables,
    clock: &mut VersionClock,
    now: Time,
    raise: &ChannelVersionBump,
) -> Result<(u64, bool), StoreError> {
    let (last, users) = tables.channel(&raise.channel)?;
    let version = match (last, raise.by) {
        (last, 0) => last,
        (0, by) => clock.begin(0) + u64::from(by - 1),
        (last, by) => last + u64::from(by),
    };
    if users > 0 {
        tables.set_channel(&raise.channel, version, now)?;
    } else {
        tables.forget_channel(&raise.channel)?;
        clock.retire(version);
    }
    Ok((version, last == 0))
}
