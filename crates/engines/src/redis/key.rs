//! API keys: the rows `api-keys` by id, the lists `api-key-ids` and `api-key-hashes`.

use super::encoder::IndexEntries;
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::value::{Json, StoredRow, names};
use std::fmt::Write;
use tavern_domain::{Scope, Scopes};
use tavern_store::{ApiKey, Page, Versioned};

pub(super) fn encode(key: &ApiKey) -> (Vec<u8>, IndexEntries) {
    let scopes = key.scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(",");
    let json = Json::new().text("name", &key.name).text("hash", &hex(&key.hash)).text("scopes", &scopes);
    let json = json.number("created_at", key.created_at.0).time_or_none("revoked_at", key.revoked_at);
    let json = json.time_or_none("expires_at", key.expires_at).time_or_none("last_used_at", key.last_used_at);
    (json.end(), IndexEntries::default().with(RedisTable::ApiKeyHashes, &[&hex(&key.hash), &key.id]))
}

pub(super) async fn by_hash(
    pages: &Pages<'_>,
    hash: &[u8; 32],
) -> Result<Option<Versioned<ApiKey>>, RedisError> {
    let hex = hex(hash);
    let found = pages.under(RedisTable::ApiKeyHashes, &[&hex], None, RedisTable::ApiKeys, 1).await?;
    Ok(found.page(1, |_| 0, |field, row: &mut StoredRow| read(names::<1>(field)?[0], row))?.rows.pop())
}

pub(super) async fn page(
    pages: &Pages<'_>,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<ApiKey>>, RedisError> {
    let found = pages.under(RedisTable::ApiKeyIds, &[], after, RedisTable::ApiKeys, limit).await?;
    found.page(limit, |_| 0, |field, row: &mut StoredRow| read(names::<1>(field)?[0], row))
}

fn read(id: &str, row: &StoredRow) -> Result<Versioned<ApiKey>, RedisError> {
    let scopes = row.str("scopes")?.split(',').filter(|scope| !scope.is_empty());
    let scopes: Option<Scopes> = scopes.map(Scope::parse).collect();
    let key = ApiKey {
        id: id.into(),
        name: row.str("name")?.into(),
        hash: unhex(row.str("hash")?).ok_or(RedisError::Unexpected("not a hash"))?,
        scopes: scopes.ok_or(RedisError::Unexpected("unknown scope"))?,
        created_at: row.time("created_at")?,
        revoked_at: row.time_or_none("revoked_at")?,
        expires_at: row.time_or_none("expires_at")?,
        last_used_at: row.time_or_none("last_used_at")?,
    };
    Ok(Versioned { version: row.version()?, row: key })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}
