//! Deadlines: the rows `deadlines` by kind and name, the list `deadlines-due` by time. Their version is their due time.

use super::encoder::{Encoder, IndexEntries, padded};
use super::error::RedisError;
use super::pages::{Pages, Range};
use super::schema::RedisTable;
use super::value::{Json, names, number};
use tavern_domain::Time;
use tavern_store::{Deadline, Page};

pub(super) fn put(encoder: &mut Encoder, deadline: &Deadline) {
    // Version 0 means absent, so no deadline is due at 0.
    let due = deadline.due.max(Time(1));
    encoder.text("T");
    encoder.place(RedisTable::Deadlines, &[&deadline.kind, &deadline.name]);
    encoder.argument(&Json::new().end_with_due(due));
    let member = [&padded(due.0), &*deadline.kind, &*deadline.name];
    encoder.argument(&IndexEntries::default().with(RedisTable::DeadlinesDue, &member).0);
}

pub(super) async fn due(
    pages: &Pages<'_>,
    by: Time,
    after: Option<&Deadline>,
    limit: u32,
) -> Result<Page<Deadline>, RedisError> {
    let range =
        Range::by(by, after.map(|last| [padded(last.due.0), last.kind.to_string(), last.name.to_string()]));
    let found = pages.range(RedisTable::DeadlinesDue, range, None, limit).await?;
    found.members(limit, |member| {
        let [due, kind, name] = names::<3>(member)?;
        Ok(Deadline { due: Time(number(due.as_bytes())?), kind: kind.into(), name: name.into() })
    })
}
