//! Reads. Several share a connection and are in flight at once.

use super::connection::PostgresConnection;
use super::error::PostgresError;
use super::writer::{PostgresClock, totals};
use super::{deadline, document, history, hold, inbox, key, lease, log, node, roster, session, social};
use tavern_store::{Found, Read, RowKind};

pub(super) async fn read(
    connection: &PostgresConnection,
    clock: &PostgresClock,
    read: &Read,
) -> Result<Found, PostgresError> {
    Ok(match read {
        Read::Time => Found::Time(clock.time(connection).await?),
        Read::Totals => Found::Totals(totals(connection).await?),
        Read::KeyByHash(hash) => Found::Key(key::by_hash(connection, hash).await?),
        Read::Keys { after, limit } => Found::Keys(key::page(connection, after.as_deref(), *limit).await?),
        Read::Session(client) => {
            Found::Session(session::get_all(connection, [*client].into_iter()).await?.pop())
        }
        Read::Sessions { node, after, limit } => {
            Found::Sessions(session::page(connection, node.as_deref(), *after, *limit).await?)
        }
        Read::Nodes { after, limit } => Found::Nodes(node::page(connection, after.as_ref(), *limit).await?),
        Read::DueDeadlines { by, after, limit } => {
            Found::Deadlines(deadline::due(connection, *by, after.as_ref(), *limit).await?)
        }
        Read::Document(key) => Found::Document(document::get(connection, key).await?),
        Read::Presence(key) => Found::Presence(roster::get_all(connection, [key].into_iter()).await?.pop()),
        Read::Roster { channel, after, limit } => {
            Found::Roster(roster::roster(connection, channel, after.as_deref(), *limit).await?)
        }
        Read::ChannelsOf { user, after, limit } => {
            Found::Presences(roster::of_user(connection, user, after.as_deref(), *limit).await?)
        }
        Read::People { users, viewer } => {
            Found::People(social::people(connection, users, viewer.as_deref()).await?)
        }
        Read::Hold(key) => Found::Hold(hold::get(connection, key).await?),
        Read::Following { user, after, limit } => {
            Found::Edges(social::following(connection, user, after.as_deref(), *limit).await?)
        }
        Read::Followers { user, after, limit } => {
            Found::Edges(social::followers(connection, user, after.as_deref(), *limit).await?)
        }
        Read::PresencesAt { node: home, after, limit } => {
            Found::Presences(roster::at_node(connection, home, after.as_ref(), *limit).await?)
        }
        Read::StalePresences { before, limit } => {
            Found::StalePresences(roster::stale(connection, *before, *limit).await?)
        }
        Read::Rows { kind, after, limit } => {
            let after = after.as_ref();
            Found::Rows(match kind {
                RowKind::Document => document::rows(connection, after, *limit).await?,
                RowKind::Presence => roster::rows(connection, after, *limit).await?,
                RowKind::Hold => hold::rows(connection, after, *limit).await?,
                RowKind::User => social::user_rows(connection, after, *limit).await?,
                RowKind::Follow => social::follow_rows(connection, after, *limit).await?,
            })
        }
        Read::Lease(name) => Found::Lease(lease::get(connection, name).await?),
        Read::Log { topics, after, limit } => {
            Found::Log(log::page(connection, topics, *after, *limit).await?)
        }
        Read::Topics { names, after, limit } => {
            Found::Topics(log::topics(connection, names, after.as_deref(), *limit).await?)
        }
        Read::Inbox { user, after, limit } => {
            Found::Inbox(inbox::page(connection, user, *after, *limit).await?)
        }
        Read::History { channel, after, before, newest, limit } => {
            Found::History(history::page(connection, channel, *after, *before, *newest, *limit).await?)
        }
        Read::Histories { after, limit } => {
            Found::Histories(history::list(connection, after.as_ref(), *limit).await?)
        }
    })
}
