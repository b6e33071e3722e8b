//! Reading presences: by channel, by user, by node, and the stale ones. Must hold: each read is of one moment.

use super::value::{number, read_clock, read_number, read_time, read_time_or_none, time, unexpected};
use super::{node, presence};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Row, Rows, params};
use std::sync::Arc;
use tavern_domain::presence::{
    Attendance, ChannelClient, ClientState, LastDeparture, LostClient, NodeEpoch, OfflineReason, Visibility,
};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::{
    Page, PresenceKey, PresencePage, PresenceRow, RowKey, StalePresence, Versioned, Writer, limits,
};

pub(super) fn get(
    connection: &Connection,
    key: &PresenceKey,
) -> Result<Option<Versioned<PresenceRow>>, Error> {
    let rows = "WHERE p.channel_name = ?1 AND p.user_id = ?2";
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let mut found = PresenceAssembler::new(statement.query((&key.channel, &key.user))?);
    found.next().transpose()
}

pub(super) fn roster(
    connection: &Connection,
    name: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<PresencePage, Error> {
    let moment = connection.unchecked_transaction()?;
    let (version, users, _) = presence::channel(&moment, name)?;
    let version = if users == 0 { read_clock(&moment)?.floor } else { version };
    let rows = "WHERE p.channel_name = ?1 AND p.user_id > ?2 ORDER BY p.user_id";
    let mut statement = moment.prepare_cached(&with_clients(rows))?;
    let rows = PresenceAssembler::new(statement.query((name, after.unwrap_or("")))?);
    Ok(PresencePage { version, users, page: Page::fill(limit, |row| row.row.bytes(), rows)? })
}

pub(super) fn of_user(
    connection: &Connection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<PresenceRow>>, Error> {
    let rows = "WHERE p.user_id = ?1 AND p.channel_name IN
            (SELECT channel_name FROM user_channel_presences WHERE user_id = ?1 AND channel_name > ?2)
        ORDER BY p.channel_name";
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let rows = PresenceAssembler::new(statement.query((user, after.unwrap_or("")))?);
    Page::fill(limit, |row| row.row.bytes(), rows)
}

pub(super) fn rows(
    connection: &Connection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<tavern_store::row::Row>>, Error> {
    let rows = "WHERE (p.channel_name, p.user_id) > (?1, ?2) ORDER BY p.channel_name, p.user_id";
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let rows = PresenceAssembler::new(statement.query(RowKey::names(after))?);
    let rows = rows.map(|row| row.map(|row| row.map(tavern_store::row::Row::Presence)));
    Page::fill(limit, |row| row.row.bytes(), rows)
}

/// Presences with a client of one epoch of a node, by channel and user.
pub(super) fn at_node(
    connection: &Connection,
    home: &Writer,
    after: Option<&PresenceKey>,
    limit: u32,
) -> Result<Page<Versioned<PresenceRow>>, Error> {
    // One more than the page, which shows that there are more.
    let rows =
        "WHERE (p.channel_name, p.user_id) IN (SELECT DISTINCT channel_name, user_id FROM user_channel_presences
            WHERE node = ?1 AND epoch = ?2 AND lost_at IS NULL AND (channel_name, user_id) > (?3, ?4)
            ORDER BY channel_name, user_id LIMIT ?5 + 1)
        ORDER BY p.channel_name, p.user_id";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (channel, user) = after.map_or(("", ""), |key| (&*key.channel, &*key.user));
    let mut statement = connection.prepare_cached(&with_clients(rows))?;
    let values = params![home.node, number(home.epoch.0), channel, user, limit];
    Page::fill(limit, |row| row.row.bytes(), PresenceAssembler::new(statement.query(values)?))
}

/// Scans all clients: done rarely.
pub(super) fn stale(connection: &Connection, before: Time, limit: u32) -> Result<Page<StalePresence>, Error> {
    let moment = connection.unchecked_transaction()?;
    let rows =
        "WHERE (p.channel_name, p.user_id) IN (SELECT DISTINCT channel_name, user_id FROM user_channel_presences
            WHERE (lost_at IS NULL AND since <= ?1 AND node <> '' AND (node, epoch) NOT IN (SELECT name, epoch FROM nodes))
                OR lost_until <= ?1)
        ORDER BY p.user_id, p.channel_name";
    let mut statement = moment.prepare_cached(&with_clients(rows))?;
    let rows = PresenceAssembler::new(statement.query([time(before)])?);
    let stale = rows.map(|row| stale_presence(&moment, &row?.row, before));
    Page::fill(limit, |_| 64, stale.filter_map(Result::transpose))
}

fn stale_presence(
    connection: &Connection,
    presence: &PresenceRow,
    before: Time,
) -> Result<Option<StalePresence>, Error> {
    let mut known = Vec::new();
    for client in presence.attendance.connected() {
        let home = Writer { node: client.node.node.clone(), epoch: client.node.epoch };
        if node::get(connection, &home)?.is_some() {
            known.push(client.node.clone());
        }
    }
    let nodes = presence.stale_nodes(before, |home| known.contains(home));
    Ok(nodes.map(|nodes| StalePresence { key: presence.key.clone(), nodes }))
}

/// Each client of a presence is a row that repeats the presence. One statement reads one moment.
fn with_clients(rows: &str) -> String {
    format!(
        "SELECT p.channel_name, p.user_id, p.version, p.anonymous, p.name, p.since, p.left_reason, p.left_at,
            c.connection_id, c.node, c.epoch, c.state, c.state_digest, c.since, c.lost_at, c.lost_until, p.visibility
        FROM presences p LEFT JOIN user_channel_presences c USING (channel_name, user_id) {rows}"
    )
}

/// Assembles presences from the rows of their clients, which are adjacent.
struct PresenceAssembler<'a> {
    rows: Rows<'a>,
    /// Its clients may continue in the next row.
    partial: Option<PartialPresence>,
    /// The last one read: most rows have the same, and share it.
    node: Arc<str>,
}

