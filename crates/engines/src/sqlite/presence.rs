//! Presences: the tables `channel_presences`, `presences` and `user_channel_presences`.
//! Must hold: each reading is of one moment.

use super::node;
use super::value::{number, read_number, read_time, read_time_or_none, strange, time};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, OptionalExtension, Row, Rows, params};
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Attendee, Departed, Departure, Home, Lost, State, Visibility};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::limits;
use tavern_store::node::Writer;
use tavern_store::page::{Page, Versioned};
use tavern_store::presence::{Presence, PresenceKey, Roster, StalePresence};
use tavern_store::row::RowKey;

pub(super) fn version(connection: &Connection, key: &PresenceKey) -> Result<u64, Error> {
    let sql = "SELECT version FROM presences WHERE channel_name = ?1 AND user_id = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row((&key.channel, &key.user), |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn insert(connection: &Connection, presence: &Presence, version: u64) -> Result<(), Error> {
    let sql = "INSERT INTO presences
        (channel_name, user_id, version, anonymous, name, since, left_reason, left_at, visibility)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    put(connection, sql, presence, version)
}

pub(super) fn update(connection: &Connection, presence: &Presence, version: u64) -> Result<(), Error> {
    let sql = "UPDATE presences SET version = ?3, anonymous = ?4, name = ?5, since = ?6, left_reason = ?7, left_at = ?8,
        visibility = ?9 WHERE channel_name = ?1 AND user_id = ?2";
    forget_clients(connection, &presence.key)?;
    put(connection, sql, presence, version)
}

fn put(connection: &Connection, sql: &str, presence: &Presence, version: u64) -> Result<(), Error> {
    let Presence { key, anonymous, name, visibility, attendance } = presence;
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

/// The highest number that anything deleted has had.
fn floor(connection: &Connection) -> Result<u64, Error> {
    connection.prepare_cached("SELECT floor FROM store_clock")?.query_row([], |row| read_number(row, 0))
}

pub(super) fn forget_channel(connection: &Connection, name: &str) -> Result<(), Error> {
    let sql = "DELETE FROM channel_presences WHERE channel_name = ?1";
    connection.prepare_cached(sql)?.execute([name]).map(drop)
}

pub(super) fn get(connection: &Connection, key: &PresenceKey) -> Result<Option<Versioned<Presence>>, Error> {
    let rows = "WHERE p.channel_name = ?1 AND p.user_id = ?2";
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let mut found = Gathering::new(statement.query((&key.channel, &key.user))?);
    found.next().transpose()
}

pub(super) fn roster(
    connection: &Connection,
    name: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Roster, Error> {
    let moment = connection.unchecked_transaction()?;
    let (version, users, _) = channel(&moment, name)?;
    let version = if users == 0 { floor(&moment)? } else { version };
    let rows = "WHERE p.channel_name = ?1 AND p.user_id > ?2 ORDER BY p.user_id";
    let mut statement = moment.prepare_cached(&with_clients(rows))?;
    let rows = Gathering::new(statement.query((name, after.unwrap_or("")))?);
    Ok(Roster { version, users, page: Page::fill(limit, |row| row.row.bytes(), rows)? })
}

pub(super) fn of_user(
    connection: &Connection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<Presence>>, Error> {
    let rows = "WHERE p.user_id = ?1 AND p.channel_name IN
            (SELECT channel_name FROM user_channel_presences WHERE user_id = ?1 AND channel_name > ?2)
        ORDER BY p.channel_name";
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let rows = Gathering::new(statement.query((user, after.unwrap_or("")))?);
    Page::fill(limit, |row| row.row.bytes(), rows)
}

pub(super) fn rows(
    connection: &Connection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<tavern_store::row::Row>>, Error> {
    let rows = "WHERE (p.channel_name, p.user_id) > (?1, ?2) ORDER BY p.channel_name, p.user_id";
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let rows = Gathering::new(statement.query(RowKey::names(after))?);
    let rows = rows.map(|row| row.map(|row| row.map(tavern_store::row::Row::Presence)));
    Page::fill(limit, |row| row.row.bytes(), rows)
}

/// Presences for which one life of a node vouches, by channel and user.
pub(super) fn at_home(
    connection: &Connection,
    home: &Writer,
    after: Option<&PresenceKey>,
    limit: u32,
) -> Result<Page<Versioned<Presence>>, Error> {
    // One more than the page: whether there are more is seen.
    let rows =
        "WHERE (p.channel_name, p.user_id) IN (SELECT DISTINCT channel_name, user_id FROM user_channel_presences
            WHERE node = ?1 AND epoch = ?2 AND lost_at IS NULL AND (channel_name, user_id) > (?3, ?4)
            ORDER BY channel_name, user_id LIMIT ?5 + 1)
        ORDER BY p.channel_name, p.user_id";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (channel, user) = after.map_or(("", ""), |key| (&*key.channel, &*key.user));
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let values = params![home.node, number(home.epoch.0), channel, user, limit];
    Page::fill(limit, |row| row.row.bytes(), Gathering::new(statement.query(values)?))
}

/// Looks at every client once: done seldom.
pub(super) fn strays(
    connection: &Connection,
    before: Time,
    limit: u32,
) -> Result<Page<StalePresence>, Error> {
    let moment = connection.unchecked_transaction()?;
    let rows =
        "WHERE (p.channel_name, p.user_id) IN (SELECT DISTINCT channel_name, user_id FROM user_channel_presences
            WHERE (lost_at IS NULL AND since <= ?1 AND node <> '' AND (node, epoch) NOT IN (SELECT name, epoch FROM nodes))
                OR lost_until <= ?1)
        ORDER BY p.user_id, p.channel_name";
    let mut statement = moment.prepare_cached(&with_clients(rows))?;
    let rows = Gathering::new(statement.query([time(before)])?);
    let strays = rows.map(|row| stray(&moment, &row?.row, before));
    Page::fill(limit, |_| 64, strays.filter_map(Result::transpose))
}

fn stray(connection: &Connection, presence: &Presence, before: Time) -> Result<Option<StalePresence>, Error> {
    let mut known = Vec::new();
    for client in presence.attendance.living() {
        let home = Writer { node: client.home.node.clone(), epoch: client.home.epoch };
        if node::get(connection, &home)?.is_some() {
            known.push(client.home.clone());
        }
    }
    let homes = presence.stale_homes(before, |home| known.contains(home));
    Ok(homes.map(|homes| StalePresence { key: presence.key.clone(), homes }))
}

/// One statement is one moment. Each client of a presence is a row that repeats the presence.
fn with_clients(rows: &str) -> String {
    format!(
        "SELECT p.channel_name, p.user_id, p.version, p.anonymous, p.name, p.since, p.left_reason, p.left_at,
            c.connection_id, c.node, c.epoch, c.state, c.meaning, c.since, c.lost_at, c.lost_until, p.visibility
        FROM presences p LEFT JOIN user_channel_presences c USING (channel_name, user_id) {rows}"
    )
}

/// Puts presences together from the rows of their clients, which follow each other.
struct Gathering<'a> {
    rows: Rows<'a>,
    /// Its clients may go on in the next row.
    begun: Option<Begun>,
    /// Most rows have the same: one copy serves them.
    node: Arc<str>,
}

struct Begun {
    version: u64,
    presence: Presence,
    since: Time,
    departed: Option<Departed>,
    clients: Vec<Attendee>,
}

impl<'a> Gathering<'a> {
    fn new(rows: Rows<'a>) -> Gathering<'a> {
        Gathering { rows, begun: None, node: "".into() }
    }

    fn gather(&mut self) -> Result<Option<Versioned<Presence>>, Error> {
        while let Some(row) = self.rows.next()? {
            let (channel, user) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            let same =
                |begun: &Begun| *begun.presence.key.user == *user && *begun.presence.key.channel == *channel;
            let ended = match &self.begun {
                Some(begun) if same(begun) => None,
                begun => {
                    let channel = match begun {
                        Some(begun) if *begun.presence.key.channel == *channel => {
                            begun.presence.key.channel.clone()
                        }
                        _ => channel.into(),
                    };
                    self.begun.replace(begin(row, channel)?)
                }
            };
            let client = client(row, &mut self.node)?;
            if let Some(begun) = &mut self.begun {
                begun.clients.extend(client);
            }
            if let Some(ended) = ended {
                return Ok(Some(ended.end()));
            }
        }
        Ok(self.begun.take().map(Begun::end))
    }
}

impl Iterator for Gathering<'_> {
    type Item = Result<Versioned<Presence>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.gather().transpose()
    }
}

