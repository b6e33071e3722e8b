//! Leases: the table `leases`.

use super::value::{number, read_number, read_time, time};
use rusqlite::{Connection, Error, OptionalExtension};
use tavern_domain::Epoch;
use tavern_store::{Lease, Versioned, Writer};

pub(super) fn version(connection: &Connection, name: &str) -> Result<u64, Error> {
    let sql = "SELECT version FROM leases WHERE name = ?1";
    let found = connection.prepare_cached(sql)?.query_row([name], |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn get(connection: &Connection, name: &str) -> Result<Option<Versioned<Lease>>, Error> {
    let sql = "SELECT version, node, epoch, until FROM leases WHERE name = ?1";
    let read = |row: &rusqlite::Row<'_>| {
        let holder = Writer { node: row.get(1)?, epoch: Epoch(read_number(row, 2)?) };
        let lease = Lease { name: name.into(), holder, until: read_time(row, 3)? };
        Ok(Versioned { version: read_number(row, 0)?, row: lease })
    };
    connection.prepare_cached(sql)?.query_row([name], read).optional()
}

pub(super) fn put(connection: &Connection, lease: &Lease, version: u64) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO leases (name, version, node, epoch, until) VALUES (?1, ?2, ?3, ?4, ?5)";
    let Lease { name, holder, until } = lease;
    let values = (name, number(version), &holder.node, number(holder.epoch.0), time(*until));
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete(connection: &Connection, name: &str) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM leases WHERE name = ?1")?.execute([name]).map(drop)
}
