//! Deadlines: the table `deadlines`. Their version is their due time.

use super::value::{read_time, time};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use tavern_domain::Time;
use tavern_store::{Deadline, Page};

pub(super) fn version(connection: &Connection, kind: &str, name: &str) -> Result<u64, Error> {
    let sql = "SELECT due FROM deadlines WHERE kind = ?1 AND name = ?2";
    let due = connection.prepare_cached(sql)?.query_row((kind, name), |row| read_time(row, 0)).optional()?;
    Ok(due.map_or(0, |due| due.0))
}

pub(super) fn set(connection: &Connection, deadline: &Deadline) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO deadlines (kind, name, due) VALUES (?1, ?2, ?3)";
    let values = (&*deadline.kind, &*deadline.name, time(deadline.due));
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete(connection: &Connection, kind: &str, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM deadlines WHERE kind = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.execute((kind, name)).map(drop)
}

pub(super) fn due(
    connection: &Connection,
    by: Time,
    after: Option<&Deadline>,
    limit: u32,
) -> Result<Page<Deadline>, Error> {
    let sql = "SELECT due, kind, name FROM deadlines
        WHERE due <= ?1 AND (due, kind, name) > (?2, ?3, ?4) ORDER BY due, kind, name";
    let (due, kind, name) = after.map_or((0, "", ""), |last| (time(last.due), &*last.kind, &*last.name));
    let read = |row: &Row<'_>| Ok(Deadline { due: read_time(row, 0)?, kind: row.get(1)?, name: row.get(2)? });
    let mut statement = connection.prepare_cached(sql)?;
    Page::fill(limit, |deadline| deadline.name.len(), statement.query_map((time(by), due, kind, name), read)?)
}
