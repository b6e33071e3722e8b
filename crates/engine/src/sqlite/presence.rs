//! Presences: the tables `channel_presences`, `presences` and `user_channel_presences`.
//! Must hold: each reading is of one moment.

use super::value::{number, read_number, read_time, read_time_or_none, strange, time};
use crate::presence::{Presence, PresenceKey, Roster};
use crate::row::{Page, Versioned, Writer};
use rusqlite::{Connection, Error, OptionalExtension, Row, params};
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Attendee, Departed, Departure, Home, Lost, State};
use tavern_domain::{ClientId, Epoch, Time};

pub(super) fn version(connection: &Connection, key: &PresenceKey) -> Result<u64, Error> {
    let sql = "SELECT version FROM presences WHERE channel_name = ?1 AND user_id = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row((&key.channel, &key.user), |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn insert(connection: &Connection, presence: &Presence, version: u64) -> Result<(), Error> {
    let sql = "INSERT INTO presences
        (channel_name, user_id, version, anonymous, name, since, left_reason, left_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    put(connection, sql, presence, version)
}

pub(super) fn update(connection: &Connection, presence: &Presence, version: u64) -> Result<(), Error> {
    let sql = "UPDATE presences SET version = ?3, anonymous = ?4, name = ?5, since = ?6, left_reason = ?7, left_at = ?8
        WHERE channel_name = ?1 AND user_id = ?2";
    forget_clients(connection, &presence.key)?;
    put(connection, sql, presence, version)
}

fn put(connection: &Connection, sql: &str, presence: &Presence, version: u64) -> Result<(), Error> {
    let Presence { key, anonymous, name, attendance } = presence;
    let departed = attendance.departed();
    connection.prepare_cached(sql)?.execute(params![
        key.channel,
        key.user,
        number(version),
        anonymous,
        name,
        time(attendance.since()),
        departed.map(|departed| departed.reason.as_str()),
        departed.map(|departed| time(departed.seen)),
    ])?;
    attendance.clients().iter().try_for_each(|client| put_client(connection, key, client))
}

fn put_client(connection: &Connection, key: &PresenceKey, client: &Attendee) -> Result<(), Error> {
    let sql = "INSERT INTO user_channel_presences
        (user_id, channel_name, connection_id, node, epoch, state, meaning, since, lost_at, lost_until)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection
        .prepare_cached(sql)?
        .execute(params![
            key.user,
            key.channel,
            client.client.to_string(),
            client.home.node,
            number(client.home.epoch.0),
            client.state.as_ref().map(|state| &state.text),
            client.state.as_ref().map(|state| state.meaning.cast_signed()),
            time(client.since),
            client.lost.map(|lost| time(lost.at)),
            client.lost.map(|lost| time(lost.until)),
        ])
        .map(drop)
}

fn forget_clients(connection: &Connection, key: &PresenceKey) -> Result<(), Error> {
    let sql = "DELETE FROM user_channel_presences WHERE user_id = ?1 AND channel_name = ?2";
    connection.prepare_cached(sql)?.execute((&key.user, &key.channel)).map(drop)
}

pub(super) fn delete(connection: &Connection, key: &PresenceKey) -> Result<(), Error> {
    let sql = "DELETE FROM presences WHERE channel_name = ?1 AND user_id = ?2";
    connection.prepare_cached(sql)?.execute((&key.channel, &key.user))?;
    forget_clients(connection, key)
}

/// Version, number of users and time of the last change; zeros for a channel in which nobody is.
pub(super) fn channel(connection: &Connection, name: &str) -> Result<(u64, u64, Time), Error> {
    let sql = "SELECT version, users, last_updated FROM channel_presences WHERE channel_name = ?1";
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)?, read_time(row, 2)?));
    Ok(connection.prepare_cached(sql)?.query_row([name], read).optional()?.unwrap_or_default())
}

pub(super) fn put_channel(
    connection: &Connection,
    name: &str,
    version: u64,
    users: u64,
    updated: Time,
) -> Result<(), Error> {
    let sql =
        "INSERT INTO channel_presences (channel_name, version, users, last_updated) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET version = ?2, users = ?3, last_updated = ?4";
    connection.prepare_cached(sql)?.execute((name, number(version), number(users), time(updated))).map(drop)
}

pub(super) fn forget_channel(connection: &Connection, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM channel_presences WHERE channel_name = ?1";
    connection.prepare_cached(sql)?.execute([name]).map(drop)
}

