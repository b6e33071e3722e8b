//! Inboxes: messages are freed, added and, above the limits of an inbox, dropped. Must hold: numbers of one inbox
//! only grow; the highest dropped number is kept until the user has read past it.

use super::change::{Commit, Receipt};
use super::tables::{InboxCounts, RemovedMessages, Tables};
use super::version::VersionClock;
use crate::error::StoreError;
use crate::inbox::{FreedMessages, InboxMessage, NewInboxMessage};

pub(super) fn apply(
    tables: &mut impl Tables,
    clock: &mut VersionClock,
    commit: &Commit,
    receipt: &mut Receipt,
) -> Result<(), StoreError> {
    for freed in &commit.freed_messages {
        free(tables, clock, freed)?;
    }
    for new in &commit.inbox_messages {
        let n = add(tables, clock, new, receipt)?;
        receipt.inbox_numbers.push(n);
    }
    Ok(())
}

fn free(tables: &mut impl Tables, clock: &mut VersionClock, freed: &FreedMessages) -> Result<(), StoreError> {
    let mut inbox = tables.inbox(&freed.user)?;
    let removed = tables.remove_messages(&freed.user, freed.through)?;
    lose(&mut inbox, removed);
    if freed.unread {
        inbox.dropped = inbox.dropped.max(removed.through);
    } else if inbox.dropped <= freed.through {
        inbox.dropped = 0;
    }
    if inbox.messages == 0 && inbox.dropped == 0 {
        clock.retire(inbox.last);
        inbox = InboxCounts::default();
    }
    tables.set_inbox(&freed.user, &inbox)
}

fn add(
    tables: &mut impl Tables,
    clock: &VersionClock,
    new: &NewInboxMessage,
    receipt: &Receipt,
) -> Result<u64, StoreError> {
    let mut inbox = tables.inbox(&new.user)?;
    let n = clock.next(inbox.last);
    let message = InboxMessage { n, at: receipt.time, body: new.body.clone() };
    tables.add_message(&new.user, &message)?;
    inbox =
        InboxCounts { last: n, messages: inbox.messages + 1, bytes: inbox.bytes + new.body.len(), ..inbox };
    // The newest is kept, however large it is.
    while inbox.messages > 1 && (inbox.messages > new.max_messages || inbox.bytes > new.max_bytes) {
        let removed = tables.remove_oldest(&new.user)?;
        if removed.messages == 0 {
            // The counts were changed by another program.
            break;
        }
        lose(&mut inbox, removed);
        inbox.dropped = removed.through;
    }
    tables.set_inbox(&new.user, &inbox)?;
    Ok(n)
}

fn lose(inbox: &mut InboxCounts, removed: RemovedMessages) {
    inbox.messages = inbox.messages.saturating_sub(removed.messages);
    inbox.bytes = inbox.bytes.saturating_sub(removed.bytes);
}
