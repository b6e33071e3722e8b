//! Users and follows: the tables `user_presences` and `follows`.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::roster;
use super::statements::RowStatements;
use super::value::{get, number, read_number, read_time, read_time_or_none, text, time};
use std::collections::HashMap;
use std::sync::Arc;
use tavern_domain::presence::Visibility;
use tavern_store::{
    Follow, FollowRow, Page, PresenceRow, RowKey, UserRow, UserSnapshot, Versioned, limits, row,
};
use tokio_postgres::Row;

pub(super) const USERS: RowStatements = RowStatements {
    lock: "INSERT INTO user_presences (user_id, version, visibility)
        SELECT user_id, 0, '' FROM unnest($1::text[], $2::text[]) AS k (user_id, nothing)
        ON CONFLICT (user_id) DO UPDATE SET version = 0 WHERE false",
    load: "SELECT k.at, u.version, u.user_id, u.last_seen, u.visibility
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (user_id, nothing, at)
        JOIN user_presences u ON u.user_id = k.user_id WHERE u.version > 0",
    delete: "DELETE FROM user_presences u USING unnest($1::text[], $2::text[]) AS k (user_id, nothing)
        WHERE u.user_id = k.user_id",
};

pub(super) const FOLLOWS: RowStatements = RowStatements {
    lock: "INSERT INTO follows (follower, followee, version, since)
        SELECT follower, followee, 0, 0 FROM unnest($1::text[], $2::text[]) AS k (follower, followee)
        ON CONFLICT (follower, followee) DO UPDATE SET version = 0 WHERE false",
    load: "SELECT k.at, f.version FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (follower, followee, at)
        JOIN follows f ON f.follower = k.follower AND f.followee = k.followee WHERE f.version > 0",
    delete: "DELETE FROM follows f USING unnest($1::text[], $2::text[]) AS k (follower, followee)
        WHERE f.follower = k.follower AND f.followee = k.followee",
};

/// From the columns of `USERS.load`.
pub(super) fn loaded_user(row: &Row) -> Result<UserRow, PostgresError> {
    Ok(UserRow {
        user: text(row, 2)?,
        last_seen: read_time_or_none(row, 3)?,
        visibility: Visibility::parse(get(row, 4)?).ok_or(PostgresError::Unexpected("no visibility"))?,
    })
}

pub(super) fn put_users<'a>(rows: &[(&'a UserRow, u64)]) -> Statement<'a> {
    let sql = "UPDATE user_presences u SET version = k.version, last_seen = k.last_seen, visibility = k.visibility
        FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) AS k (user_id, version, last_seen, visibility)
        WHERE u.user_id = k.user_id";
    Statement::new(sql)
        .with(rows.iter().map(|(user, _)| &*user.user).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(user, _)| user.last_seen.map(time)).collect::<Vec<_>>())
        .with(rows.iter().map(|(user, _)| user.visibility.as_str()).collect::<Vec<_>>())
}

pub(super) fn put_follows<'a>(rows: &[(&'a Follow, u64)]) -> Statement<'a> {
    let sql = "UPDATE follows f SET version = k.version, since = k.since
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS k (follower, followee, version, since)
        WHERE f.follower = k.follower AND f.followee = k.followee";
    Statement::new(sql)
        .with(rows.iter().map(|(follow, _)| &*follow.follower).collect::<Vec<_>>())
        .with(rows.iter().map(|(follow, _)| &*follow.followee).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(follow, _)| time(follow.since)).collect::<Vec<_>>())
}

/// Everything about these users, of one moment.
pub(super) async fn people(
    connection: &PostgresConnection,
    users: &[Arc<str>],
    viewer: Option<&str>,
) -> Result<Vec<UserSnapshot>, PostgresError> {
    let known = "SELECT 0::bigint, version, user_id, last_seen, visibility FROM user_presences
        WHERE user_id = ANY ($1)";
    let mutual = "SELECT there.follower FROM follows there
        JOIN follows back ON back.follower = there.followee AND back.followee = there.follower
        WHERE there.follower = ANY ($1) AND there.followee = $2";
    let users = &users[..users.len().min(limits::PAGE_ROWS as usize)];
    let names: Vec<&str> = users.iter().map(|user| &**user).collect();
    let statements = vec![
        Statement::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        Statement::new(known).with(names.clone()),
        Statement::new(mutual).with(names.clone()).with(viewer),
        roster::of_users(names),
        Statement::new("COMMIT"),
    ];
    let found = connection.run(statements).await?;
    let mut known = HashMap::new();
    for row in &found[1] {
        let user = loaded_user(row)?;
        known.insert(user.user.clone(), Versioned { version: read_number(row, 1)?, row: user });
    }
    let mutual = found[2].iter().map(|row| get(row, 0)).collect::<Result<Vec<&str>, _>>()?;
    let mut presences: HashMap<Arc<str>, Vec<Versioned<PresenceRow>>> = HashMap::new();
    for presence in roster::gather(&found[3]) {
        let presence = presence?;
        presences.entry(presence.row.key.user.clone()).or_default().push(presence);
    }
    let person = |user: &Arc<str>| UserSnapshot {
        user: user.clone(),
        known: known.get(user).cloned(),
        presences: presences.get(user).cloned().unwrap_or_default(),
        mutual: mutual.contains(&&**user),
    };
    Ok(users.iter().map(person).collect())
}

