//! Reading presences: by channel, by user, by node, and the stale ones. Must hold: each read is of one moment; the version
//! of an empty channel is at least any that it had, and below any that it will have.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::presence::LOCK_CHANNELS;
use super::value::{
    get as column, number, read_number, read_time, read_time_or_none, text, text_or_none, time,
};
use std::iter::Peekable;
use std::slice::Iter;
use std::sync::Arc;
use tavern_domain::presence::{
    Attendance, ChannelClient, ClientState, LastDeparture, LostClient, NodeEpoch, OfflineReason, Visibility,
};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::{
    Page, PresenceKey, PresencePage, PresenceRow, RowKey, StalePresence, Versioned, Writer, limits, planted,
    row,
};
use tokio_postgres::Row;

/// Each client of a presence is a row that repeats the presence. One statement reads one moment.
macro_rules! with_clients {
    ($more:literal, $rows:literal) => {
        concat!(
            "SELECT p.channel_name, p.user_id, p.version, p.anonymous, p.name, p.since, p.left_reason, p.left_at,
                p.visibility, c.connection_id, c.node, c.epoch, c.state, c.state_digest, c.since, c.lost_at, c.lost_until",
            $more,
            " FROM ",
            $rows
        )
    };
}
const VERSION: usize = 17;
const USERS: usize = 18;
const KNOWN: usize = 17;

pub(super) async fn get_all(
    connection: &PostgresConnection,
    keys: impl Iterator<Item = &PresenceKey>,
) -> Result<Vec<Versioned<PresenceRow>>, PostgresError> {
    let sql = with_clients!(
        "",
        "(SELECT DISTINCT channel_name, user_id FROM unnest($1::text[], $2::text[]) AS k (channel_name, user_id)) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = k.user_id
        LEFT JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.channel_name, p.user_id"
    );
    let (channels, users): (Vec<&str>, Vec<&str>) = keys.map(|key| (&*key.channel, &*key.user)).unzip();
    let rows = connection.one(Statement::new(sql).with(channels).with(users)).await?;
    gather(&rows).collect()
}