struct PartialPresence {
    version: u64,
    presence: PresenceRow,
    since: Time,
    departed: Option<LastDeparture>,
    clients: Vec<ChannelClient>,
}

impl<'a> PresenceAssembler<'a> {
    fn new(rows: Rows<'a>) -> PresenceAssembler<'a> {
        PresenceAssembler { rows, partial: None, node: "".into() }
    }

    fn next_presence(&mut self) -> Result<Option<Versioned<PresenceRow>>, Error> {
        while let Some(row) = self.rows.next()? {
            let (channel, user) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            let same = |partial: &PartialPresence| {
                *partial.presence.key.user == *user && *partial.presence.key.channel == *channel
            };
            let ended = match &self.partial {
                Some(partial) if same(partial) => None,
                partial => {
                    let channel = match partial {
                        Some(partial) if *partial.presence.key.channel == *channel => {
                            partial.presence.key.channel.clone()
                        }
                        _ => channel.into(),
                    };
                    self.partial.replace(begin(row, channel)?)
                }
            };
            let client = client(row, &mut self.node)?;
            if let Some(partial) = &mut self.partial {
                partial.clients.extend(client);
            }
            if let Some(ended) = ended {
                return Ok(Some(ended.end()));
            }
        }
        Ok(self.partial.take().map(PartialPresence::end))
    }
}

impl Iterator for PresenceAssembler<'_> {
    type Item = Result<Versioned<PresenceRow>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_presence().transpose()
    }
}

impl PartialPresence {
    fn end(mut self) -> Versioned<PresenceRow> {
        self.presence.attendance = Attendance::restore(self.clients, self.since, self.departed);
        Versioned { version: self.version, row: self.presence }
    }
}

fn begin(row: &Row<'_>, channel: Arc<str>) -> Result<PartialPresence, Error> {
    let reason = match row.get_ref(6)? {
        ValueRef::Null => None,
        reason => {
            Some(OfflineReason::parse(reason.as_str()?).ok_or_else(|| unexpected(6, "unknown reason"))?)
        }
    };
    let departed =
        reason.zip(read_time_or_none(row, 7)?).map(|(reason, seen)| LastDeparture { reason, seen });
    let key = PresenceKey { channel, user: row.get(1)? };
    let (anonymous, name) = (row.get(3)?, row.get(4)?);
    let visibility =
        Visibility::parse(row.get_ref(16)?.as_str()?).ok_or_else(|| unexpected(16, "unknown visibility"))?;
    Ok(PartialPresence {
        version: read_number(row, 2)?,
        presence: PresenceRow { key, anonymous, name, visibility, attendance: Attendance::default() },
        since: read_time(row, 5)?,
        departed,
        clients: Vec::with_capacity(1),
    })
}

fn client(row: &Row<'_>, node: &mut Arc<str>) -> Result<Option<ChannelClient>, Error> {
    let id = match row.get_ref(8)? {
        ValueRef::Null => return Ok(None),
        id => ClientId::parse(id.as_str()?).ok_or_else(|| unexpected(8, "not a client id"))?,
    };
    let home = row.get_ref(9)?.as_str()?;
    if **node != *home {
        *node = home.into();
    }
    let state: Option<Arc<str>> = row.get(11)?;
    let digest: Option<i64> = row.get(12)?;
    let lost = read_time_or_none(row, 14)?.zip(read_time_or_none(row, 15)?);
    Ok(Some(ChannelClient {
        client: id,
        node: NodeEpoch { node: node.clone(), epoch: Epoch(read_number(row, 10)?) },
        state: state.zip(digest).map(|(text, digest)| ClientState { text, digest: digest.cast_unsigned() }),
        since: read_time(row, 13)?,
        lost: lost.map(|(at, until)| LostClient { at, until }),
    }))
}
