//! Lists: channels with their counts, users by name. From the store, so the same on every node, except for subscriptions,
//! which are counted on this node.
//! Must hold: a page costs at most two reads for each channel in it; users' own channels are listed only on request.

use super::api::HttpApi;
use super::body::{HttpResponse, typed};
use super::request::Query;
use super::rest::page_of;
use http::request::Parts;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Channel;
use tavern_domain::limits::{CHANNEL_BYTES, USER_BYTES};
use tavern_hub::Namespace;
use tavern_hub::user::{is_own_channel, own_channel};
use tavern_store::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_store::{Found, PresenceKey, PresenceRow, Read, Row, RowKey, RowKind, UserRow};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{ChannelCount, ChannelList, UserList, UserListEntry};

/// Sorts after a name and before any longer name that begins with it: names hold no control characters.
const END: char = '\u{1}';
/// Sorts after the own channels of all users.
const AFTER_USERS: &str = "user$";

#[derive(Default)]
struct ChannelCounts {
    subscriptions: u32,
    present: u64,
}

/// Channels with a subscription on this node; with `present=true` also those with users in them, and how many.
pub async fn channels(api: &HttpApi, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let (after, limit) = page_of(parts)?;
    let query = Query::of(parts)?;
    let (prefix, present) = (prefix(&query, CHANNEL_BYTES)?, query.flag("present")?);
    let mut found: BTreeMap<String, ChannelCounts> = BTreeMap::new();
    for (name, total) in api.node.registry.listened(Namespace::Channel) {
        let Ok(name) = std::str::from_utf8(&name) else { continue };
        let wanted = name.starts_with(prefix) && (after.is_empty() || name > after.as_str());
        if wanted && Channel::parse(name).is_ok() {
            found.entry(name.to_owned()).or_default().subscriptions = total;
        }
    }
    if present {
        // Also channels without a subscription here. Those beyond the page are counted and not shown.
        for (name, count) in channels_with_users(api, prefix, &after, limit + 1).await? {
            found.entry(name).or_default().present = count;
        }
    }
    let more = found.len() > limit;
    let rows: Vec<(String, ChannelCounts)> = found.into_iter().take(limit).collect();
    let next = rows.last().filter(|_| more).map(|(name, _)| name.clone());
    let channels = rows.into_iter().map(|(channel, counted)| ChannelCount {
        channel,
        present: present.then_some(counted.present),
        subscriptions: counted.subscriptions,
    });
    Ok(typed(&ChannelList { channels: channels.collect(), next }))
}

/// The first channels with users in them, by name.
async fn channels_with_users(
    api: &HttpApi,
    prefix: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<(String, u64)>, Refusal> {
    let mut found: Vec<(String, u64)> = Vec::new();
    let mut from = match after > prefix {
        true => PresenceKey::new(&format!("{after}{END}"), ""),
        false => PresenceKey::new(prefix, ""),
    };
    let users_too = is_own_channel(prefix);
    loop {
        let (presences, more) = presences(api, from.clone()).await?;
        for presence in &presences {
            let name = &*presence.key.channel;
            if !name.starts_with(prefix) {
                return Ok(found);
            }
            if !users_too && is_own_channel(name) {
                continue;
            }
            let full = found.len() == limit;
            match found.last_mut() {
                Some((last, count)) if last == name => *count += 1,
                _ if full => return Ok(found),
                _ => found.push((name.to_owned(), 1)),
            }
        }
        let Some(last) = presences.last().filter(|_| more) else { return Ok(found) };
        from = if !users_too && is_own_channel(&last.key.channel) {
            PresenceKey::new(AFTER_USERS, "")
        } else {
            // The page may have cut this channel.
            let channel = last.key.channel.clone();
            if let Some((_, count)) = found.last_mut() {
                *count = count_users(api, &channel).await?;
            }
            PresenceKey::new(&format!("{channel}{END}"), "")
        };
    }
}

async fn presences(api: &HttpApi, from: PresenceKey) -> Result<(Vec<PresenceRow>, bool), Refusal> {
    let (rows, more) = rows(api, RowKind::Presence, RowKey::Presence(from), PAGE_ROWS).await?;
    let presence = |row| if let Row::Presence(presence) = row { Some(presence) } else { None };
    Ok((rows.into_iter().filter_map(presence).collect(), more))
}

async fn rows(api: &HttpApi, kind: RowKind, after: RowKey, limit: u32) -> Result<(Vec<Row>, bool), Refusal> {
    match api.store.read(Read::Rows { kind, after: Some(after), limit }).await {
        Ok(Found::Rows(page)) => Ok((page.rows.into_iter().map(|found| found.row).collect(), page.more)),
        _ => Err(unavailable()),
    }
}

async fn count_users(api: &HttpApi, channel: &Arc<str>) -> Result<u64, Refusal> {
    match api.store.read(Read::Roster { channel: channel.clone(), after: None, limit: 1 }).await {
        Ok(Found::Roster(roster)) => Ok(roster.users),
        _ => Err(unavailable()),
    }
}

fn unavailable() -> Refusal {
    Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS)
}