impl Begun {
    fn end(mut self) -> Versioned<Presence> {
        self.presence.attendance = Attendance::restore(self.clients, self.since, self.departed);
        Versioned { version: self.version, row: self.presence }
    }
}

fn begin(row: &Row<'_>, channel: Arc<str>) -> Result<Begun, Error> {
    let reason = match row.get_ref(6)? {
        ValueRef::Null => None,
        reason => Some(Departure::parse(reason.as_str()?).ok_or_else(|| strange(6, "no reason to leave"))?),
    };
    let departed = reason.zip(read_time_or_none(row, 7)?).map(|(reason, seen)| Departed { reason, seen });
    let key = PresenceKey { channel, user: row.get(1)? };
    let (anonymous, name) = (row.get(3)?, row.get(4)?);
    let visibility =
        Visibility::parse(row.get_ref(16)?.as_str()?).ok_or_else(|| strange(16, "no visibility"))?;
    Ok(Begun {
        version: read_number(row, 2)?,
        presence: Presence { key, anonymous, name, visibility, attendance: Attendance::default() },
        since: read_time(row, 5)?,
        departed,
        clients: Vec::with_capacity(1),
    })
}

fn client(row: &Row<'_>, node: &mut Arc<str>) -> Result<Option<Attendee>, Error> {
    let id = match row.get_ref(8)? {
        ValueRef::Null => return Ok(None),
        id => ClientId::parse(id.as_str()?).ok_or_else(|| strange(8, "no client id"))?,
    };
    let home = row.get_ref(9)?.as_str()?;
    if **node != *home {
        *node = home.into();
    }
    let state: Option<Arc<str>> = row.get(11)?;
    let meaning: Option<i64> = row.get(12)?;
    let lost = read_time_or_none(row, 14)?.zip(read_time_or_none(row, 15)?);
    Ok(Some(Attendee {
        client: id,
        home: Home { node: node.clone(), epoch: Epoch(read_number(row, 10)?) },
        state: state.zip(meaning).map(|(text, meaning)| State { text, meaning: meaning.cast_unsigned() }),
        since: read_time(row, 13)?,
        lost: lost.map(|(at, until)| Lost { at, until }),
    }))
}
