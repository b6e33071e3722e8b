//! Nodes and their leases: the table `nodes`.

use super::value::{number, read_number, read_time, read_time_or_none, time};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use tavern_domain::Epoch;
use tavern_store::{NodeRow, Page, Writer};

pub(super) fn get(connection: &Connection, node: &Writer) -> Result<Option<NodeRow>, Error> {
    let sql = "SELECT name, epoch, opened_at, lease_until, closed_at, clean FROM nodes
        WHERE name = ?1 AND epoch = ?2";
    connection.prepare_cached(sql)?.query_row((&*node.node, number(node.epoch.0)), read).optional()
}

pub(super) fn epochs(connection: &Connection, name: &str) -> Result<Vec<NodeRow>, Error> {
    let sql = "SELECT name, epoch, opened_at, lease_until, closed_at, clean FROM nodes
        WHERE name = ?1 ORDER BY epoch";
    connection.prepare_cached(sql)?.query_map([name], read)?.collect()
}

pub(super) fn put(connection: &Connection, node: &NodeRow) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO nodes (name, epoch, opened_at, lease_until, closed_at, clean)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let Writer { node: name, epoch } = &node.writer;
    let (opened_at, lease_until) = (time(node.opened_at), time(node.lease_until));
    let values = (&**name, number(epoch.0), opened_at, lease_until, node.closed_at.map(time), node.clean);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn forget(connection: &Connection, node: &Writer) -> Result<(), Error> {
    let sql = "DELETE FROM nodes WHERE name = ?1 AND epoch = ?2";
    connection.prepare_cached(sql)?.execute((&*node.node, number(node.epoch.0))).map(drop)
}

pub(super) fn page(
    connection: &Connection,
    after: Option<&Writer>,
    limit: u32,
) -> Result<Page<NodeRow>, Error> {
    let sql = "SELECT name, epoch, opened_at, lease_until, closed_at, clean FROM nodes
        WHERE (name, epoch) > (?1, ?2) ORDER BY name, epoch";
    let after = after.map_or(("", 0), |writer| (&*writer.node, number(writer.epoch.0)));
    Page::fill(limit, |_| 0, connection.prepare_cached(sql)?.query_map(after, read)?)
}

fn read(row: &Row<'_>) -> Result<NodeRow, Error> {
    Ok(NodeRow {
        writer: Writer { node: row.get(0)?, epoch: Epoch(read_number(row, 1)?) },
        opened_at: read_time(row, 2)?,
        lease_until: read_time(row, 3)?,
        closed_at: read_time_or_none(row, 4)?,
        clean: row.get(5)?,
    })
}
