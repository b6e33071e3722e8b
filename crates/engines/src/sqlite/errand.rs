//! Errands: the table `errands`. Their version is their due time.

use super::value::{number, read_number, read_time, time};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use tavern_domain::Time;
use tavern_store::row::{Errand, ErrandId, Page};

pub(super) fn version(connection: &Connection, id: &ErrandId) -> Result<u64, Error> {
    let sql = "SELECT due FROM errands WHERE source = ?1 AND version = ?2 AND n = ?3";
    let key = (&*id.source, number(id.version), id.n);
    let due = connection.prepare_cached(sql)?.query_row(key, |row| read_time(row, 0)).optional()?;
    Ok(due.map_or(0, |due| due.0))
}

pub(super) fn add(connection: &Connection, errand: &Errand) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO errands (source, version, n, due, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    let ErrandId { source, version, n } = &errand.id;
    let values = (&**source, number(*version), n, time(errand.due), &*errand.body);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete(connection: &Connection, id: &ErrandId) -> Result<(), Error> {
    let sql = "DELETE FROM errands WHERE source = ?1 AND version = ?2 AND n = ?3";
    connection.prepare_cached(sql)?.execute((&*id.source, number(id.version), id.n)).map(drop)
}

pub(super) fn due(
    connection: &Connection,
    by: Time,
    after: Option<&(Time, ErrandId)>,
    limit: u32,
) -> Result<Page<Errand>, Error> {
    let sql = "SELECT due, source, version, n, body FROM errands
        WHERE due <= ?1 AND (due, source, version, n) > (?2, ?3, ?4, ?5) ORDER BY due, source, version, n";
    let (due, source, version, n) =
        after.map_or((0, "", 0, 0), |(due, id)| (time(*due), &*id.source, number(id.version), id.n));
    let read = |row: &Row<'_>| {
        let id = ErrandId { source: row.get(1)?, version: read_number(row, 2)?, n: row.get(3)? };
        Ok(Errand { id, due: read_time(row, 0)?, body: row.get(4)? })
    };
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map((time(by), due, source, version, n), read)?;
    Page::fill(limit, |errand| errand.body.len(), rows)
}
