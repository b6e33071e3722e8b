//! Documents: the table `documents`.

use super::value::{number, read_number, unexpected};
use rusqlite::{Connection, Error, OptionalExtension};
use tavern_store::{Document, DocumentKey, Page, Row, RowKey, Versioned};

pub(super) fn version(connection: &Connection, key: &DocumentKey) -> Result<u64, Error> {
    let sql = "SELECT version FROM documents WHERE kind = ?1 AND name = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row((key.kind(), key.name()), |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn get(connection: &Connection, key: &DocumentKey) -> Result<Option<Versioned<Document>>, Error> {
    let sql = "SELECT version, body FROM documents WHERE kind = ?1 AND name = ?2";
    let read = |row: &rusqlite::Row<'_>| {
        let document = Document { key: key.clone(), body: row.get(1)? };
        Ok(Versioned { version: read_number(row, 0)?, row: document })
    };
    connection.prepare_cached(sql)?.query_row((key.kind(), key.name()), read).optional()
}

pub(super) fn put(connection: &Connection, document: &Document, version: u64) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO documents (kind, name, version, body) VALUES (?1, ?2, ?3, ?4)";
    let values = (document.key.kind(), document.key.name(), number(version), &*document.body);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete(connection: &Connection, key: &DocumentKey) -> Result<(), Error> {
    let sql = "DELETE FROM documents WHERE kind = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.execute((key.kind(), key.name())).map(drop)
}

pub(super) fn rows(
    connection: &Connection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<Row>>, Error> {
    let sql =
        "SELECT kind, name, version, body FROM documents WHERE (kind, name) > (?1, ?2) ORDER BY kind, name";
    let read = |row: &rusqlite::Row<'_>| {
        let (kind, name): (String, String) = (row.get(0)?, row.get(1)?);
        let key = DocumentKey::parse(&kind, &name).ok_or_else(|| unexpected(0, "not a kind of document"))?;
        let document = Document { key, body: row.get(3)? };
        Ok(Versioned { version: read_number(row, 2)?, row: Row::Document(document) })
    };
    let mut statement = connection.prepare_cached(sql)?;
    Page::fill(limit, |row| row.row.bytes(), statement.query_map(RowKey::names(after), read)?)
}
