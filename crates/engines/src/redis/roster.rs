//! Presences as they are read: of a channel, of a user, of a node, and those that nobody will end. Must hold: each page is of
//! one moment; the version of an empty channel lies between all that it has had and all that it will have.

use super::reader::{Pages, Span};
use super::sheet::padded;
use super::table::Table;
use super::value::{Stored, Trouble, names, number};
use super::{node, presence};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::presence::Home;
use tavern_domain::{Epoch, Time};
use tavern_store::limits;
use tavern_store::node::Writer;
use tavern_store::page::{Page, Versioned};
use tavern_store::presence::{Presence, PresenceKey, Roster, StalePresence};

type Presences = Page<Versioned<Presence>>;

fn bytes(row: &Versioned<Presence>) -> usize {
    row.row.bytes()
}

pub(super) async fn roster(
    pages: &Pages<'_>,
    channel: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Roster, Trouble> {
    let tables = [Table::Clock, Table::Channels, Table::Roster, Table::Presences];
    let (row, floor, found) = pages.beneath(tables, channel, after, limit).await?;
    let (version, users) = match row.is_empty() {
        true => (floor, 0),
        false => {
            let row = Stored::parse(&row)?;
            (row.version()?, row.number("users")?)
        }
    };
    let page = found.page(limit, bytes, presence::named)?;
    Ok(Roster { version, users, page })
}

pub(super) async fn of_user(
    pages: &Pages<'_>,
    user: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<Presences, Trouble> {
    let after = after.map(|channel| [channel]);
    let span = Span::under(&[user], after.as_ref().map(|after| &after[..]));
    let found = pages.pick(Table::Places, &span, Table::Presences, "swap", limit).await?;
    found.page(limit, bytes, |member, row| {
        let [user, channel] = names::<2>(member)?;
        presence::read(PresenceKey::new(channel, user), row)
    })
}

/// Presences for which one life of a node vouches, by channel and user.
pub(super) async fn at_home(
    pages: &Pages<'_>,
    home: &Writer,
    after: Option<&PresenceKey>,
    limit: u32,
) -> Result<Presences, Trouble> {
    let after = after.map(|key| [&*key.channel, &*key.user]);
    let span = Span::under(&[&home.node, &padded(home.epoch.0)], after.as_ref().map(|after| &after[..]));
    let found = pages.span(Table::Homes, span, Some(Table::Presences), limit).await?;
    found.page(limit, bytes, presence::named)
}

/// Looks at everything that a node vouches for which is not known: done seldom. Nodes are read last, because a node is known
/// before anybody is there through it.
pub(super) async fn strays(
    pages: &Pages<'_>,
    before: Time,
    limit: u32,
) -> Result<Page<StalePresence>, Trouble> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let nodes = known(pages).await?;
    let mut search = Search { limit: limit as usize, before, found: BTreeMap::new() };
    for home in homes(pages).await? {
        if home.node.is_empty() || nodes.contains(&home) {
            continue;
        }
        let mut after = None;
        loop {
            let page = at_home(pages, &home, after.as_ref(), limits::PAGE_ROWS).await?;
            after = page.rows.last().map(|row| row.row.key.clone());
            page.rows.into_iter().for_each(|row| search.add(row.row, &nodes));
            if !page.more {
                break;
            }
        }
    }
    forgotten(pages, &mut search, &nodes).await?;
    let nodes = known(pages).await?;
    let rows = search.found.into_values().filter_map(|row| {
        let homes = row.stale_homes(before, |home| is_known(&nodes, home))?;
        Some(Ok::<_, Trouble>(StalePresence { key: row.key, homes }))
    });
    Page::fill(limit, |_| 64, rows)
}

async fn known(pages: &Pages<'_>) -> Result<BTreeSet<Writer>, Trouble> {
    Ok(node::all(pages).await?.into_iter().map(|node| node.writer).collect())
}

fn is_known(nodes: &BTreeSet<Writer>, home: &Home) -> bool {
    nodes.contains(&Writer { node: home.node.clone(), epoch: home.epoch })
}

/// The first strays in the order of user and channel, one more than asked for.
struct Search {
    limit: usize,
    before: Time,
    found: BTreeMap<(Arc<str>, Arc<str>), Presence>,
}

impl Search {
    fn add(&mut self, presence: Presence, nodes: &BTreeSet<Writer>) {
        if presence.stale_homes(self.before, |home| is_known(nodes, home)).is_none() {
            return;
        }
        self.found.insert((presence.key.user.clone(), presence.key.channel.clone()), presence);
        if self.found.len() > self.limit + 1 {
            self.found.pop_last();
        }
    }
}

/// Those whose last deadline is over.
async fn forgotten(pages: &Pages<'_>, search: &mut Search, nodes: &BTreeSet<Writer>) -> Result<(), Trouble> {
    let mut after: Option<[String; 3]> = None;
    loop {
        let span = Span::by(search.before, after.take());
        let found = pages.pick(Table::Graces, &span, Table::Graces, "", limits::PAGE_ROWS).await?;
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

/// Every life of a node that vouches for somebody, found by leaps over the list.
async fn homes(pages: &Pages<'_>) -> Result<Vec<Writer>, Trouble> {
    let mut found = Vec::new();
    let mut from = b"-".to_vec();
    loop {
        let span = Span { from, to: b"+".to_vec(), front: 0 };
        let page = pages.pick(Table::Homes, &span, Table::Homes, "", 1).await?.members(1, |member| {
            let [node, epoch, _, _] = names::<4>(member)?;
            Ok((node.to_owned(), epoch.to_owned()))
        })?;
        let Some((node, epoch)) = page.rows.first() else { return Ok(found) };
        found.push(Writer::new(node, Epoch(number(epoch.as_bytes())?)));
        from = [b"(", node.as_bytes(), b"\0", epoch.as_bytes(), b"\0\xff"].concat();
    }
}
