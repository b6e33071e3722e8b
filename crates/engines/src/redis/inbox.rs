//! Inboxes: the rows `inbox-messages` by user and number, the list `inbox-message-ids`, and `inboxes` with their counts.

use super::encoder::{Encoder, padded};
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::value::{Json, StoredRow, names, number};
use tavern_store::{FreedMessages, InboxMessage, InboxPage, NewInboxMessage};

pub(super) fn free(encoder: &mut Encoder, freed: &FreedMessages) {
    encoder.text("V");
    encoder.text(&freed.user);
    encoder.text(&padded(freed.through));
    encoder.number(freed.unread.into());
}

pub(super) fn add(encoder: &mut Encoder, message: &NewInboxMessage) {
    encoder.text("B");
    encoder.text(&message.user);
    encoder.argument(&Json::new().body(&message.body).end());
    encoder.number(message.body.len() as u64);
    encoder.number(message.max_messages as u64);
    encoder.number(message.max_bytes as u64);
}

pub(super) async fn page(
    pages: &Pages<'_>,
    user: &str,
    after: u64,
    limit: u32,
) -> Result<InboxPage, RedisError> {
    let tables =
        [RedisTable::Clock, RedisTable::Inboxes, RedisTable::InboxMessageIds, RedisTable::InboxMessages];
    let (inbox, _, found) = pages.beneath(tables, user, Some(&padded(after)), limit).await?;
    let dropped = if inbox.is_empty() { 0 } else { StoredRow::parse(&inbox)?.number("dropped")? };
    let page = found.page(
        limit,
        |message: &InboxMessage| message.body.len(),
        |member, row| {
            let [_, n] = names::<2>(member)?;
            Ok(InboxMessage { n: number(n.as_bytes())?, at: row.time("at")?, body: row.body()? })
        },
    )?;
    Ok(InboxPage { dropped, page })
}
