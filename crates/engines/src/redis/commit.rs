//! A commit as the arguments of the commit script. Must hold: the steps of a commit are encoded in the order of the
//! common algorithm (`tavern_store::commit::apply`).

use super::encoder::Encoder;
use super::schema::RedisTable;
use super::{deadline, document, history, hold, inbox, key, lease, log, presence, session, social};
use tavern_store::{CloseProof, Commit, NodeChange, PresenceKey, PresenceRow, Row, RowKey, Writer, planted};

pub(super) fn encode(to: &mut Encoder, commit: &Commit) {
    let mut steps = Encoder::default();
    match &commit.writer {
        Some(writer) if !planted("redis-fence") => steps.writer(writer),
        _ => steps.text(""),
    }
    match presence_only(commit) {
        Some((presence, expected, by)) => encode_presence(&mut steps, presence, expected, by),
        None => encode_steps(&mut steps, commit),
    }
    to.number(steps.count as u64 + 1);
    to.append(&steps);
}

/// Presences that the commit puts or deletes, in the order in which the script reports their holds.
pub(super) fn changed_presences(commit: &Commit) -> impl Iterator<Item = PresenceKey> {
    let keys = commit.puts.iter().map(Row::key).chain(commit.deletes.iter().cloned());
    keys.filter_map(|key| match key {
        RowKey::Presence(key) => Some(key),
        _ => None,
    })
}

/// A commit that only puts one presence that it expects, and raises its channel: most commits are of this kind.
fn presence_only(commit: &Commit) -> Option<(&PresenceRow, u64, u32)> {
    let Commit { expects, puts, raises, .. } = commit;
    let ([expect], [Row::Presence(presence)], [raise]) = (&expects[..], &puts[..], &raises[..]) else {
        return None;
    };
    let RowKey::Presence(key) = &expect.key else { return None };
    let is_alone = commit.node.is_none()
        && commit.deletes.is_empty()
        && (commit.seen.is_empty() && commit.deadlines.is_empty())
        && (commit.takes.is_empty() && commit.appends.is_empty() && commit.trim.is_none())
        && commit.restores.is_empty()
        && (commit.freed_messages.is_empty() && commit.inbox_messages.is_empty())
        && (commit.history_clears.is_empty() && commit.history.is_empty());
    let is_same = *key == presence.key && raise.channel == key.channel;
    (is_alone && is_same).then_some((presence, expect.version, raise.by))
}

/// The same as its steps, in fewer arguments.
fn encode_presence(to: &mut Encoder, presence: &PresenceRow, expected: u64, by: u32) {
    let (json, entries) = presence::encode(presence);
    to.text("J");
    to.text(&presence.key.channel);
    to.text(&presence.key.user);
    to.number(expected);
    to.argument(&json);
    to.argument(&entries.0);
    to.number(by.into());
}

fn encode_steps(to: &mut Encoder, commit: &Commit) {
    for (n, expect) in commit.expects.iter().enumerate() {
        to.text("E");
        place(to, &expect.key);
        to.number(expect.version);
        to.number(n as u64);
    }
    for (n, take) in commit.takes.iter().enumerate() {
        lease::check(to, n, take, holder_of(commit));
    }
    if let Some(change) = &commit.node {
        encode_node(to, change);
    }
    commit.deletes.iter().for_each(|key| encode_delete(to, key));
    commit.puts.iter().for_each(|row| encode_put(to, row));
    for raise in &commit.raises {
        to.text("R");
        to.text(&raise.channel);
        to.number(raise.by.into());
    }
    commit.seen.iter().for_each(|seen| social::see(to, seen));
    for presence in changed_presences(commit) {
        to.text("H");
        to.names(&[&presence.channel, &presence.user]);
    }
    commit.deadlines.iter().for_each(|deadline| deadline::put(to, deadline));
    commit.takes.iter().for_each(|take| lease::take(to, take, holder_of(commit)));
    commit.restores.iter().for_each(|entry| log::restore(to, entry));
    commit.appends.iter().for_each(|append| log::append(to, append));
    commit.trim.iter().for_each(|trim| log::trim(to, trim));
    commit.freed_messages.iter().for_each(|freed| inbox::free(to, freed));
    commit.inbox_messages.iter().for_each(|message| inbox::add(to, message));
    commit.history_clears.iter().for_each(|clear| history::clear(to, clear));
    commit.history.iter().for_each(|message| history::append(to, message));
}

