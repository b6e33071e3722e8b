//! Stored sessions: the table `sessions`. The secret is stored in plain text: the node that adopts the session needs it.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::statements::RowStatements;
use super::value::{
    get as column, number, read_number, read_time, read_time_or_none, text, text_or_none, time,
};
use tavern_domain::{ClientId, Epoch, SessionKey};
use tavern_store::{Page, StoredSession, Versioned, Writer, limits};
use tokio_postgres::Row;

pub(super) const KIND: RowStatements = RowStatements {
    lock: "INSERT INTO sessions (client, version, secret, node, epoch, body, expires_at)
        SELECT client, 0, '', '', 0, '', 0 FROM unnest($1::text[], $2::text[]) AS k (client, nothing)
        ON CONFLICT (client) DO UPDATE SET version = 0 WHERE false",
    load:
        "SELECT k.at, s.version FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (client, nothing, at)
        JOIN sessions s ON s.client = k.client WHERE s.version > 0",
    delete: "DELETE FROM sessions s USING unnest($1::text[], $2::text[]) AS k (client, nothing)
        WHERE s.client = k.client",
};

pub(super) fn put<'a>(rows: &[(&'a StoredSession, u64)]) -> Statement<'a> {
    let sql = "UPDATE sessions s SET version = k.version, secret = k.secret, user_id = k.user_id, name = k.name,
            node = k.node, epoch = k.epoch, body = k.body, detached_at = k.detached_at, expires_at = k.expires_at
        FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::bigint[],
            $8::bytea[], $9::bigint[], $10::bigint[])
            AS k (client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at)
        WHERE s.client = k.client";
    Statement::new(sql)
        .with(rows.iter().map(|(row, _)| row.client.to_string()).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.secret.bits().to_be_bytes().to_vec()).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.user.as_deref()).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.name.as_deref()).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| &*row.owner.node).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| number(row.owner.epoch.0)).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| &*row.body).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.detached_at.map(time)).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| time(row.expires_at)).collect::<Vec<_>>())
}

pub(super) async fn get_all(
    connection: &PostgresConnection,
    clients: impl Iterator<Item = ClientId>,
) -> Result<Vec<Versioned<StoredSession>>, PostgresError> {
    let sql = "SELECT client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at
        FROM sessions WHERE client = ANY ($1)";
    let clients: Vec<String> = clients.map(|client| client.to_string()).collect();
    connection.one(Statement::new(sql).with(clients)).await?.iter().map(read).collect()
}

pub(super) async fn page(
    connection: &PostgresConnection,
    node: Option<&str>,
    after: Option<ClientId>,
    limit: u32,
) -> Result<Page<Versioned<StoredSession>>, PostgresError> {
    // Two statements, so that each uses its own index. Bodies can be large: the server sends at most a page of them
    // plus one row.
    let all = "SELECT client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY client) - length(body) AS earlier FROM
                (SELECT * FROM sessions WHERE client > $1 ORDER BY client LIMIT $2) AS few) AS counted
        WHERE earlier <= $3 ORDER BY client";
    let of_node = "SELECT client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY client) - length(body) AS earlier FROM
                (SELECT * FROM sessions WHERE client > $1 AND node = $4 ORDER BY client LIMIT $2) AS few) AS counted
        WHERE earlier <= $3 ORDER BY client";
    let after = after.map_or(String::new(), |client| client.to_string());
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let statement = Statement::new(if node.is_some() { of_node } else { all });
    let statement = statement.with(after).with(i64::from(limit) + 1).with(limits::PAGE_BYTES as i64);
    let rows = match node {
        Some(node) => connection.one(statement.with(node)).await?,
        None => connection.one(statement).await?,
    };
    Page::fill(limit, |session| session.row.body.len(), rows.iter().map(read))
}

fn read(row: &Row) -> Result<Versioned<StoredSession>, PostgresError> {
    let secret =
        column::<&[u8]>(row, 2)?.try_into().map_err(|_| PostgresError::Unexpected("not a secret"))?;
    let session = StoredSession {
        client: ClientId::parse(column(row, 0)?).ok_or(PostgresError::Unexpected("not a client id"))?,
        secret: SessionKey::from_bits(u128::from_be_bytes(secret)),
        user: text_or_none(row, 3)?,
        name: text_or_none(row, 4)?,
        owner: Writer { node: text(row, 5)?, epoch: Epoch(read_number(row, 6)?) },
        body: column::<&[u8]>(row, 7)?.into(),
        detached_at: read_time_or_none(row, 8)?,
        expires_at: read_time(row, 9)?,
    };
    Ok(Versioned { version: read_number(row, 1)?, row: session })
}
