//! Reading presences: by channel, by user, by node, and the stale ones. Must hold: each page is of one moment; the version
//! of an empty channel is at least any that it had, and below any that it will have.

use super::encoder::padded;
use super::error::RedisError;
use super::pages::{Pages, Range};
use super::schema::RedisTable;
use super::value::{StoredRow, names, number};
use super::{node, presence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::presence::NodeEpoch;
use tavern_domain::{Epoch, Time};
use tavern_store::{Page, PresenceKey, PresencePage, PresenceRow, StalePresence, Versioned, Writer, limits};

type PresencesPage = Page<Versioned<PresenceRow>>;

fn bytes(row: &Versioned<PresenceRow>) -> usize {
    row.row.bytes()
}

pub(super) async fn roster(
    pages: &Pages<'_>,
    channel: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<PresencePage, RedisError> {
    let tables = [RedisTable::Clock, RedisTable::Channels, RedisTable::Roster, RedisTable::Presences];
    let (row, floor, found) = pages.beneath(tables, channel, after, limit).await?;
    let (version, users) = match row.is_empty() {
        true => (floor, 0),
        false => {
            let row = StoredRow::parse(&row)?;
            (row.version()?, row.number("users")?)
        }
    };
    let page = found.page(limit, bytes, presence::named)?;
    Ok(PresencePage { version, users, page })
}

pub(super) async fn of_user(
    pages: &Pages<'_>,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<PresencesPage, RedisError> {
    let after = after.map(|channel| [channel]);
    let range = Range::under(&[user], after.as_ref().map(|after| &after[..]));
    let found = pages.pick(RedisTable::UserChannels, &range, RedisTable::Presences, "swap", limit).await?;
    found.page(limit, bytes, |member, row| {
        let [user, channel] = names::<2>(member)?;
        presence::read(PresenceKey::new(channel, user), row)
    })
}

/// Presences with a client of one epoch of a node, by channel and user.
pub(super) async fn at_node(
    pages: &Pages<'_>,
    home: &Writer,
    after: Option<&PresenceKey>,
    limit: u32,
) -> Result<PresencesPage, RedisError> {
    let after = after.map(|key| [&*key.channel, &*key.user]);
    let range = Range::under(&[&home.node, &padded(home.epoch.0)], after.as_ref().map(|after| &after[..]));
    let found = pages.range(RedisTable::NodePresences, range, Some(RedisTable::Presences), limit).await?;
    found.page(limit, bytes, presence::named)
}

/// Scans the presences of all unknown epochs: done rarely. Nodes are read again at the end, because a node is stored
/// before its first presence.
pub(super) async fn stale(
    pages: &Pages<'_>,
    before: Time,
    limit: u32,
) -> Result<Page<StalePresence>, RedisError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let nodes = known(pages).await?;
    let mut search = Search { limit: limit as usize, before, found: BTreeMap::new() };
    for home in stored_nodes(pages).await? {
        if home.node.is_empty() || nodes.contains(&home) {
            continue;
        }
        let mut after = None;
        loop {
            let page = at_node(pages, &home, after.as_ref(), limits::PAGE_ROWS).await?;
            after = page.rows.last().map(|row| row.row.key.clone());
            page.rows.into_iter().for_each(|row| search.add(row.row, &nodes));
            if !page.more {
                break;
            }
        }
    }
    overdue(pages, &mut search, &nodes).await?;
    let nodes = known(pages).await?;
    let rows = search.found.into_values().filter_map(|row| {
        let nodes = row.stale_nodes(before, |home| is_known(&nodes, home))?;
        Some(Ok::<_, RedisError>(StalePresence { key: row.key, nodes }))
    });
    Page::fill(limit, |_| 64, rows)
}

async fn known(pages: &Pages<'_>) -> Result<BTreeSet<Writer>, RedisError> {
    Ok(node::all(pages).await?.into_iter().map(|node| node.writer).collect())
}

fn is_known(nodes: &BTreeSet<Writer>, home: &NodeEpoch) -> bool {
    nodes.contains(&Writer { node: home.node.clone(), epoch: home.epoch })
}

/// The first stale presences in the order of user and channel, one more than requested.
struct Search {
    limit: usize,
    before: Time,
    found: BTreeMap<(Arc<str>, Arc<str>), PresenceRow>,
}

impl Search {
    fn add(&mut self, presence: PresenceRow, nodes: &BTreeSet<Writer>) {
        if presence.stale_nodes(self.before, |home| is_known(nodes, home)).is_none() {
            return;
        }
        self.found.insert((presence.key.user.clone(), presence.key.channel.clone()), presence);
        if self.found.len() > self.limit + 1 {
            self.found.pop_last();
        }
    }
}

/// Presences whose last deadline is over.
async fn overdue(pages: &Pages<'_>, search: &mut Search, nodes: &BTreeSet<Writer>) -> Result<(), RedisError> {
    let mut after: Option<[String; 3]> = None;
    loop {
        let range = Range::by(search.before, after.take());
        let found = pages
            .pick(RedisTable::GracePeriods, &range, RedisTable::GracePeriods, "", limits::PAGE_ROWS)
            .await?;
        let page = found.members(limits::PAGE_ROWS, |member| {
            let [until, user, channel] = names::<3>(member)?;
            Ok([until, user, channel].map(str::to_owned))
        })?;
        after = page.rows.last().cloned();
        for [_, user, channel] in page.rows {
            if let Some(row) = presence::get(pages, &PresenceKey::new(&channel, &user)).await? {
                search.add(row.row, nodes);
            }
        }
        if !page.more {
            return Ok(());
        }
    }
}

/// Every epoch of a node that has a presence, found by skipping through the list.
async fn stored_nodes(pages: &Pages<'_>) -> Result<Vec<Writer>, RedisError> {
    let mut found = Vec::new();
    let mut from = b"-".to_vec();
    loop {
        let range = Range { from, to: b"+".to_vec(), front: 0 };
        let page = pages
            .pick(RedisTable::NodePresences, &range, RedisTable::NodePresences, "", 1)
            .await?
            .members(1, |member| {
                let [node, epoch, _, _] = names::<4>(member)?;
                Ok((node.to_owned(), epoch.to_owned()))
            })?;
        let Some((node, epoch)) = page.rows.first() else { return Ok(found) };
        found.push(Writer::new(node, Epoch(number(epoch.as_bytes())?)));
        from = [b"(", node.as_bytes(), b"\0", epoch.as_bytes(), b"\0\xff"].concat();
    }
}
