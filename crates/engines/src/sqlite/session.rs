//! Stored sessions: the table `sessions`. The secret is stored in plain text: the folder is private, and the node that adopts
//! the session needs it.

use super::value::{number, read_number, read_time, read_time_or_none, time, unexpected};
use rusqlite::{Connection, Error, OptionalExtension, Row, params};
use tavern_domain::{ClientId, Epoch, SessionKey};
use tavern_store::{Page, StoredSession, Versioned, Writer};

pub(super) fn version(connection: &Connection, client: ClientId) -> Result<u64, Error> {
    let sql = "SELECT version FROM sessions WHERE client = ?1";
    let read = |row: &Row<'_>| read_number(row, 0);
    Ok(connection.prepare_cached(sql)?.query_row([client.to_string()], read).optional()?.unwrap_or(0))
}

pub(super) fn get(
    connection: &Connection,
    client: ClientId,
) -> Result<Option<Versioned<StoredSession>>, Error> {
    let sql = "SELECT client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at
        FROM sessions WHERE client = ?1";
    connection.prepare_cached(sql)?.query_row([client.to_string()], read).optional()
}

pub(super) fn put(connection: &Connection, session: &StoredSession, version: u64) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO sessions
        (client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let values = params![
        session.client.to_string(),
        number(version),
        session.secret.bits().to_be_bytes(),
        session.user.as_deref(),
        session.name.as_deref(),
        &*session.owner.node,
        number(session.owner.epoch.0),
        &*session.body,
        session.detached_at.map(time),
        time(session.expires_at),
    ];
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete(connection: &Connection, client: ClientId) -> Result<(), Error> {
    let sql = "DELETE FROM sessions WHERE client = ?1";
    connection.prepare_cached(sql)?.execute([client.to_string()]).map(drop)
}

pub(super) fn page(
    connection: &Connection,
    node: Option<&str>,
    after: Option<ClientId>,
    limit: u32,
) -> Result<Page<Versioned<StoredSession>>, Error> {
    // Two statements, so that each uses its own index.
    let all = "SELECT client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at
        FROM sessions WHERE client > ?1 ORDER BY client";
    let of_node = "SELECT client, version, secret, user_id, name, node, epoch, body, detached_at, expires_at
        FROM sessions WHERE client > ?1 AND node = ?2 ORDER BY client";
    let after = after.map_or(String::new(), |client| client.to_string());
    let bytes = |session: &Versioned<StoredSession>| session.row.body.len();
    match node {
        None => Page::fill(limit, bytes, connection.prepare_cached(all)?.query_map([after], read)?),
        Some(node) => {
            let mut statement = connection.prepare_cached(of_node)?;
            Page::fill(limit, bytes, statement.query_map((after, node), read)?)
        }
    }
}

fn read(row: &Row<'_>) -> Result<Versioned<StoredSession>, Error> {
    let client: String = row.get(0)?;
    let session = StoredSession {
        client: ClientId::parse(&client).ok_or_else(|| unexpected(0, "not a client id"))?,
        secret: SessionKey::from_bits(u128::from_be_bytes(row.get(2)?)),
        user: row.get(3)?,
        name: row.get(4)?,
        owner: Writer { node: row.get(5)?, epoch: Epoch(read_number(row, 6)?) },
        body: row.get(7)?,
        detached_at: read_time_or_none(row, 8)?,
        expires_at: read_time(row, 9)?,
    };
    Ok(Versioned { version: read_number(row, 1)?, row: session })
}
