//! Writing presences: the tables `channel_presences`, `presences` and `user_channel_presences`.
//! Must hold: the clients of a presence change only under the lock of its row. Reading is in `roster`.

use super::connection::Statement;
use super::statements::RowStatements;
use super::value::{number, time};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::ChannelClient;
use tavern_store::{PresenceKey, PresenceRow};

pub(super) const KIND: RowStatements = RowStatements {
    lock: "INSERT INTO presences (channel_name, user_id, version, anonymous, since, visibility)
        SELECT channel_name, user_id, 0, false, 0, '' FROM unnest($1::text[], $2::text[]) AS k (channel_name, user_id)
        ON CONFLICT (channel_name, user_id) DO UPDATE SET version = 0 WHERE false",
    load: "SELECT k.at, p.version FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (channel_name, user_id, at)
        JOIN presences p ON p.channel_name = k.channel_name AND p.user_id = k.user_id WHERE p.version > 0",
    delete: "DELETE FROM presences p USING unnest($1::text[], $2::text[]) AS k (channel_name, user_id)
        WHERE p.channel_name = k.channel_name AND p.user_id = k.user_id",
};

/// A row of `channel_presences`; an empty channel has none.
#[derive(Clone, Copy, Default)]
pub(super) struct ChannelRow {
    pub version: u64,
    pub users: u64,
    pub updated: Time,
    pub changed: bool,
}

/// The channel's row numbers its changes: it is locked until the commit.
pub(super) const LOCK_CHANNELS: &str =
    "INSERT INTO channel_presences (channel_name, version, users, last_updated)
    SELECT channel_name, 0, 0, 0 FROM unnest($1::text[]) AS k (channel_name)
    ON CONFLICT (channel_name) DO UPDATE SET version = 0 WHERE false";

pub(super) fn lock_channels(channels: &BTreeSet<Arc<str>>) -> Statement<'_> {
    Statement::new(LOCK_CHANNELS).with(channels.iter().map(|name| &**name).collect::<Vec<_>>())
}

/// The number of each from 1, its version, users and time of the last change.
pub(super) fn load_channels(channels: &BTreeSet<Arc<str>>) -> Statement<'_> {
    let sql = "SELECT k.at, c.version, c.users, c.last_updated
        FROM unnest($1::text[]) WITH ORDINALITY AS k (channel_name, at)
        JOIN channel_presences c ON c.channel_name = k.channel_name WHERE c.users > 0";
    Statement::new(sql).with(channels.iter().map(|name| &**name).collect::<Vec<_>>())
}

pub(super) fn put_channels<'a>(channels: &[(&'a Arc<str>, &'a ChannelRow)]) -> Statement<'a> {
    let sql =
        "UPDATE channel_presences c SET version = k.version, users = k.users, last_updated = k.last_updated
        FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[])
            AS k (channel_name, version, users, last_updated) WHERE c.channel_name = k.channel_name";
    Statement::new(sql)
        .with(channels.iter().map(|(name, _)| &***name).collect::<Vec<_>>())
        .with(channels.iter().map(|(_, channel)| number(channel.version)).collect::<Vec<_>>())
        .with(channels.iter().map(|(_, channel)| number(channel.users)).collect::<Vec<_>>())
        .with(channels.iter().map(|(_, channel)| time(channel.updated)).collect::<Vec<_>>())
}

pub(super) fn forget_channels<'a>(channels: &[&'a Arc<str>]) -> Statement<'a> {
    let sql = "DELETE FROM channel_presences WHERE channel_name = ANY ($1)";
    Statement::new(sql).with(channels.iter().map(|name| &***name).collect::<Vec<_>>())
}

/// Deletes the clients of changed presences; `put_clients` inserts those that remain.
pub(super) fn forget_clients<'a>(keys: &[&'a PresenceKey]) -> Statement<'a> {
    let sql = "DELETE FROM user_channel_presences c USING unnest($1::text[], $2::text[]) AS k (channel_name, user_id)
        WHERE c.user_id = k.user_id AND c.channel_name = k.channel_name";
    Statement::new(sql)
        .with(keys.iter().map(|key| &*key.channel).collect::<Vec<_>>())
        .with(keys.iter().map(|key| &*key.user).collect::<Vec<_>>())
}

pub(super) fn put<'a>(rows: &[(&'a PresenceRow, u64)]) -> Statement<'a> {
    let sql =
        "UPDATE presences p SET version = k.version, anonymous = k.anonymous, name = k.name, since = k.since,
            left_reason = k.left_reason, left_at = k.left_at, visibility = k.visibility
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bool[], $5::text[], $6::bigint[], $7::text[],
            $8::bigint[], $9::text[])
            AS k (channel_name, user_id, version, anonymous, name, since, left_reason, left_at, visibility)
        WHERE p.channel_name = k.channel_name AND p.user_id = k.user_id";
    let departed = |row: &PresenceRow| row.attendance.departed();
    Statement::new(sql)
        .with(rows.iter().map(|(row, _)| &*row.key.channel).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| &*row.key.user).collect::<Vec<_>>())
        .with(rows.iter().map(|(_, version)| number(*version)).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.anonymous).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.name.as_deref()).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| time(row.attendance.since())).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| departed(row).map(|gone| gone.reason.as_str())).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| departed(row).map(|gone| time(gone.seen))).collect::<Vec<_>>())
        .with(rows.iter().map(|(row, _)| row.visibility.as_str()).collect::<Vec<_>>())
}

pub(super) fn put_clients<'a>(rows: &[(&'a PresenceRow, u64)]) -> Statement<'a> {
    let sql = "INSERT INTO user_channel_presences
            (user_id, channel_name, connection_id, node, epoch, state, state_digest, since, lost_at, lost_until)
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[],
            $8::bigint[], $9::bigint[], $10::bigint[])";
    let clients: Vec<(&'a PresenceKey, &'a ChannelClient)> = rows
        .iter()
        .flat_map(|(row, _)| row.attendance.clients().iter().map(|client| (&row.key, client)))
        .collect();
    let state = |client: &'a ChannelClient| client.state.as_ref();
    Statement::new(sql)
        .with(clients.iter().map(|(key, _)| &*key.user).collect::<Vec<_>>())
        .with(clients.iter().map(|(key, _)| &*key.channel).collect::<Vec<_>>())
        .with(clients.iter().map(|(_, client)| client.client.to_string()).collect::<Vec<_>>())
        .with(clients.iter().map(|(_, client)| &*client.node.node).collect::<Vec<_>>())
        .with(clients.iter().map(|(_, client)| number(client.node.epoch.0)).collect::<Vec<_>>())
        .with(clients.iter().map(|(_, client)| state(client).map(|state| &*state.text)).collect::<Vec<_>>())
        .with(
            clients
                .iter()
                .map(|(_, client)| state(client).map(|state| state.digest.cast_signed()))
                .collect::<Vec<_>>(),
        )
        .with(clients.iter().map(|(_, client)| time(client.since)).collect::<Vec<_>>())
        .with(clients.iter().map(|(_, client)| client.lost.map(|lost| time(lost.at))).collect::<Vec<_>>())
        .with(clients.iter().map(|(_, client)| client.lost.map(|lost| time(lost.until))).collect::<Vec<_>>())
}
