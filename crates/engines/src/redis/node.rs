//! Nodes and their leases: the rows `nodes` by name and epoch, as the commit script writes them. There are few.

use super::connection::RedisReply;
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::script::ScriptCall;
use super::value::{StoredRow, names, number};
use tavern_domain::Epoch;
use tavern_store::{NodeRow, Page, Writer};

pub(super) async fn page(
    pages: &Pages<'_>,
    after: Option<&Writer>,
    limit: u32,
) -> Result<Page<NodeRow>, RedisError> {
    let nodes = all(pages).await?;
    Page::fill(
        limit,
        |_| 0,
        nodes.into_iter().filter(|node| after.is_none_or(|after| node.writer > *after)).map(Ok),
    )
}

/// In the order of name and epoch.
pub(super) async fn all(pages: &Pages<'_>) -> Result<Vec<NodeRow>, RedisError> {
    let parts = [b"HGETALL", pages.keys.get(RedisTable::Nodes)];
    let parts = pages.pool.ask(&ScriptCall::plain(&parts)).await?.list()?;
    let mut nodes = parts.chunks(2).map(read).collect::<Result<Vec<_>, _>>()?;
    nodes.sort_by(|one, other| one.writer.cmp(&other.writer));
    Ok(nodes)
}

fn read(pair: &[RedisReply]) -> Result<NodeRow, RedisError> {
    let [field, row] = pair else { return Err(RedisError::Unexpected("a short list of nodes")) };
    let [name, epoch] = names::<2>(field.text()?)?;
    let row = StoredRow::parse(row.text()?)?;
    Ok(NodeRow {
        writer: Writer::new(name, Epoch(number(epoch.as_bytes())?)),
        opened_at: row.time("opened_at")?,
        lease_until: row.time("lease_until")?,
        closed_at: row.time_or_none("closed_at")?,
        clean: row.flag("clean"),
    })
}