pub(super) async fn following(
    connection: &PostgresConnection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<FollowRow>, PostgresError> {
    let sql = "SELECT follower, followee, since, version,
        EXISTS (SELECT FROM follows b WHERE b.follower = f.followee AND b.followee = f.follower)
        FROM follows f WHERE follower = $1 AND followee > $2 ORDER BY followee LIMIT $3";
    edges(connection, sql, user, after, limit).await
}

/// The first page of each of them.
pub(super) async fn following_all(
    connection: &PostgresConnection,
    users: impl Iterator<Item = &Arc<str>>,
) -> Result<HashMap<Arc<str>, Page<FollowRow>>, PostgresError> {
    // A join, not an EXISTS: for many rows the planner would rather scan the whole table. Limited afterwards: with a limit
    // inside, the planner may choose the index of the other direction when the table was empty at the time of planning.
    let sql = "SELECT f.follower, f.followee, f.since, f.version, b.version IS NOT NULL
        FROM (SELECT *, row_number() OVER (PARTITION BY follower ORDER BY followee) AS n
            FROM follows WHERE follower = ANY ($1)) AS f
        LEFT JOIN follows b ON b.follower = f.followee AND b.followee = f.follower
        WHERE f.n <= $2 ORDER BY f.follower, f.followee";
    let names: Vec<&str> = users.map(|user| &**user).collect();
    let rows = connection.one(Statement::new(sql).with(names).with(i64::from(limits::PAGE_ROWS) + 1)).await?;
    let mut edges: HashMap<Arc<str>, Vec<FollowRow>> = HashMap::new();
    for row in &rows {
        let edge = edge(row)?;
        edges.entry(edge.follow.follower.clone()).or_default().push(edge);
    }
    let page = |edges: Vec<FollowRow>| {
        Page::fill(limits::PAGE_ROWS, |_| 64, edges.into_iter().map(Ok::<_, PostgresError>))
    };
    edges.into_iter().map(|(user, edges)| Ok((user, page(edges)?))).collect()
}

fn edge(row: &Row) -> Result<FollowRow, PostgresError> {
    let follow = Follow { follower: text(row, 0)?, followee: text(row, 1)?, since: read_time(row, 2)? };
    Ok(FollowRow { follow, version: read_number(row, 3)?, mutual: get(row, 4)? })
}

pub(super) async fn followers(
    connection: &PostgresConnection,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<FollowRow>, PostgresError> {
    let sql = "SELECT follower, followee, since, version,
        EXISTS (SELECT FROM follows b WHERE b.follower = f.followee AND b.followee = f.follower)
        FROM follows f WHERE followee = $1 AND follower > $2 ORDER BY follower LIMIT $3";
    edges(connection, sql, user, after, limit).await
}

async fn edges(
    connection: &PostgresConnection,
    sql: &'static str,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Page<FollowRow>, PostgresError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let statement = Statement::new(sql).with(user).with(after.unwrap_or("")).with(i64::from(limit) + 1);
    let rows = connection.one(statement).await?;
    Page::fill(limit, |_| 64, rows.iter().map(edge))
}

pub(super) async fn user_rows(
    connection: &PostgresConnection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<row::Row>>, PostgresError> {
    let sql = "SELECT 0::bigint, version, user_id, last_seen, visibility FROM user_presences
        WHERE user_id > $1 ORDER BY user_id LIMIT $2";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let rows =
        connection.one(Statement::new(sql).with(RowKey::names(after).0).with(i64::from(limit) + 1)).await?;
    let read = |row| {
        let user = row::Row::User(loaded_user(row)?);
        Ok::<_, PostgresError>(Versioned { version: read_number(row, 1)?, row: user })
    };
    Page::fill(limit, |row| row.row.bytes(), rows.iter().map(read))
}

pub(super) async fn follow_rows(
    connection: &PostgresConnection,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<row::Row>>, PostgresError> {
    let sql = "SELECT follower, followee, since, version FROM follows
        WHERE (follower, followee) > ($1, $2) ORDER BY follower, followee LIMIT $3";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let (follower, followee) = RowKey::names(after);
    let rows =
        connection.one(Statement::new(sql).with(follower).with(followee).with(i64::from(limit) + 1)).await?;
    let read = |row| {
        let follow = Follow { follower: text(row, 0)?, followee: text(row, 1)?, since: read_time(row, 2)? };
        Ok::<_, PostgresError>(Versioned { version: read_number(row, 3)?, row: row::Row::Follow(follow) })
    };
    Page::fill(limit, |row| row.row.bytes(), rows.iter().map(read))
}
