//! Presences as they are written: the rows `presences` by channel and user, the lists `roster`, `places`, `homes` and `graces`.
//! Reading many is in `roster`.

use super::reader::Pages;
use super::sheet::{Terms, padded};
use super::table::Table;
use super::value::{Json, Stored, Trouble, names};
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Attendee, Departed, Departure, Home, Lost, State, Visibility};
use tavern_domain::{ClientId, Epoch};
use tavern_store::page::Versioned;
use tavern_store::presence::{Presence, PresenceKey};

pub(super) fn written(presence: &Presence) -> (Vec<u8>, Terms) {
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
    (json.end(), terms(presence))
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

/// Who vouches for one of the clients, and when a grace ends for which nobody else stays.
fn terms(presence: &Presence) -> Terms {
    let (channel, user) = (&*presence.key.channel, &*presence.key.user);
    let mut terms = Terms::default();
    let mut homes: Vec<&Home> = Vec::new();
    for client in presence.attendance.living() {
        if !homes.contains(&&client.home) {
            homes.push(&client.home);
            terms =
                terms.with(Table::Homes, &[&client.home.node, &padded(client.home.epoch.0), channel, user]);
        }
    }
    match presence.attendance.next_wake() {
        Some(until) => terms.with(Table::Graces, &[&padded(until.0), user, channel]),
        None => terms,
    }
}

pub(super) async fn get(
    pages: &Pages<'_>,
    key: &PresenceKey,
) -> Result<Option<Versioned<Presence>>, Trouble> {
    let row = pages.row(Table::Presences, &[&key.channel, &key.user]).await?;
    row.map(|mut row| read(key.clone(), &mut row)).transpose()
}

/// Named by channel and user.
pub(super) fn named(field: &[u8], row: &mut Stored) -> Result<Versioned<Presence>, Trouble> {
    let [channel, user] = names::<2>(field)?;
    read(PresenceKey::new(channel, user), row)
}

pub(super) fn read(key: PresenceKey, row: &mut Stored) -> Result<Versioned<Presence>, Trouble> {
    let departed = match row.time_or_none("left_at")? {
        Some(seen) => {
            let reason = Departure::parse(row.str("left_reason")?);
            Some(Departed { reason: reason.ok_or(Trouble::Strange("no reason to leave"))?, seen })
        }
        None => None,
    };
    let mut clients: Vec<Attendee> = Vec::new();
    for one in row.list("clients") {
        clients.push(read_client(&one, clients.last())?);
    }
    let visibility = Visibility::parse(row.str("visibility")?).ok_or(Trouble::Strange("no visibility"))?;
    let presence = Presence {
        key,
        anonymous: row.flag("anonymous"),
        name: row.text_or_none("name"),
        visibility,
        attendance: Attendance::restore(clients, row.time("since")?, departed),
    };
    Ok(Versioned { version: row.version()?, row: presence })
}

/// The client before usually has the same node: one copy serves both.
fn read_client(row: &Stored, before: Option<&Attendee>) -> Result<Attendee, Trouble> {
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
        client: ClientId::parse(row.str("id")?).ok_or(Trouble::Strange("no client id"))?,
        home: Home { node, epoch: Epoch(row.number("epoch")?) },
        state,
        since: row.time("since")?,
        lost,
    })
}
