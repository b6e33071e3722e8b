//! Errands: the table `errands`. Their version is their due time. An id is never used twice, so one that is not there
//! needs no lock.

use super::link::{Link, Step};
use super::value::{Trouble, get, number, read_number, read_time, text, time};
use std::collections::BTreeSet;
use tavern_domain::Time;
use tavern_store::limits;
use tavern_store::row::{Errand, ErrandId, Page};
use tokio_postgres::Row;

pub(super) fn lock(ids: &BTreeSet<ErrandId>) -> Step<'_> {
    let sql =
        "SELECT FROM errands e JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS k (source, version, n)
        ON e.source = k.source AND e.version = k.version AND e.n = k.n
        ORDER BY e.source, e.version, e.n FOR UPDATE OF e";
    with_ids(sql, ids.iter())
}

pub(super) fn load(ids: &BTreeSet<ErrandId>) -> Step<'_> {
    let sql = "SELECT e.source, e.version, e.n, e.due
        FROM errands e JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS k (source, version, n)
        ON e.source = k.source AND e.version = k.version AND e.n = k.n";
    with_ids(sql, ids.iter())
}

pub(super) fn loaded(row: &Row) -> Result<(ErrandId, u64), Trouble> {
    Ok((id(row, 0)?, read_time(row, 3)?.0))
}

pub(super) fn add<'a>(rows: &[&'a Errand]) -> Step<'a> {
    let sql = "INSERT INTO errands (source, version, n, due, body)
        SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])
        ON CONFLICT (source, version, n) DO UPDATE SET due = excluded.due, body = excluded.body";
    with_ids(sql, rows.iter().map(|errand| &errand.id))
        .with(rows.iter().map(|errand| time(errand.due)).collect::<Vec<_>>())
        .with(rows.iter().map(|errand| &*errand.body).collect::<Vec<_>>())
}

pub(super) fn delete<'a>(ids: &[&'a ErrandId]) -> Step<'a> {
    let sql =
        "DELETE FROM errands e USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS k (source, version, n)
        WHERE e.source = k.source AND e.version = k.version AND e.n = k.n";
    with_ids(sql, ids.iter().copied())
}

fn with_ids<'a>(sql: &'static str, ids: impl Iterator<Item = &'a ErrandId> + Clone) -> Step<'a> {
    Step::new(sql)
        .with(ids.clone().map(|id| &*id.source).collect::<Vec<_>>())
        .with(ids.clone().map(|id| number(id.version)).collect::<Vec<_>>())
        .with(ids.map(|id| i64::from(id.n)).collect::<Vec<_>>())
}

pub(super) async fn due(
    link: &Link,
    by: Time,
    after: Option<&(Time, ErrandId)>,
    limit: u32,
) -> Result<Page<Errand>, Trouble> {
    // Bodies can be large: the server sends no more than a page of them and the one that is too many.
    let sql = "SELECT source, version, n, due, body FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY due, source, version, n) - length(body) AS earlier FROM
                (SELECT * FROM errands WHERE due <= $1 AND (due, source, version, n) > ($2, $3, $4, $5)
                ORDER BY due, source, version, n LIMIT $6) AS few) AS counted
        WHERE earlier <= $7 ORDER BY due, source, version, n";
    let (due, source, version, n) = after
        .map_or((0, "", 0, 0), |(due, id)| (time(*due), &*id.source, number(id.version), i64::from(id.n)));
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let step = Step::new(sql).with(time(by)).with(due).with(source).with(version).with(n);
    let rows = link.one(step.with(i64::from(limit) + 1).with(limits::PAGE_BYTES as i64)).await?;
    let read = |row| {
        let errand = Errand { id: id(row, 0)?, due: read_time(row, 3)?, body: get::<&[u8]>(row, 4)?.into() };
        Ok::<_, Trouble>(errand)
    };
    Page::fill(limit, |errand| errand.body.len(), rows.iter().map(read))
}

fn id(row: &Row, column: usize) -> Result<ErrandId, Trouble> {
    let n =
        u32::try_from(get::<i64>(row, column + 2)?).map_err(|_| Trouble::Strange("no count of an errand"))?;
    Ok(ErrandId { source: text(row, column)?, version: read_number(row, column + 1)?, n })
}
