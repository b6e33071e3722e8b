//! Documents: the rows `documents` by kind and name.

use super::reader::Pages;
use super::sheet::Terms;
use super::table::Table;
use super::value::{Json, Trouble};
use crate::row::{Document, DocumentKey, Versioned};

pub(super) fn written(document: &Document) -> (Vec<u8>, Terms) {
    (Json::new().body(&document.body).end(), Terms::default())
}

pub(super) async fn get(
    pages: &Pages<'_>,
    key: &DocumentKey,
) -> Result<Option<Versioned<Document>>, Trouble> {
    let Some(row) = pages.row(Table::Documents, &[key.kind(), key.name()]).await? else { return Ok(None) };
    let document = Document { key: key.clone(), body: row.body()? };
    Ok(Some(Versioned { version: row.version()?, row: document }))
}
