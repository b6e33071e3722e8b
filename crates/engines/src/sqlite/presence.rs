//! Writing presences: the tables `channel_presences`, `presences` and `user_channel_presences`. Reading is in `roster`.

use super::value::{number, read_number, read_time, time};
use rusqlite::{Connection, Error, OptionalExtension, Row, params};
use tavern_domain::Time;
use tavern_domain::presence::ChannelClient;
use tavern_store::{PresenceKey, PresenceRow};

pub(super) fn version(connection: &Connection, key: &PresenceKey) -> Result<u64, Error> {
    let sql = "SELECT version FROM presences WHERE channel_name = ?1 AND user_id = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row((&key.channel, &key.user), |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn insert(connection: &Connection, presence: &PresenceRow, version: u64) -> Result<(), Error> {
    let sql = "INSERT INTO presences
        (channel_name, user_id, version, anonymous, name, since, left_reason, left_at, visibility)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    put(connection, sql, presence, version)
}

pub(super) fn update(connection: &Connection, presence: &PresenceRow, version: u64) -> Result<(), Error> {
    let sql = "UPDATE presences SET version = ?3, anonymous = ?4, name = ?5, since = ?6, left_reason = ?7, left_at = ?8,
        visibility = ?9 WHERE channel_name = ?1 AND user_id = ?2";
    forget_clients(connection, &presence.key)?;
    put(connection, sql, presence, version)
}

fn put(connection: &Connection, sql: &str, presence: &PresenceRow, version: u64) -> Result<(), Error> {
    let PresenceRow { key, anonymous, name, visibility, attendance } = presence;
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
        visibility.as_str(),
    ])?;
    attendance.clients().iter().try_for_each(|client| put_client(connection, key, client))
}

fn put_client(connection: &Connection, key: &PresenceKey, client: &ChannelClient) -> Result<(), Error> {
    let sql = "INSERT INTO user_channel_presences
        (user_id, channel_name, connection_id, node, epoch, state, state_digest, since, lost_at, lost_until)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection
        .prepare_cached(sql)?
        .execute(params![
            key.user,
            key.channel,
            client.client.to_string(),
            client.node.node,
            number(client.node.epoch.0),
            client.state.as_ref().map(|state| &state.text),
            client.state.as_ref().map(|state| state.digest.cast_signed()),
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

/// Version, number of users and time of the last change; zeros for an empty channel.
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