/// The prefix of the names to list.
fn prefix(query: &Query, max: usize) -> Result<&str, Refusal> {
    let prefix = query.one("prefix")?.unwrap_or_default();
    if prefix.len() > max {
        let message = format!("the parameter `prefix` has at most {max} bytes");
        return Err(Refusal::new(Code::BadRequest, message));
    }
    Ok(prefix)
}

#[derive(Default)]
struct UserEntry {
    online: bool,
    leaving: bool,
    name: Option<Arc<str>>,
    last_seen: Option<u64>,
}

/// Users by name: those online, and those who were; with `online=true` without the latter.
pub async fn users(api: &HttpApi, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let (after, limit) = page_of(parts)?;
    let query = Query::of(parts)?;
    let prefix = prefix(&query, USER_BYTES)?;
    let from = if after.as_str() > prefix { format!("{after}{END}") } else { prefix.to_owned() };
    let wanted = limit as u32 + 1;
    let mut found: BTreeMap<Arc<str>, UserEntry> = BTreeMap::new();
    let start = PresenceKey::new(&own_channel(&from), "");
    let (online, _) = rows(api, RowKind::Presence, RowKey::Presence(start), wanted).await?;
    for row in online {
        let Row::Presence(presence) = row else { continue };
        if !is_own_channel(&presence.key.channel) || !presence.key.user.starts_with(prefix) {
            break;
        }
        let leaving = presence.attendance.is_leaving();
        let known = UserEntry { online: true, leaving, name: presence.name, last_seen: None };
        found.insert(presence.key.user, known);
    }
    if !query.flag("online")? {
        add_known(api, prefix, &from, wanted, &mut found).await?;
    }
    Ok(typed(&user_page(found, limit)))
}

/// Adds the users who were online before.
async fn add_known(
    api: &HttpApi,
    prefix: &str,
    from: &str,
    wanted: u32,
    found: &mut BTreeMap<Arc<str>, UserEntry>,
) -> Result<(), Refusal> {
    // Pages begin after a key: the user whose name is exactly the prefix is read separately.
    let exact = api.store.read(Read::People { users: vec![prefix.into()], viewer: None });
    let exact = match prefix.is_empty() || from != prefix {
        true => None,
        false => match exact.await {
            Ok(Found::People(people)) => {
                people.into_iter().next().and_then(|person| person.known).map(|row| row.row)
            }
            _ => return Err(unavailable()),
        },
    };
    let (known, _) = rows(api, RowKind::User, RowKey::User(from.into()), wanted).await?;
    let known = known.into_iter().filter_map(|row| if let Row::User(user) = row { Some(user) } else { None });
    for UserRow { user, last_seen, .. } in exact.into_iter().chain(known) {
        if !user.starts_with(prefix) {
            break;
        }
        let entry = found.entry(user).or_default();
        entry.last_seen = last_seen.filter(|_| !entry.online).map(tavern_domain::Time::ms);
    }
    Ok(())
}

fn user_page(found: BTreeMap<Arc<str>, UserEntry>, limit: usize) -> UserList {
    let more = found.len() > limit;
    let rows: Vec<(Arc<str>, UserEntry)> = found.into_iter().take(limit).collect();
    let next = rows.last().filter(|_| more).map(|(user, _)| user.clone());
    let users = rows.into_iter().map(|(user, known)| UserListEntry {
        last_seen: known.last_seen,
        leaving: known.leaving,
        name: known.name,
        online: known.online,
        user,
    });
    UserList { next, users: users.collect() }
}