pub(super) async fn roster(
    connection: &PostgresConnection,
    channel: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<PresencePage, PostgresError> {
    let sql = with_clients!(
        ", h.version, h.users",
        "(SELECT 1) AS one LEFT JOIN channel_presences h ON h.channel_name = $1
        LEFT JOIN (SELECT * FROM presences WHERE channel_name = $1 AND user_id > $2 ORDER BY user_id LIMIT $3) p ON true
        LEFT JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.user_id"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let rows = i64::from(limit) + i64::from(!planted("postgres-last-row"));
    let read = || Statement::new(sql).with(channel).with(after.unwrap_or("")).with(rows);
    let rows = connection.one(read()).await?;
    if count(&rows)?.1 > 0 {
        return page_of(&rows, 0, limit);
    }
    // A transaction that creates the channel already has its version: wait for it, so that any later one reads the
    // floor after this.
    let statements = vec![
        Statement::new("BEGIN"),
        Statement::new(LOCK_CHANNELS).with(vec![channel]),
        read(),
        Statement::new("SELECT max(floor) FROM store_clock"),
        Statement::new("ROLLBACK"),
    ];
    let found = connection.run(statements).await?;
    let floor = found[3].first().map_or(Ok(0), |row| read_number(row, 0))?;
    page_of(&found[2], floor, limit)
}

/// Version and users of the channel; zeros for an empty one.
fn count(rows: &[Row]) -> Result<(u64, u64), PostgresError> {
    let Some(row) = rows.first() else { return Ok((0, 0)) };
    match column::<Option<i64>>(row, USERS)? {
        None => Ok((0, 0)),
        Some(_) => Ok((read_number(row, VERSION)?, read_number(row, USERS)?)),
    }
}

fn page_of(rows: &[Row], floor: u64, limit: u32) -> Result<PresencePage, PostgresError> {
    let (version, users) = count(rows)?;
    let version = if users == 0 { floor } else { version };
    Ok(PresencePage { version, users, page: Page::fill(limit, |row| row.row.bytes(), gather(rows))? })
}

pub(super) async fn of_user(
    connection: &PostgresConnection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<PresenceRow>>, PostgresError> {
    let sql = with_clients!(
        "",
        "(SELECT DISTINCT channel_name FROM user_channel_presences WHERE user_id = $1 AND channel_name > $2
            ORDER BY channel_name LIMIT $3) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = $1
        JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.channel_name"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let statement = Statement::new(sql).with(user).with(after.unwrap_or("")).with(i64::from(limit) + 1);
    let rows = connection.one(statement).await?;
    Page::fill(limit, |row| row.row.bytes(), gather(&rows))
}

/// By user and channel; one page for each user.
pub(super) fn of_users(users: Vec<&str>) -> Statement<'_> {
    let sql = with_clients!(
        "",
        "(SELECT DISTINCT user_id FROM unnest($1::text[]) AS u (user_id)) AS u
        CROSS JOIN LATERAL (SELECT DISTINCT w.channel_name FROM user_channel_presences w WHERE w.user_id = u.user_id
            ORDER BY w.channel_name LIMIT $2) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = u.user_id
        JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.user_id, p.channel_name"
    );
    Statement::new(sql).with(users).with(i64::from(limits::PAGE_ROWS))
}

/// Presences with a client of one epoch of a node, by channel and user.
pub(super) async fn at_node(
    connection: &PostgresConnection,
    home: &Writer,
    after: Option<&PresenceKey>,
    limit: u32,
) -> Result<Page<Versioned<PresenceRow>>, PostgresError> {
    let sql = with_clients!(
        "",
        "(SELECT DISTINCT channel_name, user_id FROM user_channel_presences
            WHERE node = $1 AND epoch = $2 AND lost_at IS NULL AND (channel_name, user_id) > ($3, $4)
            ORDER BY channel_name, user_id LIMIT $5) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = k.user_id
        JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.channel_name, p.user_id"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (channel, user) = after.map_or(("", ""), |key| (&*key.channel, &*key.user));
    let statement = Statement::new(sql).with(&*home.node).with(number(home.epoch.0)).with(channel).with(user);
    let rows = connection.one(statement.with(i64::from(limit) + 1)).await?;
    Page::fill(limit, |row| row.row.bytes(), gather(&rows))
}

pub(super) async fn rows(
    connection: &PostgresConnection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<row::Row>>, PostgresError> {
    let sql = with_clients!(
        "",
        "(SELECT * FROM presences WHERE (channel_name, user_id) > ($1, $2)
            ORDER BY channel_name, user_id LIMIT $3) AS p
        LEFT JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.channel_name, p.user_id"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (channel, user) = RowKey::names(after);
    let rows =
        connection.one(Statement::new(sql).with(channel).with(user).with(i64::from(limit) + 1)).await?;
    let rows = gather(&rows).map(|row| row.map(|row| row.map(row::Row::Presence)));
    Page::fill(limit, |row| row.row.bytes(), rows)
}

/// Scans all clients: done rarely.
pub(super) async fn stale(
    connection: &PostgresConnection,
    before: Time,
    limit: u32,
) -> Result<Page<StalePresence>, PostgresError> {
    let sql = with_clients!(
        ", EXISTS (SELECT FROM nodes n WHERE n.name = c.node AND n.epoch = c.epoch)",
        "(SELECT w.channel_name, w.user_id FROM user_channel_presences w
            GROUP BY w.channel_name, w.user_id
            HAVING bool_or(w.lost_at IS NULL AND w.since <= $1 AND w.node <> ''
                    AND NOT EXISTS (SELECT FROM nodes n WHERE n.name = w.node AND n.epoch = w.epoch))
                OR (bool_and(w.lost_at IS NOT NULL) AND max(w.lost_until) <= $1)
            ORDER BY w.user_id, w.channel_name LIMIT $2) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = k.user_id
        JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.user_id, p.channel_name"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let rows = connection.one(Statement::new(sql).with(time(before)).with(i64::from(limit) + 1)).await?;
    let mut known = Vec::new();
    for row in &rows {
        if column(row, KNOWN)? {
            known.push(NodeEpoch { node: text(row, 10)?, epoch: Epoch(read_number(row, 11)?) });
        }
    }
    let strays = gather(&rows).filter_map(|row| {
        row.map(|row| {
            let nodes = row.row.stale_nodes(before, |home| known.contains(home));
            nodes.map(|nodes| StalePresence { key: row.row.key, nodes })
        })
        .transpose()
    });
    Page::fill(limit, |_| 64, strays)
}

/// Assembles presences from the rows of their clients, which are adjacent.
pub(super) fn gather(rows: &[Row]) -> PresenceRows<'_> {
    PresenceRows(rows.iter().peekable())
}

pub(super) struct PresenceRows<'a>(Peekable<Iter<'a, Row>>);

impl PresenceRows<'_> {
    fn next_presence(&mut self) -> Result<Option<Versioned<PresenceRow>>, PostgresError> {
        let Some(first) = self.0.next() else { return Ok(None) };
        // A channel without presences on this page is one row of its own.
        if column::<Option<&str>>(first, 0)?.is_none() {
            return Ok(None);
        }
        let mut found = begin(first)?;
        let mut clients: Vec<ChannelClient> = client(first, None)?.into_iter().collect();
        while let Some(row) = self.0.peek() {
            let key = &found.row.key;
            if column::<&str>(row, 1)? != &*key.user || column::<&str>(row, 0)? != &*key.channel {
                break;
            }
            let more = client(row, clients.last())?;
            clients.extend(more);
            self.0.next();
        }
        let departed = departed(first)?;
        found.row.attendance = Attendance::restore(clients, read_time(first, 5)?, departed);
        Ok(Some(found))
    }
}