pub(super) fn get(connection: &Connection, key: &PresenceKey) -> Result<Option<Versioned<Presence>>, Error> {
    let moment = connection.unchecked_transaction()?;
    let sql =
        "SELECT channel_name, user_id, version, anonymous, name, since, left_reason, left_at FROM presences
        WHERE channel_name = ?1 AND user_id = ?2";
    let mut statement = moment.prepare_cached(sql)?;
    statement.query_row((&key.channel, &key.user), |row| read(&moment, row)).optional()
}

pub(super) fn roster(
    connection: &Connection,
    name: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Roster, Error> {
    let moment = connection.unchecked_transaction()?;
    let (version, users, _) = channel(&moment, name)?;
    let sql =
        "SELECT channel_name, user_id, version, anonymous, name, since, left_reason, left_at FROM presences
        WHERE channel_name = ?1 AND user_id > ?2 ORDER BY user_id";
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement.query_map((name, after.unwrap_or("")), |row| read(&moment, row))?;
    Ok(Roster { version, users, page: Page::fill(limit, |row| row.row.bytes(), rows)? })
}

pub(super) fn of_user(
    connection: &Connection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<Presence>>, Error> {
    let moment = connection.unchecked_transaction()?;
    let sql =
        "SELECT channel_name, user_id, version, anonymous, name, since, left_reason, left_at FROM presences
        WHERE user_id = ?1 AND channel_name IN (SELECT DISTINCT channel_name FROM user_channel_presences
            WHERE user_id = ?1 AND channel_name > ?2)
        ORDER BY channel_name";
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement.query_map((user, after.unwrap_or("")), |row| read(&moment, row))?;
    Page::fill(limit, |row| row.row.bytes(), rows)
}

/// Presences for which one life of a node vouches, by channel and user.
pub(super) fn at_home(
    connection: &Connection,
    home: &Writer,
    after: Option<&PresenceKey>,
    limit: u32,
) -> Result<Page<Versioned<Presence>>, Error> {
    let moment = connection.unchecked_transaction()?;
    let sql =
        "SELECT channel_name, user_id, version, anonymous, name, since, left_reason, left_at FROM presences
        WHERE (channel_name, user_id) IN (SELECT DISTINCT channel_name, user_id FROM user_channel_presences
            WHERE node = ?1 AND epoch = ?2 AND lost_at IS NULL AND (channel_name, user_id) > (?3, ?4))
        ORDER BY channel_name, user_id";
    let (channel, user) = after.map_or(("", ""), |key| (&*key.channel, &*key.user));
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement
        .query_map(params![home.node, number(home.epoch.0), channel, user], |row| read(&moment, row))?;
    Page::fill(limit, |row| row.row.bytes(), rows)
}

fn read(connection: &Connection, row: &Row<'_>) -> Result<Versioned<Presence>, Error> {
    let key = PresenceKey { channel: row.get(0)?, user: row.get(1)? };
    let reason: Option<String> = row.get(6)?;
    let departed = match (reason, read_time_or_none(row, 7)?) {
        (Some(reason), Some(seen)) => {
            let reason = Departure::parse(&reason).ok_or_else(|| strange(6, "no reason to leave"))?;
            Some(Departed { reason, seen })
        }
        _ => None,
    };
    let attendance = Attendance::restore(clients(connection, &key)?, read_time(row, 5)?, departed);
    let presence = Presence { key, anonymous: row.get(3)?, name: row.get(4)?, attendance };
    Ok(Versioned { version: read_number(row, 2)?, row: presence })
}

fn clients(connection: &Connection, key: &PresenceKey) -> Result<Vec<Attendee>, Error> {
    let sql = "SELECT connection_id, node, epoch, state, meaning, since, lost_at, lost_until
        FROM user_channel_presences WHERE user_id = ?1 AND channel_name = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let clients = statement.query_map((&key.user, &key.channel), |row| {
        let client: String = row.get(0)?;
        let state: Option<Arc<str>> = row.get(3)?;
        let meaning: Option<i64> = row.get(4)?;
        let lost = read_time_or_none(row, 6)?.zip(read_time_or_none(row, 7)?);
        Ok(Attendee {
            client: ClientId::parse(&client).ok_or_else(|| strange(0, "no client id"))?,
            home: Home { node: row.get(1)?, epoch: Epoch(read_number(row, 2)?) },
            state: state.zip(meaning).map(|(text, meaning)| State { text, meaning: meaning.cast_unsigned() }),
            since: read_time(row, 5)?,
            lost: lost.map(|(at, until)| Lost { at, until }),
        })
    })?;
    clients.collect()
}
