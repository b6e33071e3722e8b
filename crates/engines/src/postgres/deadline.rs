//! Deadlines: the table `deadlines`. Their version is their due time.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::statements::RowStatements;
use super::value::{read_time, text, time};
use tavern_domain::Time;
use tavern_store::{Deadline, Page, limits};

pub(super) const KIND: RowStatements = RowStatements {
    lock: "INSERT INTO deadlines (kind, name, due)
        SELECT kind, name, 0 FROM unnest($1::text[], $2::text[]) AS k (kind, name)
        ON CONFLICT (kind, name) DO UPDATE SET due = 0 WHERE false",
    load: "SELECT k.at, d.due FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (kind, name, at)
        JOIN deadlines d ON d.kind = k.kind AND d.name = k.name WHERE d.due > 0",
    delete: "DELETE FROM deadlines d USING unnest($1::text[], $2::text[]) AS k (kind, name)
        WHERE d.kind = k.kind AND d.name = k.name",
};

pub(super) fn set<'a>(rows: &[&'a Deadline]) -> Statement<'a> {
    let sql = "UPDATE deadlines d SET due = k.due
        FROM unnest($1::text[], $2::text[], $3::bigint[]) AS k (kind, name, due)
        WHERE d.kind = k.kind AND d.name = k.name";
    Statement::new(sql)
        .with(rows.iter().map(|row| &*row.kind).collect::<Vec<_>>())
        .with(rows.iter().map(|row| &*row.name).collect::<Vec<_>>())
        .with(rows.iter().map(|row| time(row.due)).collect::<Vec<_>>())
}

pub(super) async fn due(
    connection: &PostgresConnection,
    by: Time,
    after: Option<&Deadline>,
    limit: u32,
) -> Result<Page<Deadline>, PostgresError> {
    let sql = "SELECT due, kind, name FROM deadlines
        WHERE due <= $1 AND (due, kind, name) > ($2, $3, $4) ORDER BY due, kind, name LIMIT $5";
    let (due, kind, name) = after.map_or((0, "", ""), |last| (time(last.due), &*last.kind, &*last.name));
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let statement =
        Statement::new(sql).with(time(by)).with(due).with(kind).with(name).with(i64::from(limit) + 1);
    let rows = connection.one(statement).await?;
    let read = |row| {
        Ok::<_, PostgresError>(Deadline { due: read_time(row, 0)?, kind: text(row, 1)?, name: text(row, 2)? })
    };
    Page::fill(limit, |deadline| deadline.name.len(), rows.iter().map(read))
}