impl Iterator for PresenceRows<'_> {
    type Item = Result<Versioned<PresenceRow>, PostgresError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_presence().transpose()
    }
}

fn begin(row: &Row) -> Result<Versioned<PresenceRow>, PostgresError> {
    let presence = PresenceRow {
        key: PresenceKey { channel: text(row, 0)?, user: text(row, 1)? },
        anonymous: column(row, 3)?,
        name: text_or_none(row, 4)?,
        visibility: Visibility::parse(column(row, 8)?)
            .ok_or(PostgresError::Unexpected("unknown visibility"))?,
        attendance: Attendance::default(),
    };
    Ok(Versioned { version: read_number(row, 2)?, row: presence })
}

fn departed(row: &Row) -> Result<Option<LastDeparture>, PostgresError> {
    let Some(reason) = column::<Option<&str>>(row, 6)? else { return Ok(None) };
    let reason = OfflineReason::parse(reason).ok_or(PostgresError::Unexpected("unknown reason"))?;
    Ok(read_time_or_none(row, 7)?.map(|seen| LastDeparture { reason, seen }))
}

/// The previous client usually has the same node, and shares its name.
fn client(row: &Row, before: Option<&ChannelClient>) -> Result<Option<ChannelClient>, PostgresError> {
    let Some(id) = column::<Option<&str>>(row, 9)? else { return Ok(None) };
    let node: &str = column(row, 10)?;
    let node = match before {
        Some(before) if *before.node.node == *node => before.node.node.clone(),
        _ => Arc::from(node),
    };
    let state = text_or_none(row, 12)?.zip(column::<Option<i64>>(row, 13)?);
    let lost = read_time_or_none(row, 15)?.zip(read_time_or_none(row, 16)?);
    Ok(Some(ChannelClient {
        client: ClientId::parse(id).ok_or(PostgresError::Unexpected("not a client id"))?,
        node: NodeEpoch { node, epoch: Epoch(read_number(row, 11)?) },
        state: state.map(|(text, digest)| ClientState { text, digest: digest.cast_unsigned() }),
        since: read_time(row, 14)?,
        lost: lost.map(|(at, until)| LostClient { at, until }),
    }))
}
