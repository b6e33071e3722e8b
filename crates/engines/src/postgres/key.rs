//! API keys: the table `api_keys`.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::statements::RowStatements;
use super::value::{get, number, read_number, read_time, read_time_or_none, text, time};
use tavern_domain::{Scope, Scopes};
use tavern_store::{ApiKey, Page, Versioned, limits};
use tokio_postgres::Row;

pub(super) const KIND: RowStatements = RowStatements {
    lock: "INSERT INTO api_keys (id, version, name, hash, scopes, created_at)
        SELECT id, 0, '', '', '', 0 FROM unnest($1::text[], $2::text[]) AS k (id, nothing)
        ON CONFLICT (id) DO UPDATE SET version = 0 WHERE false",
    load: "SELECT k.at, a.version FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (id, nothing, at)
        JOIN api_keys a ON a.id = k.id WHERE a.version > 0",
    delete: "DELETE FROM api_keys a USING unnest($1::text[], $2::text[]) AS k (id, nothing) WHERE a.id = k.id",
};

pub(super) fn put<'a>(rows: &[(&'a ApiKey, u64)]) -> Statement<'a> {
    let sql = "UPDATE api_keys a SET version = k.version, name = k.name, hash = k.hash, scopes = k.scopes,
            created_at = k.created_at, revoked_at = k.revoked_at, expires_at = k.expires_at, last_used_at = k.last_used_at
        FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[], $5::text[], $6::bigint[], $7::bigint[],
                $8::bigint[], $9::bigint[])
            AS k (id, version, name, hash, scopes, created_at, revoked_at, expires_at, last_used_at) WHERE a.id = k.id";
    let scopes = |key: &ApiKey| key.scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(",");
    Statement::new(sql)
        .with(rows.iter().map(|(key, _)| &*key.id).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(key, _)| &*key.name).collect::<Vec<_>>())
        .with(rows.iter().map(|(key, _)| &key.hash[..]).collect::<Vec<_>>())
        .with(rows.iter().map(|(key, _)| scopes(key)).collect::<Vec<_>>())
        .with(rows.iter().map(|(key, _)| time(key.created_at)).collect::<Vec<_>>())
        .with(rows.iter().map(|(key, _)| key.revoked_at.map(time)).collect::<Vec<_>>())
        .with(rows.iter().map(|(key, _)| key.expires_at.map(time)).collect::<Vec<_>>())
        .with(rows.iter().map(|(key, _)| key.last_used_at.map(time)).collect::<Vec<_>>())
}

pub(super) async fn by_hash(
    connection: &PostgresConnection,
    hash: &[u8; 32],
) -> Result<Option<Versioned<ApiKey>>, PostgresError> {
    let sql = "SELECT id, version, name, hash, scopes, created_at, revoked_at, expires_at, last_used_at FROM api_keys
        WHERE hash = $1 ORDER BY id LIMIT 1";
    connection.one(Statement::new(sql).with(&hash[..])).await?.first().map(read).transpose()
}

pub(super) async fn page(
    connection: &PostgresConnection,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<ApiKey>>, PostgresError> {
    let sql = "SELECT id, version, name, hash, scopes, created_at, revoked_at, expires_at, last_used_at FROM api_keys
        WHERE $1::text IS NULL OR id > $1 ORDER BY id LIMIT $2";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let rows = connection.one(Statement::new(sql).with(after).with(i64::from(limit) + 1)).await?;
    Page::fill(limit, |_| 0, rows.iter().map(read))
}

fn read(row: &Row) -> Result<Versioned<ApiKey>, PostgresError> {
    let scopes = get::<&str>(row, 4)?.split(',').filter(|scope| !scope.is_empty());
    let scopes: Option<Scopes> = scopes.map(Scope::parse).collect();
    let key = ApiKey {
        id: text(row, 0)?,
        name: text(row, 2)?,
        hash: get::<&[u8]>(row, 3)?.try_into().map_err(|_| PostgresError::Unexpected("not a hash"))?,
        scopes: scopes.ok_or(PostgresError::Unexpected("unknown scope"))?,
        created_at: read_time(row, 5)?,
        revoked_at: read_time_or_none(row, 6)?,
        expires_at: read_time_or_none(row, 7)?,
        last_used_at: read_time_or_none(row, 8)?,
    };
    Ok(Versioned { version: read_number(row, 1)?, row: key })
}
