//! Documents: the rows `documents` by kind and name, the list `document-ids`.

use super::reader::Pages;
use super::sheet::Terms;
use super::table::Table;
use super::value::{Json, Stored, Trouble};
use tavern_store::document::{Document, DocumentKey};
use tavern_store::page::Versioned;

pub(super) fn written(document: &Document) -> (Vec<u8>, Terms) {
    (Json::new().body(&document.body).end(), Terms::default())
}

pub(super) async fn get(
    pages: &Pages<'_>,
    key: &DocumentKey,
) -> Result<Option<Versioned<Document>>, Trouble> {
    let row = pages.row(Table::Documents, &[key.kind(), key.name()]).await?;
    row.map(|row| read(key.clone(), &row)).transpose()
}

pub(super) fn read(key: DocumentKey, row: &Stored) -> Result<Versioned<Document>, Trouble> {
    Ok(Versioned { version: row.version()?, row: Document { key, body: row.body()? } })
}
