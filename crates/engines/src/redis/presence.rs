//! One presence: the rows `presences` by channel and user, the lists `roster`, `user-channels`,
//! `node-presences` and `grace-periods`. Lists of presences are read in `roster`.

use super::encoder::{IndexEntries, padded};
use super::error::RedisError;
use super::pages::Pages;
use super::schema::RedisTable;
use super::value::{Json, StoredRow, names};
use std::sync::Arc;
use tavern_domain::presence::{
    Attendance, ChannelClient, ClientState, LastDeparture, LostClient, NodeEpoch, OfflineReason, Visibility,
};
use tavern_domain::{ClientId, Epoch};
use tavern_store::{PresenceKey, PresenceRow, Versioned};

pub(super) fn encode(presence: &PresenceRow) -> (Vec<u8>, IndexEntries) {
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

fn client(json: Json, client: &ChannelClient) -> Json {
    let mut json = json
        .text("id", &client.client.to_string())
        .text("node", &client.node.node)
        .number("epoch", client.node.epoch.0)
        .number("since", client.since.0);
    if let Some(state) = &client.state {
        json = json.text("state", &state.text).number("state_digest", state.digest);
    }
    match client.lost {
        Some(lost) => json.number("lost_at", lost.at.0).number("lost_until", lost.until.0),
        None => json,
    }
}

/// The nodes of its clients, and its last deadline when no client is connected.
fn entries(presence: &PresenceRow) -> IndexEntries {
    let (channel, user) = (&*presence.key.channel, &*presence.key.user);
    let mut entries = IndexEntries::default();
    let mut nodes: Vec<&NodeEpoch> = Vec::new();
    for client in presence.attendance.connected() {
        if !nodes.contains(&&client.node) {
            nodes.push(&client.node);
            entries = entries.with(
                RedisTable::NodePresences,
                &[&client.node.node, &padded(client.node.epoch.0), channel, user],
            );
        }
    }
    match presence.attendance.offline_at() {
        Some(until) => entries.with(RedisTable::GracePeriods, &[&padded(until.0), user, channel]),
        None => entries,
    }
}

pub(super) async fn get(
    pages: &Pages<'_>,
    key: &PresenceKey,
) -> Result<Option<Versioned<PresenceRow>>, RedisError> {
    let row = pages.row(RedisTable::Presences, &[&key.channel, &key.user]).await?;
    row.map(|mut row| read(key.clone(), &mut row)).transpose()
}

/// Named by channel and user.
pub(super) fn named(field: &[u8], row: &mut StoredRow) -> Result<Versioned<PresenceRow>, RedisError> {
    let [channel, user] = names::<2>(field)?;
    read(PresenceKey::new(channel, user), row)
}

pub(super) fn read(key: PresenceKey, row: &mut StoredRow) -> Result<Versioned<PresenceRow>, RedisError> {
    let departed = match row.time_or_none("left_at")? {
        Some(seen) => {
            let reason = OfflineReason::parse(row.str("left_reason")?);
            Some(LastDeparture { reason: reason.ok_or(RedisError::Unexpected("unknown reason"))?, seen })
        }
        None => None,
    };
    let mut clients: Vec<ChannelClient> = Vec::new();
    for one in row.list("clients") {
        clients.push(read_client(&one, clients.last())?);
    }
    let visibility =
        Visibility::parse(row.str("visibility")?).ok_or(RedisError::Unexpected("unknown visibility"))?;
    let presence = PresenceRow {
        key,
        anonymous: row.flag("anonymous"),
        name: row.text_or_none("name"),
        visibility,
        attendance: Attendance::restore(clients, row.time("since")?, departed),
    };
    Ok(Versioned { version: row.version()?, row: presence })
}

/// The previous client usually has the same node, and shares its name.
fn read_client(row: &StoredRow, before: Option<&ChannelClient>) -> Result<ChannelClient, RedisError> {
    let node = row.str("node")?;
    let node = match before {
        Some(before) if *before.node.node == *node => before.node.node.clone(),
        _ => Arc::from(node),
    };
    let state = match row.text_or_none("state") {
        Some(text) => Some(ClientState { text, digest: row.number("state_digest")? }),
        None => None,
    };
    let lost = match row.time_or_none("lost_at")? {
        Some(at) => Some(LostClient { at, until: row.time("lost_until")? }),
        None => None,
    };
    Ok(ChannelClient {
        client: ClientId::parse(row.str("id")?).ok_or(RedisError::Unexpected("not a client id"))?,
        node: NodeEpoch { node, epoch: Epoch(row.number("epoch")?) },
        state,
        since: row.time("since")?,
        lost,
    })
}
