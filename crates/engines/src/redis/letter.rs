//! Inboxes: the rows `inbox-messages` by user and number, the list `inbox-message-ids`, and `inboxes` with their counts.

use super::reader::Pages;
use super::sheet::{Sheet, padded};
use super::table::Table;
use super::value::{Json, Stored, Trouble, names, number};
use tavern_store::letter::{Freed, Letter, Letters, NewLetter};

pub(super) fn free(sheet: &mut Sheet, freed: &Freed) {
    sheet.text("V");
    sheet.text(&freed.user);
    sheet.text(&padded(freed.through));
    sheet.number(freed.unread.into());
}

pub(super) fn post(sheet: &mut Sheet, letter: &NewLetter) {
    sheet.text("B");
    sheet.text(&letter.user);
    sheet.word(&Json::new().body(&letter.body).end());
    sheet.number(letter.body.len() as u64);
    sheet.number(letter.most_letters as u64);
    sheet.number(letter.most_bytes as u64);
}

pub(super) async fn page(pages: &Pages<'_>, user: &str, after: u64, limit: u32) -> Result<Letters, Trouble> {
    let tables = [Table::Clock, Table::Inboxes, Table::InboxMessageIds, Table::InboxMessages];
    let (inbox, _, found) = pages.beneath(tables, user, Some(&padded(after)), limit).await?;
    let dropped = if inbox.is_empty() { 0 } else { Stored::parse(&inbox)?.number("dropped")? };
    let page = found.page(
        limit,
        |letter: &Letter| letter.body.len(),
        |member, row| {
            let [_, n] = names::<2>(member)?;
            Ok(Letter { n: number(n.as_bytes())?, at: row.time("at")?, body: row.body()? })
        },
    )?;
    Ok(Letters { dropped, page })
}
