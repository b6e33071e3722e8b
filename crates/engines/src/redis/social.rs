//! Users and follows: the rows `users` by name, `follows` by follower and followee, the lists `user-ids`,
//! `following` and `followers`.

use super::link::Reply;
use super::presence;
use super::reader::{Pages, Span};
use super::script::{EDGES, PERSON};
use super::sheet::{Sheet, Terms};
use super::table::Table;
use super::value::{Json, Stored, Trouble, names};
use futures_util::future::join_all;
use std::sync::Arc;
use tavern_domain::presence::Visibility;
use tavern_store::limits;
use tavern_store::page::{Page, Versioned};
use tavern_store::social::{Edge, Edges, Follow, Person, Seen, User};

/// People who are asked for at once: each may be in a page of channels.
const TOGETHER: usize = 32;

pub(super) fn put_user(sheet: &mut Sheet, user: &User) {
    sheet.text("U");
    sheet.text(&user.user);
    match user.last_seen {
        Some(seen) => sheet.number(seen.0),
        None => sheet.text(""),
    }
    sheet.word(&rest(user.visibility));
}

pub(super) fn see(sheet: &mut Sheet, seen: &Seen) {
    sheet.text("S");
    sheet.text(&seen.user);
    sheet.number(seen.at.0);
    sheet.word(&rest(Visibility::Everyone));
}

/// Behind the version and when he was seen.
fn rest(visibility: Visibility) -> Vec<u8> {
    Json::new().text("visibility", visibility.as_str()).end()
}

pub(super) fn written(follow: &Follow) -> (Vec<u8>, Terms) {
    (Json::new().number("since", follow.since.0).end(), Terms::default())
}

pub(super) async fn people(
    pages: &Pages<'_>,
    users: &[Arc<str>],
    viewer: Option<&str>,
) -> Result<Vec<Person>, Trouble> {
    let users = &users[..users.len().min(limits::PAGE_ROWS as usize)];
    let mut people = Vec::with_capacity(users.len());
    for few in users.chunks(TOGETHER) {
        let asked = few.iter().map(|user| person(pages, user, viewer));
        people.extend(join_all(asked).await.into_iter().collect::<Result<Vec<_>, _>>()?);
    }
    Ok(people)
}

async fn person(pages: &Pages<'_>, user: &Arc<str>, viewer: Option<&str>) -> Result<Person, Trouble> {
    let tables = [Table::Users, Table::Follows, Table::Places, Table::Presences];
    let mut words = Sheet::default();
    words.text(user);
    words.text(viewer.unwrap_or(""));
    words.number(limits::PAGE_ROWS.into());
    let parts = pages.way.ask(&PERSON.on(pages.keys, &tables, &words)).await?.list()?;
    read_person(user, &parts)
}

fn read_person(user: &Arc<str>, parts: &[Reply]) -> Result<Person, Trouble> {
    let [known, mutual, places @ ..] = parts else { return Err(Trouble::Strange("a person is cut off")) };
    let known = match known.text()? {
        row if row.is_empty() => None,
        row => Some(read_user(user, &Stored::parse(row)?)?),
    };
    let mut presences = Vec::new();
    for pair in places.chunks(2) {
        let [field, row] = pair else { return Err(Trouble::Strange("a person is cut off")) };
        presences.push(presence::named(field.text()?, &mut Stored::parse(row.text()?)?)?);
    }
    Ok(Person { user: user.clone(), known, presences, mutual: mutual.text()? == "1" })
}

pub(super) fn read_user(user: &Arc<str>, row: &Stored) -> Result<Versioned<User>, Trouble> {
    let visibility = Visibility::parse(row.str("visibility")?).ok_or(Trouble::Strange("no visibility"))?;
    let user = User { user: user.clone(), last_seen: row.time_or_none("last_seen")?, visibility };
    Ok(Versioned { version: row.version()?, row: user })
}

pub(super) async fn following(
    pages: &Pages<'_>,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Edges, Trouble> {
    edges(pages, Table::Following, user, after, limit, "same").await
}

pub(super) async fn followers(
    pages: &Pages<'_>,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Edges, Trouble> {
    edges(pages, Table::Followers, user, after, limit, "swap").await
}

async fn edges(
    pages: &Pages<'_>,
    list: Table,
    user: &str,
    after: Option<&str>,
    limit: u32,
    how: &str,
) -> Result<Edges, Trouble> {
    let after = after.map(|name| [name]);
    let span = Span::under(&[user], after.as_ref().map(|after| &after[..]));
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let mut words = Sheet::default();
    words.word(&span.from);
    words.word(&span.to);
    words.number(u64::from(limit) + 1);
    words.text(how);
    let request = EDGES.on(pages.keys, &[list, Table::Follows], &words);
    let parts = pages.way.ask(&request).await?.list()?;
    Page::fill(limit, |_| 64, parts.chunks(3).map(read_edge))
}

fn read_edge(parts: &[Reply]) -> Result<Edge, Trouble> {
    let [field, row, back] = parts else { return Err(Trouble::Strange("a follow is cut off")) };
    let [follower, followee] = names::<2>(field.text()?)?;
    let found = read_follow(follower, followee, &Stored::parse(row.text()?)?)?;
    Ok(Edge { follow: found.row, version: found.version, mutual: back.text()? == "1" })
}

pub(super) fn read_follow(
    follower: &str,
    followee: &str,
    row: &Stored,
) -> Result<Versioned<Follow>, Trouble> {
    let follow = Follow { follower: follower.into(), followee: followee.into(), since: row.time("since")? };
    Ok(Versioned { version: row.version()?, row: follow })
}
