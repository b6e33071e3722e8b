//! Errands: the rows `errands` by source, version and count, the list `errands-due` by time. Their version is their due time.

use super::reader::{Pages, Span};
use super::sheet::{Sheet, padded};
use super::table::Table;
use super::value::{Json, Trouble, names, number};
use tavern_domain::Time;
use tavern_store::row::{Errand, ErrandId, NewErrand, Page};

/// As it stands in names.
pub(super) fn count(n: u32) -> String {
    format!("{n:010}")
}

/// `cause` counts what the commit deletes and puts, from one.
pub(super) fn add(sheet: &mut Sheet, cause: usize, n: u32, new: &NewErrand) {
    let due = new.due.max(Time(1));
    sheet.text("A");
    sheet.number(cause as u64);
    sheet.text(&new.of.to_string());
    sheet.text(&count(n));
    sheet.text(&padded(due.0));
    sheet.word(&[&Json::new().body(&new.body).end_with_due(due)]);
}

pub(super) async fn due(
    pages: &Pages<'_>,
    by: Time,
    after: Option<&(Time, ErrandId)>,
    limit: u32,
) -> Result<Page<Errand>, Trouble> {
    let after = after.map(|(due, id)| {
        let (version, n) = (padded(id.version), count(id.n));
        [padded(due.0), id.source.to_string(), version, n]
    });
    let found = pages.span(Table::ErrandsDue, Span::by(by, after), Some(Table::Errands), limit).await?;
    found.page(
        limit,
        |errand: &Errand| errand.body.len(),
        |field, row| {
            let [source, version, n] = names::<3>(field)?;
            let n = u32::try_from(number(n.as_bytes())?).map_err(|_| Trouble::Strange("no count"))?;
            let id = ErrandId { source: source.into(), version: number(version.as_bytes())?, n };
            Ok(Errand { id, due: row.time("due")?, body: row.body()? })
        },
    )
}
