//! Reads. Several are in flight at once.

use super::clock::RedisClock;
use super::error::RedisError;
use super::pages::Pages;
use super::{
    clock, deadline, document, history, hold, inbox, key, lease, log, node, presence, roster, rows, session,
    social,
};
use tavern_store::{Found, Read};

pub(super) async fn read(pages: &Pages<'_>, clock: &RedisClock, read: &Read) -> Result<Found, RedisError> {
    Ok(match read {
        Read::Time => Found::Time(clock.time(pages).await?),
        Read::Totals => Found::Totals(clock::totals(pages).await?),
        Read::KeyByHash(hash) => Found::Key(key::by_hash(pages, hash).await?),
        Read::Keys { after, limit } => Found::Keys(key::page(pages, after.as_deref(), *limit).await?),
        Read::Session(client) => Found::Session(session::get(pages, *client).await?),
        Read::Sessions { node, after, limit } => {
            Found::Sessions(session::page(pages, node.as_deref(), *after, *limit).await?)
        }
        Read::Nodes { after, limit } => Found::Nodes(node::page(pages, after.as_ref(), *limit).await?),
        Read::DueDeadlines { by, after, limit } => {
            Found::Deadlines(deadline::due(pages, *by, after.as_ref(), *limit).await?)
        }
        Read::Document(key) => Found::Document(document::get(pages, key).await?),
        Read::Presence(key) => Found::Presence(presence::get(pages, key).await?),
        Read::Roster { channel, after, limit } => {
            Found::Roster(roster::roster(pages, channel, after.as_deref(), *limit).await?)
        }
        Read::ChannelsOf { user, after, limit } => {
            Found::Presences(roster::of_user(pages, user, after.as_deref(), *limit).await?)
        }
        Read::People { users, viewer } => {
            Found::People(social::people(pages, users, viewer.as_deref()).await?)
        }
        Read::Hold(key) => Found::Hold(hold::get(pages, key).await?),
        Read::Following { user, after, limit } => {
            Found::Edges(social::following(pages, user, after.as_deref(), *limit).await?)
        }
        Read::Followers { user, after, limit } => {
            Found::Edges(social::followers(pages, user, after.as_deref(), *limit).await?)
        }
        Read::PresencesAt { node: home, after, limit } => {
            Found::Presences(roster::at_node(pages, home, after.as_ref(), *limit).await?)
        }
        Read::StalePresences { before, limit } => {
            Found::StalePresences(roster::stale(pages, *before, *limit).await?)
        }
        Read::Rows { kind, after, limit } => {
            Found::Rows(rows::page(pages, *kind, after.as_ref(), *limit).await?)
        }
        Read::Lease(name) => Found::Lease(lease::get(pages, name).await?),
        Read::Log { topics, after, limit } => Found::Log(log::page(pages, topics, *after, *limit).await?),
        Read::Topics { names, after, limit } => {
            Found::Topics(log::topics(pages, names, after.as_deref(), *limit).await?)
        }
        Read::Inbox { user, after, limit } => Found::Inbox(inbox::page(pages, user, *after, *limit).await?),
        Read::History { channel, after, before, newest, limit } => {
            Found::History(history::page(pages, channel, *after, *before, *newest, *limit).await?)
        }
        Read::Histories { after, limit } => {
            Found::Histories(history::list(pages, after.as_ref(), *limit).await?)
        }
    })
}
