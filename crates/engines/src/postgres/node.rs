//! Nodes and their leases: the table `nodes`.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::value::{get, number, read_number, read_time, read_time_or_none, text, time};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Epoch;
use tavern_store::{NodeRow, Page, Writer, limits};
use tokio_postgres::Row;

/// Two transactions that open the same name are serialised, even if it has no row yet.
pub(super) const LOCK_NAMES: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('node:' || current_schema() || ':' || name, 0))
    FROM unnest($1::text[]) AS k (name)";

/// Fencing: a commit locks its writer's row for share, and closing an epoch locks it exclusively. Returns the rows.
pub(super) fn lock<'a>(
    nodes: &'a BTreeSet<Writer>,
    names: &'a BTreeSet<Arc<str>>,
    exclusive: bool,
) -> Statement<'a> {
    let shared = "SELECT n.name, n.epoch, n.opened_at, n.lease_until, n.closed_at, n.clean
        FROM nodes n JOIN unnest($1::text[], $2::bigint[]) AS k (name, epoch) ON n.name = k.name AND n.epoch = k.epoch
        ORDER BY n.name, n.epoch FOR SHARE OF n";
    let update = "SELECT n.name, n.epoch, n.opened_at, n.lease_until, n.closed_at, n.clean FROM nodes n
        WHERE n.name = ANY ($3)
            OR EXISTS (SELECT FROM unnest($1::text[], $2::bigint[]) AS k (name, epoch) WHERE n.name = k.name AND n.epoch = k.epoch)
        ORDER BY n.name, n.epoch FOR UPDATE OF n";
    let statement = Statement::new(if exclusive { update } else { shared })
        .with(nodes.iter().map(|node| &*node.node).collect::<Vec<_>>())
        .with(nodes.iter().map(|node| number(node.epoch.0)).collect::<Vec<_>>());
    match exclusive {
        true => statement.with(names.iter().map(|name| &**name).collect::<Vec<_>>()),
        false => statement,
    }
}

pub(super) fn put<'a>(node: &'a NodeRow) -> Statement<'a> {
    let sql = "INSERT INTO nodes (name, epoch, opened_at, lease_until, closed_at, clean) VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (name, epoch) DO UPDATE SET lease_until = excluded.lease_until, closed_at = excluded.closed_at,
        clean = excluded.clean";
    Statement::new(sql)
        .with(&*node.writer.node)
        .with(number(node.writer.epoch.0))
        .with(time(node.opened_at))
        .with(time(node.lease_until))
        .with(node.closed_at.map(time))
        .with(node.clean)
}

pub(super) fn forget(node: &Writer) -> Statement<'_> {
    let sql = "DELETE FROM nodes WHERE name = $1 AND epoch = $2";
    Statement::new(sql).with(&*node.node).with(number(node.epoch.0))
}

pub(super) async fn page(
    connection: &PostgresConnection,
    after: Option<&Writer>,
    limit: u32,
) -> Result<Page<NodeRow>, PostgresError> {
    let sql = "SELECT name, epoch, opened_at, lease_until, closed_at, clean FROM nodes
        WHERE (name, epoch) > ($1, $2) ORDER BY name, epoch LIMIT $3";
    let (name, epoch) = after.map_or(("", 0), |writer| (&*writer.node, number(writer.epoch.0)));
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let rows = connection.one(Statement::new(sql).with(name).with(epoch).with(i64::from(limit) + 1)).await?;
    Page::fill(limit, |_| 0, rows.iter().map(read))
}

pub(super) fn read(row: &Row) -> Result<NodeRow, PostgresError> {
    Ok(NodeRow {
        writer: Writer { node: text(row, 0)?, epoch: Epoch(read_number(row, 1)?) },
        opened_at: read_time(row, 2)?,
        lease_until: read_time(row, 3)?,
        closed_at: read_time_or_none(row, 4)?,
        clean: get(row, 5)?,
    })
}
