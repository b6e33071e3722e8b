//! Documents: the table `documents`.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::statements::RowStatements;
use super::value::{get as column, number, read_number};
use tavern_store::{Document, DocumentKey, Page, Row, RowKey, Versioned, limits};

pub(super) const KIND: RowStatements = RowStatements {
    lock: "INSERT INTO documents (kind, name, version, body)
        SELECT kind, name, 0, '' FROM unnest($1::text[], $2::text[]) AS k (kind, name)
        ON CONFLICT (kind, name) DO UPDATE SET version = 0 WHERE false",
    load: "SELECT k.at, d.version FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (kind, name, at)
        JOIN documents d ON d.kind = k.kind AND d.name = k.name WHERE d.version > 0",
    delete: "DELETE FROM documents d USING unnest($1::text[], $2::text[]) AS k (kind, name)
        WHERE d.kind = k.kind AND d.name = k.name",
};

pub(super) fn put<'a>(rows: &[(&'a Document, u64)]) -> Statement<'a> {
    let sql = "UPDATE documents d SET version = k.version, body = k.body
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) AS k (kind, name, version, body)
        WHERE d.kind = k.kind AND d.name = k.name";
    Statement::new(sql)
        .with(rows.iter().map(|(row, _)| row.key.kind()).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.key.name()).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| &*row.body).collect::<Vec<_>>())
}

pub(super) async fn get(
    connection: &PostgresConnection,
    key: &DocumentKey,
) -> Result<Option<Versioned<Document>>, PostgresError> {
    let sql = "SELECT version, body FROM documents WHERE kind = $1 AND name = $2";
    let rows = connection.one(Statement::new(sql).with(key.kind()).with(key.name())).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let document = Document { key: key.clone(), body: column::<&[u8]>(row, 1)?.into() };
    Ok(Some(Versioned { version: read_number(row, 0)?, row: document }))
}

pub(super) async fn rows(
    connection: &PostgresConnection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<Row>>, PostgresError> {
    // Bodies can be large: the server sends at most a page of them plus one row.
    let sql = "SELECT kind, name, version, body FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY kind, name) - length(body) AS earlier FROM
                (SELECT * FROM documents WHERE (kind, name) > ($1, $2) ORDER BY kind, name LIMIT $3) AS few) AS counted
        WHERE earlier <= $4 ORDER BY kind, name";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (kind, name) = RowKey::names(after);
    let statement = Statement::new(sql).with(kind).with(name).with(i64::from(limit) + 1);
    let rows = connection.one(statement.with(limits::PAGE_BYTES as i64)).await?;
    let read = |row| {
        let key = DocumentKey::parse(column(row, 0)?, column(row, 1)?);
        let key = key.ok_or(PostgresError::Unexpected("not a kind of document"))?;
        let document = Document { key, body: column::<&[u8]>(row, 3)?.into() };
        Ok::<_, PostgresError>(Versioned { version: read_number(row, 2)?, row: Row::Document(document) })
    };
    Page::fill(limit, |row| row.row.bytes(), rows.iter().map(read))
}
