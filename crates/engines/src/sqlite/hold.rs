//! Presences set by apps: the table `holds`.

use super::value::{number, read_number, read_time_or_none, time};
use rusqlite::{Connection, Error, OptionalExtension};
use std::sync::Arc;
use tavern_store::{Page, PresenceHold, PresenceKey, Row, RowKey, Versioned};

pub(super) fn version(connection: &Connection, key: &PresenceKey) -> Result<u64, Error> {
    let sql = "SELECT version FROM holds WHERE channel_name = ?1 AND user_id = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row((&key.channel, &key.user), |row| read_number(row, 0)).optional()?.unwrap_or(0))
}

pub(super) fn get(
    connection: &Connection,
    key: &PresenceKey,
) -> Result<Option<Versioned<PresenceHold>>, Error> {
    let sql = "SELECT version, held_with, until FROM holds WHERE channel_name = ?1 AND user_id = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row((&key.channel, &key.user), |row| {
        let hold =
            PresenceHold { key: key.clone(), held_with: row.get(1)?, until: read_time_or_none(row, 2)? };
        Ok(Versioned { version: read_number(row, 0)?, row: hold })
    });
    found.optional()
}

pub(super) fn put(connection: &Connection, hold: &PresenceHold, version: u64) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO holds (channel_name, user_id, version, held_with, until)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = (&hold.key.channel, &hold.key.user, number(version), &hold.held_with, hold.until.map(time));
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete(connection: &Connection, key: &PresenceKey) -> Result<(), Error> {
    let sql = "DELETE FROM holds WHERE channel_name = ?1 AND user_id = ?2";
    connection.prepare_cached(sql)?.execute((&key.channel, &key.user)).map(drop)
}

/// The channels in which an app holds a user while they are in this one.
pub(super) fn held_with(connection: &Connection, presence: &PresenceKey) -> Result<Vec<Arc<str>>, Error> {
    let sql = "SELECT channel_name FROM holds WHERE user_id = ?1 AND held_with = ?2 ORDER BY channel_name";
    let mut statement = connection.prepare_cached(sql)?;
    let channels = statement.query_map((&presence.user, &presence.channel), |row| row.get(0))?;
    channels.collect()
}

/// Whether there is any.
pub(super) fn any(connection: &Connection) -> Result<bool, Error> {
    connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM holds)")?.query_row([], |row| row.get(0))
}

pub(super) fn rows(
    connection: &Connection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<Row>>, Error> {
    let sql = "SELECT channel_name, user_id, version, held_with, until FROM holds
        WHERE (channel_name, user_id) > (?1, ?2) ORDER BY channel_name, user_id";
    let read = |row: &rusqlite::Row<'_>| {
        let key = PresenceKey { channel: row.get(0)?, user: row.get(1)? };
        let hold = PresenceHold { key, held_with: row.get(3)?, until: read_time_or_none(row, 4)? };
        Ok(Versioned { version: read_number(row, 2)?, row: Row::Hold(hold) })
    };
    let mut statement = connection.prepare_cached(sql)?;
    Page::fill(limit, |row| row.row.bytes(), statement.query_map(RowKey::names(after), read)?)
}
