//! Users and follows: the rows `users` by name, `follows` by follower and followee, the lists `user-ids`,
//! `following` and `followers`.

use super::connection::RedisReply;
use super::encoder::{Encoder, IndexEntries};
use super::error::RedisError;
use super::pages::{Pages, Range};
use super::presence;
use super::schema::RedisTable;
use super::script::{EDGES, PERSON};
use super::value::{Json, StoredRow, names};
use futures_util::future::join_all;
use std::sync::Arc;
use tavern_domain::presence::Visibility;
use tavern_store::social::FollowPage;
use tavern_store::{Follow, FollowRow, LastSeenUpdate, Page, UserRow, UserSnapshot, Versioned, limits};

/// People read at once: each may have a page of presences.
const CHUNK: usize = 32;

pub(super) fn put_user(encoder: &mut Encoder, user: &UserRow) {
    encoder.text("U");
    encoder.text(&user.user);
    match user.last_seen {
        Some(seen) => encoder.number(seen.0),
        None => encoder.text(""),
    }
    encoder.argument(&rest(user.visibility));
}

pub(super) fn see(encoder: &mut Encoder, seen: &LastSeenUpdate) {
    encoder.text("S");
    encoder.text(&seen.user);
    encoder.number(seen.at.0);
    encoder.argument(&rest(Visibility::Everyone));
}

/// The JSON after the version and last seen.
fn rest(visibility: Visibility) -> Vec<u8> {
    Json::new().text("visibility", visibility.as_str()).end()
}

pub(super) fn encode_follow(follow: &Follow) -> (Vec<u8>, IndexEntries) {
    (Json::new().number("since", follow.since.0).end(), IndexEntries::default())
}

pub(super) async fn people(
    pages: &Pages<'_>,
    users: &[Arc<str>],
    viewer: Option<&str>,
) -> Result<Vec<UserSnapshot>, RedisError> {
    let users = &users[..users.len().min(limits::PAGE_ROWS as usize)];
    let mut people = Vec::with_capacity(users.len());
    for few in users.chunks(CHUNK) {
        let asked = few.iter().map(|user| person(pages, user, viewer));
        people.extend(join_all(asked).await.into_iter().collect::<Result<Vec<_>, _>>()?);
    }
    Ok(people)
}

async fn person(
    pages: &Pages<'_>,
    user: &Arc<str>,
    viewer: Option<&str>,
) -> Result<UserSnapshot, RedisError> {
    let tables = [RedisTable::Users, RedisTable::Follows, RedisTable::UserChannels, RedisTable::Presences];
    let mut arguments = Encoder::default();
    arguments.text(user);
    arguments.text(viewer.unwrap_or(""));
    arguments.number(limits::PAGE_ROWS.into());
    let parts = pages.pool.ask(&PERSON.on(pages.keys, &tables, &arguments)).await?.list()?;
    read_person(user, &parts)
}

fn read_person(user: &Arc<str>, parts: &[RedisReply]) -> Result<UserSnapshot, RedisError> {
    let [known, mutual, places @ ..] = parts else {
        return Err(RedisError::Unexpected("a short answer about a person"));
    };
    let known = match known.text()? {
        row if row.is_empty() => None,
        row => Some(read_user(user, &StoredRow::parse(row)?)?),
    };
    let mut presences = Vec::new();
    for pair in places.chunks(2) {
        let [field, row] = pair else { return Err(RedisError::Unexpected("a short answer about a person")) };
        presences.push(presence::named(field.text()?, &mut StoredRow::parse(row.text()?)?)?);
    }
    Ok(UserSnapshot { user: user.clone(), known, presences, mutual: mutual.text()? == "1" })
}

pub(super) fn read_user(user: &Arc<str>, row: &StoredRow) -> Result<Versioned<UserRow>, RedisError> {
    let visibility =
        Visibility::parse(row.str("visibility")?).ok_or(RedisError::Unexpected("unknown visibility"))?;
    let user = UserRow { user: user.clone(), last_seen: row.time_or_none("last_seen")?, visibility };
    Ok(Versioned { version: row.version()?, row: user })
}

pub(super) async fn following(
    pages: &Pages<'_>,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<FollowPage, RedisError> {
    edges(pages, RedisTable::Following, user, after, limit, "same").await
}

pub(super) async fn followers(
    pages: &Pages<'_>,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<FollowPage, RedisError> {
    edges(pages, RedisTable::Followers, user, after, limit, "swap").await
}

async fn edges(
    pages: &Pages<'_>,
    list: RedisTable,
    user: &str,
    after: Option<&str>,
    limit: u32,
    how: &str,
) -> Result<FollowPage, RedisError> {
    let after = after.map(|name| [name]);
    let range = Range::under(&[user], after.as_ref().map(|after| &after[..]));
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let mut arguments = Encoder::default();
    arguments.argument(&range.from);
    arguments.argument(&range.to);
    arguments.number(u64::from(limit) + 1);
    arguments.text(how);
    let request = EDGES.on(pages.keys, &[list, RedisTable::Follows], &arguments);
    let parts = pages.pool.ask(&request).await?.list()?;
    Page::fill(limit, |_| 64, parts.chunks(3).map(read_edge))
}

fn read_edge(parts: &[RedisReply]) -> Result<FollowRow, RedisError> {
    let [field, row, back] = parts else {
        return Err(RedisError::Unexpected("a short answer about a follow"));
    };
    let [follower, followee] = names::<2>(field.text()?)?;
    let found = read_follow(follower, followee, &StoredRow::parse(row.text()?)?)?;
    Ok(FollowRow { follow: found.row, version: found.version, mutual: back.text()? == "1" })
}

pub(super) fn read_follow(
    follower: &str,
    followee: &str,
    row: &StoredRow,
) -> Result<Versioned<Follow>, RedisError> {
    let follow = Follow { follower: follower.into(), followee: followee.into(), since: row.time("since")? };
    Ok(Versioned { version: row.version()?, row: follow })
}
