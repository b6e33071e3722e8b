//! Documents: the rows `documents` by kind and name, the list `document-ids`.

use super::encoder::IndexEntries;
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::value::{Json, StoredRow};
use tavern_store::{Document, DocumentKey, Versioned};

pub(super) fn encode(document: &Document) -> (Vec<u8>, IndexEntries) {
    (Json::new().body(&document.body).end(), IndexEntries::default())
}

pub(super) async fn get(
    pages: &Pages<'_>,
    key: &DocumentKey,
) -> Result<Option<Versioned<Document>>, RedisError> {
    let row = pages.row(RedisTable::Documents, &[key.kind(), key.name()]).await?;
    row.map(|row| read(key.clone(), &row)).transpose()
}

pub(super) fn read(key: DocumentKey, row: &StoredRow) -> Result<Versioned<Document>, RedisError> {
    Ok(Versioned { version: row.version()?, row: Document { key, body: row.body()? } })
}
