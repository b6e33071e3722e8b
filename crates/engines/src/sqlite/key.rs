//! API keys: the table `api_keys`.

use super::value::{number, read_number, read_time, read_time_or_none, time, unexpected};
use rusqlite::{Connection, Error, OptionalExtension, Row, params};
use tavern_domain::{Scope, Scopes};
use tavern_store::{ApiKey, Page, Versioned};

pub(super) fn version(connection: &Connection, id: &str) -> Result<u64, Error> {
    let sql = "SELECT version FROM api_keys WHERE id = ?1";
    let found = connection.prepare_cached(sql)?.query_row([id], |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn put(connection: &Connection, key: &ApiKey, version: u64) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO api_keys (id, version, name, hash, scopes, created_at, revoked_at, expires_at, last_used_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let scopes = key.scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(",");
    let (created_at, revoked_at) = (time(key.created_at), key.revoked_at.map(time));
    let (expires_at, last_used_at) = (key.expires_at.map(time), key.last_used_at.map(time));
    let values = params![
        key.id,
        number(version),
        key.name,
        key.hash,
        scopes,
        created_at,
        revoked_at,
        expires_at,
        last_used_at
    ];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete(connection: &Connection, id: &str) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM api_keys WHERE id = ?1")?.execute([id]).map(drop)
}

pub(super) fn by_hash(connection: &Connection, hash: &[u8; 32]) -> Result<Option<Versioned<ApiKey>>, Error> {
    let sql = "SELECT id, version, name, hash, scopes, created_at, revoked_at, expires_at, last_used_at FROM api_keys
        WHERE hash = ?1 ORDER BY id LIMIT 1";
    connection.prepare_cached(sql)?.query_row([hash], read).optional()
}

pub(super) fn page(
    connection: &Connection,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<ApiKey>>, Error> {
    let sql = "SELECT id, version, name, hash, scopes, created_at, revoked_at, expires_at, last_used_at FROM api_keys
        WHERE ?1 IS NULL OR id > ?1 ORDER BY id";
    Page::fill(limit, |_| 0, connection.prepare_cached(sql)?.query_map([after], read)?)
}

fn read(row: &Row<'_>) -> Result<Versioned<ApiKey>, Error> {
    let scopes: String = row.get(4)?;
    let scopes = scopes.split(',').filter(|scope| !scope.is_empty());
    let scopes: Option<Scopes> = scopes.map(Scope::parse).collect();
    let key = ApiKey {
        id: row.get(0)?,
        name: row.get(2)?,
        hash: row.get(3)?,
        scopes: scopes.ok_or_else(|| unexpected(4, "unknown scope"))?,
        created_at: read_time(row, 5)?,
        revoked_at: read_time_or_none(row, 6)?,
        expires_at: read_time_or_none(row, 7)?,
        last_used_at: read_time_or_none(row, 8)?,
    };
    Ok(Versioned { version: read_number(row, 1)?, row: key })
}