fn encode_node(to: &mut Encoder, change: &NodeChange) {
    match change {
        NodeChange::Open { name, lease_ms } => {
            to.text("NO");
            to.text(name);
            to.number(*lease_ms);
        }
        NodeChange::Renew { node, lease_ms } => {
            to.text("NR");
            to.writer(node);
            to.number(*lease_ms);
        }
        NodeChange::Close { node, proof } => {
            to.text("NC");
            to.writer(node);
            to.number((*proof == CloseProof::LeaseEnded).into());
        }
        NodeChange::Stop { node } => {
            to.text("NS");
            to.writer(node);
        }
        NodeChange::Forget { node } => {
            to.text("NF");
            to.writer(node);
            to.number(node.epoch.0);
        }
    }
}

fn encode_delete(to: &mut Encoder, key: &RowKey) {
    to.text("X");
    place(to, key);
    to.text(channel_of(key));
    to.number((!matches!(key, RowKey::Deadline { .. })).into());
    lists(to, key);
}

fn encode_put(to: &mut Encoder, row: &Row) {
    let (json, entries) = match row {
        Row::User(user) => return social::put_user(to, user),
        Row::Key(key) => key::encode(key),
        Row::Session(session) => session::encode(session),
        Row::Document(document) => document::encode(document),
        Row::Presence(presence) => presence::encode(presence),
        Row::Hold(hold) => hold::encode(hold),
        Row::Follow(follow) => social::encode_follow(follow),
        Row::Lease(lease) => lease::encode(lease),
    };
    let key = row.key();
    to.text("P");
    place(to, &key);
    to.text(channel_of(&key));
    to.argument(&json);
    to.argument(&entries.0);
    lists(to, &key);
}

/// The table and the field of a row.
fn place(to: &mut Encoder, key: &RowKey) {
    match key {
        RowKey::Key(id) => to.place(RedisTable::ApiKeys, &[id]),
        RowKey::Session(client) => to.place(RedisTable::Sessions, &[&client.to_string()]),
        RowKey::Document(key) => to.place(RedisTable::Documents, &[key.kind(), key.name()]),
        RowKey::Presence(key) => to.place(RedisTable::Presences, &[&key.channel, &key.user]),
        RowKey::Hold(key) => to.place(RedisTable::Holds, &[&key.channel, &key.user]),
        RowKey::User(user) => to.place(RedisTable::Users, &[user]),
        RowKey::Follow { follower, followee } => to.place(RedisTable::Follows, &[follower, followee]),
        RowKey::Lease(name) => to.place(RedisTable::Leases, &[name]),
        RowKey::Deadline { kind, name } => to.place(RedisTable::Deadlines, &[kind, name]),
    }
}

/// The lists that a row is in because of its key alone: how many, and their members.
fn lists(to: &mut Encoder, key: &RowKey) {
    match key {
        RowKey::Key(id) => {
            to.number(1);
            to.place(RedisTable::ApiKeyIds, &[id]);
        }
        RowKey::Session(client) => {
            to.number(1);
            to.place(RedisTable::SessionIds, &[&client.to_string()]);
        }
        RowKey::Presence(key) => {
            to.number(2);
            to.place(RedisTable::Roster, &[&key.channel, &key.user]);
            to.place(RedisTable::UserChannels, &[&key.user, &key.channel]);
        }
        RowKey::Follow { follower, followee } => {
            to.number(2);
            to.place(RedisTable::Following, &[follower, followee]);
            to.place(RedisTable::Followers, &[followee, follower]);
        }
        RowKey::Document(key) => {
            to.number(1);
            to.place(RedisTable::DocumentIds, &[key.kind(), key.name()]);
        }
        RowKey::Hold(key) => {
            to.number(1);
            to.place(RedisTable::HoldIds, &[&key.channel, &key.user]);
        }
        RowKey::User(user) => {
            to.number(1);
            to.place(RedisTable::UserIds, &[user]);
        }
        RowKey::Lease(_) | RowKey::Deadline { .. } => to.number(0),
    }
}

fn channel_of(key: &RowKey) -> &str {
    match key {
        RowKey::Presence(key) => &key.channel,
        _ => "",
    }
}

fn holder_of(commit: &Commit) -> &Writer {
    commit.writer.as_ref().expect("checked: only a node takes a lease")
}
