//! Appending to the log, and restoring entries of another store. Must hold: positions and the counts of topics have
//! no holes; an id is unique; nothing is restored at or before the head.

use super::change::{Commit, Receipt};
use super::tables::Tables;
use crate::error::StoreError;
use crate::log::{Appended, LogEntry, Trim};

pub(super) fn append(
    tables: &mut impl Tables,
    commit: &Commit,
    receipt: &mut Receipt,
) -> Result<(), StoreError> {
    for entry in &commit.restores {
        if entry.position > tables.head()? {
            tables.append(entry)?;
        }
    }
    for new in &commit.appends {
        let known = match &new.id {
            Some(id) => tables.known_event(&new.topic, id)?,
            None => None,
        };
        if let Some((position, count)) = known {
            receipt.appended.push(Appended { position, count, duplicate: true });
            continue;
        }
        let (position, count) = (tables.head()? + 1, tables.count(&new.topic)? + 1);
        tables.append(&LogEntry {
            position,
            topic: new.topic.clone(),
            count,
            at: receipt.time,
            id: new.id.clone(),
            body: new.body.clone(),
        })?;
        receipt.appended.push(Appended { position, count, duplicate: false });
    }
    if let Some(trim) = &commit.trim {
        // Keep what is appended later, also when both are in one commit.
        let end = tables.head()? + 1;
        tables.trim(&Trim { before: trim.before.min(end), ids_before: trim.ids_before.min(end) })?;
    }
    Ok(())
}
