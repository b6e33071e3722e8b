//! Presences set by apps: the table `holds`.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::statements::RowStatements;
use super::value::{number, read_number, read_time_or_none, text, text_or_none, time};
use std::collections::BTreeSet;
use tavern_store::{Page, PresenceHold, PresenceKey, RowKey, Versioned, limits, row};
use tokio_postgres::Row;

pub(super) const KIND: RowStatements = RowStatements {
    lock: "INSERT INTO holds (channel_name, user_id, version)
        SELECT channel_name, user_id, 0 FROM unnest($1::text[], $2::text[]) AS k (channel_name, user_id)
        ON CONFLICT (channel_name, user_id) DO UPDATE SET version = 0 WHERE false",
    load: "SELECT k.at, h.version, h.channel_name, h.user_id, h.held_with, h.until
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (channel_name, user_id, at)
        JOIN holds h ON h.channel_name = k.channel_name AND h.user_id = k.user_id WHERE h.version > 0",
    delete: "DELETE FROM holds h USING unnest($1::text[], $2::text[]) AS k (channel_name, user_id)
        WHERE h.channel_name = k.channel_name AND h.user_id = k.user_id",
};

/// The holds that follow these presences, in the columns of `KIND.load`.
pub(super) fn load_held_with(presences: &BTreeSet<PresenceKey>) -> Statement<'_> {
    let sql = "SELECT 0::bigint, h.version, h.channel_name, h.user_id, h.held_with, h.until
        FROM unnest($1::text[], $2::text[]) AS k (held_with, user_id)
        JOIN holds h ON h.user_id = k.user_id AND h.held_with = k.held_with";
    Statement::new(sql)
        .with(presences.iter().map(|key| &*key.channel).collect::<Vec<_>>())
        .with(presences.iter().map(|key| &*key.user).collect::<Vec<_>>())
}

pub(super) fn loaded(row: &Row) -> Result<PresenceHold, PostgresError> {
    let key = PresenceKey { channel: text(row, 2)?, user: text(row, 3)? };
    Ok(PresenceHold { key, held_with: text_or_none(row, 4)?, until: read_time_or_none(row, 5)? })
}

pub(super) fn put<'a>(rows: &[(&'a PresenceHold, u64)]) -> Statement<'a> {
    let sql = "UPDATE holds h SET version = k.version, held_with = k.held_with, until = k.until
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[])
            AS k (channel_name, user_id, version, held_with, until)
        WHERE h.channel_name = k.channel_name AND h.user_id = k.user_id";
    Statement::new(sql)
        .with(rows.iter().map(|(hold, _)| &*hold.key.channel).collect::<Vec<_>>())
        .with(rows.iter().map(|(hold, _)| &*hold.key.user).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(hold, _)| hold.held_with.as_deref()).collect::<Vec<_>>())
        .with(rows.iter().map(|(hold, _)| hold.until.map(time)).collect::<Vec<_>>())
}

pub(super) async fn get(
    connection: &PostgresConnection,
    key: &PresenceKey,
) -> Result<Option<Versioned<PresenceHold>>, PostgresError> {
    let sql = "SELECT 0::bigint, version, channel_name, user_id, held_with, until FROM holds
        WHERE channel_name = $1 AND user_id = $2";
    let rows = connection.one(Statement::new(sql).with(&*key.channel).with(&*key.user)).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Versioned { version: read_number(row, 1)?, row: loaded(row)? }))
}

pub(super) async fn rows(
    connection: &PostgresConnection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<row::Row>>, PostgresError> {
    let sql = "SELECT 0::bigint, version, channel_name, user_id, held_with, until FROM holds
        WHERE (channel_name, user_id) > ($1, $2) ORDER BY channel_name, user_id LIMIT $3";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (channel, user) = RowKey::names(after);
    let rows =
        connection.one(Statement::new(sql).with(channel).with(user).with(i64::from(limit) + 1)).await?;
    let read = |row| {
        let hold = row::Row::Hold(loaded(row)?);
        Ok::<_, PostgresError>(Versioned { version: read_number(row, 1)?, row: hold })
    };
    Page::fill(limit, |row| row.row.bytes(), rows.iter().map(read))
}
