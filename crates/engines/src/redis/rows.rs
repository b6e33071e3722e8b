//! Whole lists of rows, for export.

use super::error::RedisError;
use super::pages::{Pages, Range};
use super::schema::RedisTable;
use super::value::{StoredRow, names};
use super::{document, hold, presence, social};
use tavern_store::{DocumentKey, Page, PresenceKey, Row, RowKey, RowKind, Versioned};

pub(super) async fn page(
    pages: &Pages<'_>,
    kind: RowKind,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<Row>>, RedisError> {
    let (list, rows) = match kind {
        RowKind::Document => (RedisTable::DocumentIds, RedisTable::Documents),
        RowKind::Presence => (RedisTable::Roster, RedisTable::Presences),
        RowKind::Hold => (RedisTable::HoldIds, RedisTable::Holds),
        RowKind::User => (RedisTable::UserIds, RedisTable::Users),
        RowKind::Follow => (RedisTable::Following, RedisTable::Follows),
    };
    let (first, second) = RowKey::names(after);
    let after = after.map(|_| if kind == RowKind::User { vec![first] } else { vec![first, second] });
    let found = pages.range(list, Range::under(&[], after.as_deref()), Some(rows), limit).await?;
    found.page(limit, |found: &Versioned<Row>| found.row.bytes(), |field, row| read(kind, field, row))
}

fn read(kind: RowKind, field: &[u8], row: &mut StoredRow) -> Result<Versioned<Row>, RedisError> {
    Ok(match kind {
        RowKind::Document => {
            let [kind, name] = names::<2>(field)?;
            let key =
                DocumentKey::parse(kind, name).ok_or(RedisError::Unexpected("not a kind of document"))?;
            document::read(key, row)?.map(Row::Document)
        }
        RowKind::Presence => presence::named(field, row)?.map(Row::Presence),
        RowKind::Hold => {
            let [channel, user] = names::<2>(field)?;
            hold::read(PresenceKey::new(channel, user), row)?.map(Row::Hold)
        }
        RowKind::User => {
            let [user] = names::<1>(field)?;
            social::read_user(&user.into(), row)?.map(Row::User)
        }
        RowKind::Follow => {
            let [follower, followee] = names::<2>(field)?;
            social::read_follow(follower, followee, row)?.map(Row::Follow)
        }
    })
}
