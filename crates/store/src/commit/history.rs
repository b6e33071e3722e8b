//! Channel history: clearing, then appending. Must hold: offsets have no holes; an id is unique among the stored
//! messages; a cleared epoch is never used again.

use super::change::{Commit, Receipt};
use super::tables::{HistoryHead, Tables};
use super::version::VersionClock;
use crate::error::StoreError;
use crate::history::{HistoryAppended, HistoryMessage, HistoryPosition};

pub(super) fn apply(
    tables: &mut impl Tables,
    clock: &mut VersionClock,
    commit: &Commit,
    receipt: &mut Receipt,
) -> Result<(), StoreError> {
    for clear in &commit.history_clears {
        let head = tables.history(&clear.channel)?;
        let is_wanted = clear.only_at.is_none_or(|position| position == head.position);
        if head.position.epoch > 0 && is_wanted {
            clock.retire(head.position.epoch);
            tables.clear_history(&clear.channel)?;
        }
    }
    for new in &commit.history {
        let known = match &new.id {
            Some(id) => tables.known_history(&new.channel, id)?,
            None => None,
        };
        let before = tables.history(&new.channel)?;
        let epoch = if before.position.epoch > 0 { before.position.epoch } else { clock.begin(0) };
        if let Some(offset) = known {
            let position = HistoryPosition { epoch, offset };
            receipt.history.push(HistoryAppended { position, duplicate: true });
            continue;
        }
        let position = HistoryPosition { epoch, offset: before.position.offset + 1 };
        let head = HistoryHead {
            position,
            bytes: before.bytes + new.stored_bytes(),
            expires_at: receipt.time + new.keep.ttl_ms,
        };
        let message = HistoryMessage {
            offset: position.offset,
            at: receipt.time,
            id: new.id.clone(),
            sender: new.sender.clone(),
            json: new.json,
            body: new.body.clone(),
        };
        tables.append_history(&new.channel, &head, &message, &new.keep)?;
        receipt.history.push(HistoryAppended { position, duplicate: false });
    }
    Ok(())
}
