//! One presence: the rows `presences` by channel and user, the lists `roster`, `places`, `homes` and `graces`. Lists of
//! presences are read in `roster`.

use super::encoder::{IndexEntries, padded};
use super::error::RedisError;
use super::pages::Pages;
use super::schema::Table;
use super::value::{Json, StoredRow, names};
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Attendee, Departed, Departure, Home, Lost, State, Visibility};
use tavern_domain::{ClientId, Epoch};
use tavern_store::{Presence, PresenceKey, Versioned};

pub(super) fn encode(presence: &Presence) -> (Vec<u8>, IndexEntries) {
    let attendance = &presence.attendance;
    let mut json = Json::new()
        .text("visibility", presence.visibility.as_str())
        .flag("anonymous", presence.anonymous)
        .text_or_none("name", presence.name.as_deref())
        .number("since", attendance.since().0);
    if let Some(departed) = attendance.departed() {
        json = json.text("left_reason", departed.reason.as_str()).number("left_at", departed.seen.0);
    }
    let json = json.list("clients", attendance.clients().iter(), client);
    (json.end(), entries(presence))
}

fn client(json: Json, client: &Attendee) -> Json {
    let mut json = json
        .text("id", &client.client.to_string())
        .text("node", &client.home.node)
        .number("epoch", client.home.epoch.0)
        .number("since", client.since.0);
    if let Some(state) = &client.state {
        json = json.text("state", &state.text).number("meaning", state.meaning);
    }
    match client.lost {
        Some(lost) => json.number("lost_at", lost.at.0).number("lost_until", lost.until.0),
        None => json,
    }
}

/// The homes of its clients, and its last deadline when no client is connected.
fn entries(presence: &Presence) -> IndexEntries {
    let (channel, user) = (&*presence.key.channel, &*presence.key.user);
    let mut entries = IndexEntries::default();
    let mut homes: Vec<&Home> = Vec::new();
    for client in presence.attendance.living() {
        if !homes.contains(&&client.home) {
            homes.push(&client.home);
            entries =
                entries.with(Table::Homes, &[&client.home.node, &padded(client.home.epoch.0), channel, user]);
        }
    }
    match presence.attendance.next_wake() {
        Some(until) => entries.with(Table::Graces, &[&padded(until.0), user, channel]),
        None => entries,
    }
}

pub(super) async fn get(
    pages: &Pages<'_>,
    key: &PresenceKey,
) -> Result<Option<Versioned<Presence>>, RedisError> {
    let row = pages.row(Table::Presences, &[&key.channel, &key.user]).await?;
    row.map(|mut row| read(key.clone(), &mut row)).transpose()
}

/// Named by channel and user.
pub(super) fn named(field: &[u8], row: &mut StoredRow) -> Result<Versioned<Presence>, RedisError> {
    let [channel, user] = names::<2>(field)?;
    read(PresenceKey::new(channel, user), row)
}

pub(super) fn read(key: PresenceKey, row: &mut StoredRow) -> Result<Versioned<Presence>, RedisError> {
    let departed = match row.time_or_none("left_at")? {
        Some(seen) => {
            let reason = Departure::parse(row.str("left_reason")?);
            Some(Departed { reason: reason.ok_or(RedisError::Unexpected("unknown reason"))?, seen })
        }
        None => None,
    };
    let mut clients: Vec<Attendee> = Vec::new();
    for one in row.list("clients") {
        clients.push(read_client(&one, clients.last())?);
    }
    let visibility =
        Visibility::parse(row.str("visibility")?).ok_or(RedisError::Unexpected("unknown visibility"))?;
    let presence = Presence {
        key,
        anonymous: row.flag("anonymous"),
        name: row.text_or_none("name"),
        visibility,
        attendance: Attendance::restore(clients, row.time("since")?, departed),
    };
    Ok(Versioned { version: row.version()?, row: presence })
}

/// The client before usually has the same node, and shares its name.
fn read_client(row: &StoredRow, before: Option<&Attendee>) -> Result<Attendee, RedisError> {
    let node = row.str("node")?;
    let node = match before {
        Some(before) if *before.home.node == *node => before.home.node.clone(),
        _ => Arc::from(node),
    };
    let state = match row.text_or_none("state") {
        Some(text) => Some(State { text, meaning: row.number("meaning")? }),
        None => None,
    };
    let lost = match row.time_or_none("lost_at")? {
        Some(at) => Some(Lost { at, until: row.time("lost_until")? }),
        None => None,
    };
    Ok(Attendee {
        client: ClientId::parse(row.str("id")?).ok_or(RedisError::Unexpected("not a client id"))?,
        home: Home { node, epoch: Epoch(row.number("epoch")?) },
        state,
        since: row.time("since")?,
        lost,
    })
}
