//! Taking leases. Must hold: a lease that has not ended stays with its holder and keeps its version.

use super::change::{Commit, Receipt};
use super::tables::Tables;
use super::version::VersionClock;
use crate::error::StoreError;
use crate::lease::Lease;
use crate::node::Writer;
use crate::row::Row;
use tavern_domain::Time;

/// Runs before the first change: no other node may hold a lease that this commit takes.
pub(super) fn check(tables: &mut impl Tables, now: Time, commit: &Commit) -> Result<(), StoreError> {
    for take in &commit.takes {
        let Some(found) = tables.lease(&take.name)? else { continue };
        let Lease { holder, until, .. } = found.lease.row;
        // A closed epoch holds no lease.
        if *holder_of(commit) != holder && found.holder_is_open && now < until {
            return Err(StoreError::LeaseHeld { name: take.name.clone(), by: holder, until });
        }
    }
    Ok(())
}

pub(super) fn take(
    tables: &mut impl Tables,
    clock: &VersionClock,
    commit: &Commit,
    receipt: &mut Receipt,
) -> Result<(), StoreError> {
    for take in &commit.takes {
        let holder = holder_of(commit).clone();
        let until = receipt.time + take.lease_ms;
        let (number, until) = match tables.lease(&take.name)? {
            Some(found) if found.lease.row.holder == holder => {
                (found.lease.version, until.max(found.lease.row.until))
            }
            Some(found) => (clock.next(found.lease.version), until),
            None => (clock.next(0), until),
        };
        tables.put(&Row::Lease(Lease { name: take.name.clone(), holder, until }), number)?;
        receipt.taken.push(number);
    }
    Ok(())
}

fn holder_of(commit: &Commit) -> &Writer {
    commit.writer.as_ref().expect("checked: only a node takes a lease")
}
