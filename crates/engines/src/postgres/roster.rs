//! Presences as they are read. Must hold: each reading is of one moment; the version of an empty channel lies between all
//! that it has had and all that it will have.

use super::link::{Link, Step};
use super::presence::LOCK_CHANNELS;
use super::value::{
    Trouble, get as column, number, read_number, read_time, read_time_or_none, text, text_or_none, time,
};
use std::iter::Peekable;
use std::slice::Iter;
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Attendee, Departed, Departure, Home, Lost, State, Visibility};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::limits;
use tavern_store::node::Writer;
use tavern_store::page::{Page, Versioned};
use tavern_store::presence::{Presence, PresenceKey, Roster, StalePresence};
use tavern_store::row::{self, RowKey};
use tokio_postgres::Row;

/// One statement is one moment. Each client of a presence is a row that repeats the presence.
macro_rules! with_clients {
    ($more:literal, $rows:literal) => {
        concat!(
            "SELECT p.channel_name, p.user_id, p.version, p.anonymous, p.name, p.since, p.left_reason, p.left_at,
                p.visibility, c.connection_id, c.node, c.epoch, c.state, c.meaning, c.since, c.lost_at, c.lost_until",
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
    link: &Link,
    keys: impl Iterator<Item = &PresenceKey>,
) -> Result<Vec<Versioned<Presence>>, Trouble> {
    let sql = with_clients!(
        "",
        "(SELECT DISTINCT channel_name, user_id FROM unnest($1::text[], $2::text[]) AS k (channel_name, user_id)) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = k.user_id
        LEFT JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.channel_name, p.user_id"
    );
    let (channels, users): (Vec<&str>, Vec<&str>) = keys.map(|key| (&*key.channel, &*key.user)).unzip();
    let rows = link.one(Step::new(sql).with(channels).with(users)).await?;
    gather(&rows).collect()
}

pub(super) async fn roster(
    link: &Link,
    channel: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Roster, Trouble> {
    let sql = with_clients!(
        ", h.version, h.users",
        "(SELECT 1) AS one LEFT JOIN channel_presences h ON h.channel_name = $1
        LEFT JOIN (SELECT * FROM presences WHERE channel_name = $1 AND user_id > $2 ORDER BY user_id LIMIT $3) p ON true
        LEFT JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.user_id"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let read = || Step::new(sql).with(channel).with(after.unwrap_or("")).with(i64::from(limit) + 1);
    let rows = link.one(read()).await?;
    if count(&rows)?.1 > 0 {
        return page_of(&rows, 0, limit);
    }
    // Whoever is about to begin the channel has his number already: wait for him, and be sure that the next one reads
    // the floor after this.
    let steps = vec![
        Step::new("BEGIN"),
        Step::new(LOCK_CHANNELS).with(vec![channel]),
        read(),
        Step::new("SELECT max(floor) FROM store_clock"),
        Step::new("ROLLBACK"),
    ];
    let found = link.run(steps).await?;
    let floor = found[3].first().map_or(Ok(0), |row| read_number(row, 0))?;
    page_of(&found[2], floor, limit)
}

/// Version and users of the channel; zeros when nobody is there.
fn count(rows: &[Row]) -> Result<(u64, u64), Trouble> {
    let Some(row) = rows.first() else { return Ok((0, 0)) };
    match column::<Option<i64>>(row, USERS)? {
        None => Ok((0, 0)),
        Some(_) => Ok((read_number(row, VERSION)?, read_number(row, USERS)?)),
    }
}

fn page_of(rows: &[Row], floor: u64, limit: u32) -> Result<Roster, Trouble> {
    let (version, users) = count(rows)?;
    let version = if users == 0 { floor } else { version };
    Ok(Roster { version, users, page: Page::fill(limit, |row| row.row.bytes(), gather(rows))? })
}

pub(super) async fn of_user(
    link: &Link,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<Versioned<Presence>>, Trouble> {
    let sql = with_clients!(
        "",
        "(SELECT DISTINCT channel_name FROM user_channel_presences WHERE user_id = $1 AND channel_name > $2
            ORDER BY channel_name LIMIT $3) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = $1
        JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.channel_name"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let step = Step::new(sql).with(user).with(after.unwrap_or("")).with(i64::from(limit) + 1);
    let rows = link.one(step).await?;
    Page::fill(limit, |row| row.row.bytes(), gather(&rows))
}

/// By user and channel; of each user a page.
pub(super) fn of_users(users: Vec<&str>) -> Step<'_> {
    let sql = with_clients!(
        "",
        "(SELECT DISTINCT user_id FROM unnest($1::text[]) AS u (user_id)) AS u
        CROSS JOIN LATERAL (SELECT DISTINCT w.channel_name FROM user_channel_presences w WHERE w.user_id = u.user_id
            ORDER BY w.channel_name LIMIT $2) AS k
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = u.user_id
        JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.user_id, p.channel_name"
    );
    Step::new(sql).with(users).with(i64::from(limits::PAGE_ROWS))
}

/// Presences for which one life of a node vouches, by channel and user.
pub(super) async fn at_home(
    link: &Link,
    home: &Writer,
    after: Option<&PresenceKey>,
    limit: u32,
) -> Result<Page<Versioned<Presence>>, Trouble> {
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
    let step = Step::new(sql).with(&*home.node).with(number(home.epoch.0)).with(channel).with(user);
    let rows = link.one(step.with(i64::from(limit) + 1)).await?;
    Page::fill(limit, |row| row.row.bytes(), gather(&rows))
}

pub(super) async fn rows(
    link: &Link,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<row::Row>>, Trouble> {
    let sql = with_clients!(
        "",
        "(SELECT * FROM presences WHERE (channel_name, user_id) > ($1, $2)
            ORDER BY channel_name, user_id LIMIT $3) AS p
        LEFT JOIN user_channel_presences c ON c.user_id = p.user_id AND c.channel_name = p.channel_name
        ORDER BY p.channel_name, p.user_id"
    );
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (channel, user) = RowKey::names(after);
    let rows = link.one(Step::new(sql).with(channel).with(user).with(i64::from(limit) + 1)).await?;
    let rows = gather(&rows).map(|row| row.map(|row| row.map(row::Row::Presence)));
    Page::fill(limit, |row| row.row.bytes(), rows)
}

/// Looks at every client once: done seldom.
pub(super) async fn strays(link: &Link, before: Time, limit: u32) -> Result<Page<StalePresence>, Trouble> {
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
    let rows = link.one(Step::new(sql).with(time(before)).with(i64::from(limit) + 1)).await?;
    let mut known = Vec::new();
    for row in &rows {
        if column(row, KNOWN)? {
            known.push(Home { node: text(row, 10)?, epoch: Epoch(read_number(row, 11)?) });
        }
    }
    let strays = gather(&rows).filter_map(|row| {
        row.map(|row| {
            let homes = row.row.stale_homes(before, |home| known.contains(home));
            homes.map(|homes| StalePresence { key: row.row.key, homes })
        })
        .transpose()
    });
    Page::fill(limit, |_| 64, strays)
}

/// Puts presences together from the rows of their clients, which follow each other.
pub(super) fn gather(rows: &[Row]) -> Gathering<'_> {
    Gathering(rows.iter().peekable())
}

pub(super) struct Gathering<'a>(Peekable<Iter<'a, Row>>);

impl Gathering<'_> {
    fn gather(&mut self) -> Result<Option<Versioned<Presence>>, Trouble> {
        let Some(first) = self.0.next() else { return Ok(None) };
        // A channel without presences on this page is one row of its own.
        if column::<Option<&str>>(first, 0)?.is_none() {
            return Ok(None);
        }
        let mut found = begin(first)?;
        let mut clients: Vec<Attendee> = client(first, None)?.into_iter().collect();
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

impl Iterator for Gathering<'_> {
    type Item = Result<Versioned<Presence>, Trouble>;

    fn next(&mut self) -> Option<Self::Item> {
        self.gather().transpose()
    }
}

fn begin(row: &Row) -> Result<Versioned<Presence>, Trouble> {
    let presence = Presence {
        key: PresenceKey { channel: text(row, 0)?, user: text(row, 1)? },
        anonymous: column(row, 3)?,
        name: text_or_none(row, 4)?,
        visibility: Visibility::parse(column(row, 8)?).ok_or(Trouble::Strange("no visibility"))?,
        attendance: Attendance::default(),
    };
    Ok(Versioned { version: read_number(row, 2)?, row: presence })
}

fn departed(row: &Row) -> Result<Option<Departed>, Trouble> {
    let Some(reason) = column::<Option<&str>>(row, 6)? else { return Ok(None) };
    let reason = Departure::parse(reason).ok_or(Trouble::Strange("no reason to leave"))?;
    Ok(read_time_or_none(row, 7)?.map(|seen| Departed { reason, seen }))
}

/// The client before usually has the same node: one copy serves both.
fn client(row: &Row, before: Option<&Attendee>) -> Result<Option<Attendee>, Trouble> {
    let Some(id) = column::<Option<&str>>(row, 9)? else { return Ok(None) };
    let node: &str = column(row, 10)?;
    let node = match before {
        Some(before) if *before.home.node == *node => before.home.node.clone(),
        _ => Arc::from(node),
    };
    let state = text_or_none(row, 12)?.zip(column::<Option<i64>>(row, 13)?);
    let lost = read_time_or_none(row, 15)?.zip(read_time_or_none(row, 16)?);
    Ok(Some(Attendee {
        client: ClientId::parse(id).ok_or(Trouble::Strange("no client id"))?,
        home: Home { node, epoch: Epoch(read_number(row, 11)?) },
        state: state.map(|(text, meaning)| State { text, meaning: meaning.cast_unsigned() }),
        since: read_time(row, 14)?,
        lost: lost.map(|(at, until)| Lost { at, until }),
    }))
}
