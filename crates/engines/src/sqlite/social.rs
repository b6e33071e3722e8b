//! Users and follows: the tables `user_presences` and `follows`.

use super::value::{number, read_number, read_time, read_time_or_none, time, unexpected};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use tavern_domain::presence::Visibility;
use tavern_store::{
    Follow, FollowRow, LastSeenUpdate, Page, RowKey, UserRow, UserSnapshot, Versioned, limits,
};

pub(super) fn user_version(connection: &Connection, user: &str) -> Result<u64, Error> {
    let sql = "SELECT version FROM user_presences WHERE user_id = ?1";
    let found = connection.prepare_cached(sql)?.query_row([user], |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

pub(super) fn user(connection: &Connection, user: &str) -> Result<Option<Versioned<UserRow>>, Error> {
    let sql = "SELECT version, last_seen, visibility, user_id FROM user_presences WHERE user_id = ?1";
    connection.prepare_cached(sql)?.query_row([user], read_user).optional()
}

fn read_user(row: &Row<'_>) -> Result<Versioned<UserRow>, Error> {
    let visibility: String = row.get(2)?;
    let user = UserRow {
        user: row.get(3)?,
        last_seen: read_time_or_none(row, 1)?,
        visibility: Visibility::parse(&visibility).ok_or_else(|| unexpected(2, "no visibility"))?,
    };
    Ok(Versioned { version: read_number(row, 0)?, row: user })
}

pub(super) fn user_rows(
    connection: &Connection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<tavern_store::row::Row>>, Error> {
    let sql = "SELECT version, last_seen, visibility, user_id FROM user_presences
        WHERE user_id > ?1 ORDER BY user_id";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([RowKey::names(after).0], read_user)?;
    Page::fill(
        limit,
        |row| row.row.bytes(),
        rows.map(|row| row.map(|row| row.map(tavern_store::row::Row::User))),
    )
}

pub(super) fn follow_rows(
    connection: &Connection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<tavern_store::row::Row>>, Error> {
    let sql = "SELECT follower, followee, since, version, 0 FROM follows
        WHERE (follower, followee) > (?1, ?2) ORDER BY follower, followee";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(RowKey::names(after), |row| {
        let FollowRow { follow, version, .. } = read(row)?;
        Ok(Versioned { version, row: tavern_store::row::Row::Follow(follow) })
    })?;
    Page::fill(limit, |row| row.row.bytes(), rows)
}

pub(super) fn put_user(connection: &Connection, user: &UserRow, version: u64) -> Result<(), Error> {
    let sql = "INSERT INTO user_presences (user_id, version, last_seen, visibility) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET version = excluded.version, visibility = excluded.visibility,
        last_seen = CASE WHEN last_seen IS NULL OR excluded.last_seen > last_seen THEN excluded.last_seen ELSE last_seen END";
    let values = (&user.user, number(version), user.last_seen.map(time), user.visibility.as_str());
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn see(connection: &Connection, seen: &LastSeenUpdate, version: u64) -> Result<(), Error> {
    let sql = "INSERT INTO user_presences (user_id, version, last_seen, visibility) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT DO UPDATE SET last_seen = excluded.last_seen WHERE last_seen IS NULL OR excluded.last_seen > last_seen";
    let values = (&seen.user, number(version), time(seen.at), Visibility::Everyone.as_str());
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

/// Everything about one user, of one moment.
pub(super) fn person(
    connection: &Connection,
    name: &std::sync::Arc<str>,
    viewer: Option<&str>,
) -> Result<UserSnapshot, Error> {
    let moment = connection.unchecked_transaction()?;
    let mutual = match viewer {
        Some(viewer) => {
            follow_version(&moment, name, viewer)? > 0 && follow_version(&moment, viewer, name)? > 0
        }
        None => false,
    };
    Ok(UserSnapshot {
        user: name.clone(),
        known: user(&moment, name)?,
        presences: super::roster::of_user(&moment, name, None, limits::PAGE_ROWS)?.rows,
        mutual,
    })
}

pub(super) fn delete_user(connection: &Connection, user: &str) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM user_presences WHERE user_id = ?1")?.execute([user]).map(drop)
}

pub(super) fn follow_version(connection: &Connection, follower: &str, followee: &str) -> Result<u64, Error> {
    let sql = "SELECT version FROM follows WHERE follower = ?1 AND followee = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row((follower, followee), |row| read_number(row, 0)).optional()?.unwrap_or(0))
}

pub(super) fn put_follow(connection: &Connection, follow: &Follow, version: u64) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO follows (follower, followee, version, since) VALUES (?1, ?2, ?3, ?4)";
    let values = (&follow.follower, &follow.followee, number(version), time(follow.since));
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn delete_follow(connection: &Connection, follower: &str, followee: &str) -> Result<(), Error> {
    let sql = "DELETE FROM follows WHERE follower = ?1 AND followee = ?2";
    connection.prepare_cached(sql)?.execute((follower, followee)).map(drop)
}

pub(super) fn following(
    connection: &Connection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<FollowRow>, Error> {
    let sql = "SELECT follower, followee, since, version,
        EXISTS (SELECT 1 FROM follows b WHERE b.follower = f.followee AND b.followee = f.follower)
        FROM follows f WHERE follower = ?1 AND followee > ?2 ORDER BY followee";
    edges(connection, sql, user, after, limit)
}

pub(super) fn followers(
    connection: &Connection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<FollowRow>, Error> {
    let sql = "SELECT follower, followee, since, version,
        EXISTS (SELECT 1 FROM follows b WHERE b.follower = f.followee AND b.followee = f.follower)
        FROM follows f WHERE followee = ?1 AND follower > ?2 ORDER BY follower";
    edges(connection, sql, user, after, limit)
}

fn edges(
    connection: &Connection,
    sql: &str,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<FollowRow>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    Page::fill(limit, |_| 64, statement.query_map((user, after.unwrap_or("")), read)?)
}

fn read(row: &Row<'_>) -> Result<FollowRow, Error> {
    let follow = Follow { follower: row.get(0)?, followee: row.get(1)?, since: read_time(row, 2)? };
    Ok(FollowRow { follow, version: read_number(row, 3)?, mutual: row.get(4)? })
}
