//! Presences: the tables `channel_presences`, `presences` and `user_channel_presences`.
//! Must hold: each reading is of one moment.

use super::node;
use super::value::{number, read_number, read_time, read_time_or_none, strange, time};
use crate::presence::{Presence, PresenceKey, Roster, Stray};
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

pub(super) fn put(connection: &Connection, presence: &Presence, version: u64) -> Result<(), Error> {
    let Presence { key, anonymous, name, attendance } = presence;
    let departed = attendance.departed();
    let values = params![
        key.channel,
        key.user,
        number(version),
        anonymous,
        name,
        time(attendance.since()),
        departed.map(|departed| departed.reason.as_str()),
        departed.map(|departed| time(departed.seen)),
    ];
    let update = "UPDATE presences SET version = ?3, anonymous = ?4, name = ?5, since = ?6, left_reason = ?7, left_at = ?8
        WHERE channel_name = ?1 AND user_id = ?2";
    if connection.prepare_cached(update)?.execute(values)? == 0 {
        let insert = "INSERT INTO presences
            (channel_name, user_id, version, anonymous, name, since, left_reason, left_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        connection.prepare_cached(insert)?.execute(values)?;
        let count =
            "INSERT INTO channel_presences (channel_name, version, users, last_updated) VALUES (?1, 0, 1, 0)
            ON CONFLICT DO UPDATE SET users = users + 1";
        connection.prepare_cached(count)?.execute([&key.channel])?;
    } else {
        forget_clients(connection, key)?;
    }
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
    if connection.prepare_cached(sql)?.execute((&key.channel, &key.user))? > 0 {
        forget_clients(connection, key)?;
        let count = "UPDATE channel_presences SET users = users - 1 WHERE channel_name = ?1";
        connection.prepare_cached(count)?.execute([&key.channel])?;
    }
    Ok(())
}

/// Version and number of users; zeros for a channel in which nobody is.
pub(super) fn channel(connection: &Connection, name: &str) -> Result<(u64, u64), Error> {
    let sql = "SELECT version, users FROM channel_presences WHERE channel_name = ?1";
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)?));
    Ok(connection.prepare_cached(sql)?.query_row([name], read).optional()?.unwrap_or_default())
}

/// The highest number that anything deleted has had.
fn floor(connection: &Connection) -> Result<u64, Error> {
    connection.prepare_cached("SELECT floor FROM store_clock")?.query_row([], |row| read_number(row, 0))
}

pub(super) fn set_channel(connection: &Connection, name: &str, version: u64, now: Time) -> Result<(), Error> {
    let sql = "UPDATE channel_presences SET version = ?2, last_updated = ?3 WHERE channel_name = ?1";
    connection.prepare_cached(sql)?.execute((name, number(version), time(now))).map(drop)
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
    let (version, users) = match channel(&moment, name)? {
        (_, 0) => (floor(&moment)?, 0),
        counted => counted,
    };
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
        WHERE user_id = ?1 AND channel_name > ?2 ORDER BY channel_name";
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

/// Looks at every client once: done seldom.
pub(super) fn strays(connection: &Connection, before: Time, limit: u32) -> Result<Page<Stray>, Error> {
    let moment = connection.unchecked_transaction()?;
    let sql =
        "SELECT channel_name, user_id, version, anonymous, name, since, left_reason, left_at FROM presences
        WHERE (channel_name, user_id) IN (SELECT DISTINCT channel_name, user_id FROM user_channel_presences
            WHERE (lost_at IS NULL AND since <= ?1 AND (node, epoch) NOT IN (SELECT name, epoch FROM nodes))
                OR lost_until <= ?1)
        ORDER BY channel_name, user_id";
    let mut statement = moment.prepare_cached(sql)?;
    let mut rows = statement.query([time(before)])?;
    let strays = std::iter::from_fn(|| match rows.next() {
        Ok(Some(row)) => Some(stray(&moment, row, before)),
        Ok(None) => None,
        Err(error) => Some(Err(error)),
    });
    Page::fill(limit, |_| 64, strays.filter_map(Result::transpose))
}

fn stray(connection: &Connection, row: &Row<'_>, before: Time) -> Result<Option<Stray>, Error> {
    let presence = read(connection, row)?.row;
    let mut known = Vec::new();
    for client in presence.attendance.living() {
        let home = Writer { node: client.home.node.clone(), epoch: client.home.epoch };
        if node::get(connection, &home)?.is_some() {
            known.push(client.home.clone());
        }
    }
    let homes = presence.astray(before, |home| known.contains(home));
    Ok(homes.map(|homes| Stray { key: presence.key, homes }))
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
