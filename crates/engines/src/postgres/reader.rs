//! Reads. Several share a connection and are under way at once.

use super::link::Link;
use super::value::Trouble;
use super::writer::Watch;
use super::{deadline, document, hold, inbox, key, lease, log, node, roster, session, social};
use tavern_store::read::{Found, Read};
use tavern_store::row::RowKind;

pub(super) async fn read(link: &Link, watch: &Watch, read: &Read) -> Result<Found, Trouble> {
    Ok(match read {
        Read::Time => Found::Time(watch.time(link).await?),
        Read::KeyByHash(hash) => Found::Key(key::by_hash(link, hash).await?),
        Read::Keys { after, limit } => Found::Keys(key::page(link, after.as_deref(), *limit).await?),
        Read::Session(client) => Found::Session(session::get_all(link, [*client].into_iter()).await?.pop()),
        Read::Sessions { node, after, limit } => {
            Found::Sessions(session::page(link, node.as_deref(), *after, *limit).await?)
        }
        Read::Nodes { after, limit } => Found::Nodes(node::page(link, after.as_ref(), *limit).await?),
        Read::DueDeadlines { by, after, limit } => {
            Found::Deadlines(deadline::due(link, *by, after.as_ref(), *limit).await?)
        }
        Read::Document(key) => Found::Document(document::get(link, key).await?),
        Read::Presence(key) => Found::Presence(roster::get_all(link, [key].into_iter()).await?.pop()),
        Read::Roster { channel, after, limit } => {
            Found::Roster(roster::roster(link, channel, after.as_deref(), *limit).await?)
        }
        Read::ChannelsOf { user, after, limit } => {
            Found::Presences(roster::of_user(link, user, after.as_deref(), *limit).await?)
        }
        Read::People { users, viewer } => {
            Found::People(social::people(link, users, viewer.as_deref()).await?)
        }
        Read::Hold(key) => Found::Hold(hold::get(link, key).await?),
        Read::Following { user, after, limit } => {
            Found::Edges(social::following(link, user, after.as_deref(), *limit).await?)
        }
        Read::Followers { user, after, limit } => {
            Found::Edges(social::followers(link, user, after.as_deref(), *limit).await?)
        }
        Read::PresencesAt { home, after, limit } => {
            Found::Presences(roster::at_home(link, home, after.as_ref(), *limit).await?)
        }
        Read::StalePresences { before, limit } => {
            Found::StalePresences(roster::strays(link, *before, *limit).await?)
        }
        Read::Rows { kind, after, limit } => {
            let after = after.as_ref();
            Found::Rows(match kind {
                RowKind::Document => document::rows(link, after, *limit).await?,
                RowKind::Presence => roster::rows(link, after, *limit).await?,
                RowKind::Hold => hold::rows(link, after, *limit).await?,
                RowKind::User => social::user_rows(link, after, *limit).await?,
                RowKind::Follow => social::follow_rows(link, after, *limit).await?,
            })
        }
        Read::Lease(name) => Found::Lease(lease::get(link, name).await?),
        Read::Log { topics, after, limit } => Found::Log(log::stretch(link, topics, *after, *limit).await?),
        Read::Topics { names, after, limit } => {
            Found::Topics(log::topics(link, names, after.as_deref(), *limit).await?)
        }
        Read::Inbox { user, after, limit } => Found::Inbox(inbox::page(link, user, *after, *limit).await?),
    })
}
