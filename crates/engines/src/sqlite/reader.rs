//! Reads, one at a time.

use super::value::{fault, read_clock};
use super::{deadline, document, history, hold, inbox, key, lease, log, node, roster, session, social};
use rusqlite::Connection;
use tavern_domain::Time;
use tavern_store::{Found, Page, Read, Row, RowKey, RowKind, StoreError, Versioned, limits};

/// `wall` is the clock of this machine.
pub(super) fn read(from: &Connection, wall: Time, read: &Read) -> Result<Found, StoreError> {
    find(from, wall, read).map_err(fault)
}

fn find(from: &Connection, wall: Time, read: &Read) -> Result<Found, rusqlite::Error> {
    Ok(match read {
        Read::Time => Found::Time(read_clock(from)?.time.max(wall)),
        Read::Totals => Found::Totals(read_clock(from)?.totals),
        Read::KeyByHash(hash) => Found::Key(key::by_hash(from, hash)?),
        Read::Keys { after, limit } => Found::Keys(key::page(from, after.as_deref(), *limit)?),
        Read::Session(client) => Found::Session(session::get(from, *client)?),
        Read::Sessions { node, after, limit } => {
            Found::Sessions(session::page(from, node.as_deref(), *after, *limit)?)
        }
        Read::Nodes { after, limit } => Found::Nodes(node::page(from, after.as_ref(), *limit)?),
        Read::DueDeadlines { by, after, limit } => {
            Found::Deadlines(deadline::due(from, *by, after.as_ref(), *limit)?)
        }
        Read::Document(key) => Found::Document(document::get(from, key)?),
        Read::Presence(key) => Found::Presence(roster::get(from, key)?),
        Read::Roster { channel, after, limit } => {
            Found::Roster(roster::roster(from, channel, after.as_deref(), *limit)?)
        }
        Read::ChannelsOf { user, after, limit } => {
            Found::Presences(roster::of_user(from, user, after.as_deref(), *limit)?)
        }
        Read::People { users, viewer } => {
            let users = users.iter().take(limits::PAGE_ROWS as usize);
            let people = users.map(|user| social::person(from, user, viewer.as_deref()));
            Found::People(people.collect::<Result<_, _>>()?)
        }
        Read::Hold(key) => Found::Hold(hold::get(from, key)?),
        Read::Following { user, after, limit } => {
            Found::Edges(social::following(from, user, after.as_deref(), *limit)?)
        }
        Read::Followers { user, after, limit } => {
            Found::Edges(social::followers(from, user, after.as_deref(), *limit)?)
        }
        Read::PresencesAt { node: home, after, limit } => {
            Found::Presences(roster::at_node(from, home, after.as_ref(), *limit)?)
        }
        Read::StalePresences { before, limit } => {
            Found::StalePresences(roster::stale(from, *before, *limit)?)
        }
        Read::Rows { kind, after, limit } => Found::Rows(rows(from, *kind, after.as_ref(), *limit)?),
        Read::Lease(name) => Found::Lease(lease::get(from, name)?),
        Read::Log { topics, after, limit } => Found::Log(log::page(from, topics, *after, *limit)?),
        Read::Topics { names, after, limit } => {
            Found::Topics(log::topics(from, names, after.as_deref(), *limit)?)
        }
        Read::Inbox { user, after, limit } => Found::Inbox(inbox::page(from, user, *after, *limit)?),
        Read::History { channel, after, before, newest, limit } => {
            Found::History(history::page(from, channel, *after, *before, *newest, *limit)?)
        }
        Read::Histories { after, limit } => Found::Histories(history::list(from, after.as_ref(), *limit)?),
    })
}

fn rows(
    from: &Connection,
    kind: RowKind,
    after: Option<&RowKey>,
    limit: u32,
) -> Result<Page<Versioned<Row>>, rusqlite::Error> {
    match kind {
        RowKind::Document => document::rows(from, after, limit),
        RowKind::Presence => roster::rows(from, after, limit),
        RowKind::Hold => hold::rows(from, after, limit),
        RowKind::User => social::user_rows(from, after, limit),
        RowKind::Follow => social::follow_rows(from, after, limit),
    }
}
