//! Leases: the table `leases`.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::statements::RowStatements;
use super::value::{get as column, number, read_number, read_time, text, time};
use tavern_domain::Epoch;
use tavern_store::commit::LeaseState;
use tavern_store::{Lease, Versioned, Writer};
use tokio_postgres::Row;

/// Whether the holder's epoch is open is read without a lock: a closed epoch stays closed.
pub(super) const KIND: RowStatements = RowStatements {
    lock: "INSERT INTO leases (name, version, node, epoch, until)
        SELECT name, 0, '', 0, 0 FROM unnest($1::text[], $2::text[]) AS k (name, nothing)
        ON CONFLICT (name) DO UPDATE SET version = 0 WHERE false",
    load: "SELECT k.at, l.version, l.name, l.node, l.epoch, l.until,
            EXISTS (SELECT FROM nodes n WHERE n.name = l.node AND n.epoch = l.epoch AND n.closed_at IS NULL)
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (name, nothing, at)
        JOIN leases l ON l.name = k.name WHERE l.version > 0",
    delete: "DELETE FROM leases l USING unnest($1::text[], $2::text[]) AS k (name, nothing)
        WHERE l.name = k.name",
};

/// From the columns of `KIND.load`.
pub(super) fn loaded(row: &Row) -> Result<LeaseState, PostgresError> {
    Ok(LeaseState { lease: read(row)?, holder_is_open: column(row, 6)? })
}

fn read(row: &Row) -> Result<Versioned<Lease>, PostgresError> {
    let holder = Writer { node: text(row, 3)?, epoch: Epoch(read_number(row, 4)?) };
    let lease = Lease { name: text(row, 2)?, holder, until: read_time(row, 5)? };
    Ok(Versioned { version: read_number(row, 1)?, row: lease })
}

pub(super) fn put<'a>(rows: &[(&'a Lease, u64)]) -> Statement<'a> {
    let sql = "UPDATE leases l SET version = k.version, node = k.node, epoch = k.epoch, until = k.until
        FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[])
            AS k (name, version, node, epoch, until) WHERE l.name = k.name";
    Statement::new(sql)
        .with(rows.iter().map(|(lease, _)| &*lease.name).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(lease, _)| &*lease.holder.node).collect::<Vec<_>>())
        .with(rows.iter().map(|(lease, _)| number(lease.holder.epoch.0)).collect::<Vec<_>>())
        .with(rows.iter().map(|(lease, _)| time(lease.until)).collect::<Vec<_>>())
}

pub(super) async fn get(
    connection: &PostgresConnection,
    name: &str,
) -> Result<Option<Versioned<Lease>>, PostgresError> {
    let sql = "SELECT 0::bigint, version, name, node, epoch, until FROM leases WHERE name = $1";
    connection.one(Statement::new(sql).with(name)).await?.first().map(read).transpose()
}
