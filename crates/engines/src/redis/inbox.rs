//! Inboxes: the rows `inbox-messages` by user and number, the list `inbox-message-ids`, and `inboxes` with their counts.

use super::reader::Pages;
use super::sheet::{Sheet, padded};
use super::table::Table;
use super::value::{Json, Stored, Trouble, names, number};
use tavern_store::inbox::{FreedMessages, InboxMessage, InboxPage, NewInboxMessage};

pub(super) fn free(sheet: &mut Sheet, freed: &FreedMessages) {
    sheet.text("V");
    sheet.text(&freed.user);
    sheet.text(&padded(freed.through));
    sheet.number(freed.unread.into());
}

pub(super) fn add(sheet: &mut Sheet, message: &NewInboxMessage) {
    sheet.text("B");
    sheet.text(&message.user);
    sheet.word(&Json::new().body(&message.body).end());
    sheet.number(message.body.len() as u64);
    sheet.number(message.max_messages as u64);
    sheet.number(message.max_bytes as u64);
}

pub(super) async fn page(
    pages: &Pages<'_>,
    user: &str,
    after: u64,
    limit: u32,
) -> Result<InboxPage, Trouble> {
    let tables = [Table::Clock, Table::Inboxes, Table::InboxMessageIds, Table::InboxMessages];
    let (inbox, _, found) = pages.beneath(tables, user, Some(&padded(after)), limit).await?;
    let dropped = if inbox.is_empty() { 0 } else { Stored::parse(&inbox)?.number("dropped")? };
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
