//! Looks who else lives, and takes up the sessions that nodes which are gone left in the store: before this node is ready,
//! at each heartbeat, and at once when a node says that it left some. Any node may do it: the store arbitrates.
//! Must hold: what a living node laid down is on its way to somebody and left alone; a session is taken out of the store
//! before it is used here.

use crate::desk::DeskError;
use crate::services::Services;
use crate::shard::mail::Mail;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_hub::migration::{Packed, unpacked};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Commit, Expect, Found, Node, Read, RowKey, StoreError, StoredSession, Versioned, Writer};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

pub async fn keep(services: Arc<Services>) {
    let heartbeat = Duration::from_millis(services.config.nodes.heartbeat_ms);
    loop {
        // Either is a reason to look.
        let _ = tokio::time::timeout(heartbeat, services.left.notified()).await;
        if services.is_stopping() {
            // Not in the middle of a look: what was taken out of the store must reach its shard.
            return;
        }
        if let Err(error) = look(&services, false).await {
            tracing::debug!(%error, "the look at what other nodes left is put off");
        }
    }
}

/// One look: who lives, and what is left of the others. At the start this node has published nothing yet.
pub async fn look(services: &Services, at_start: bool) -> Result<(), DeskError> {
    let (now, nodes) = read_nodes(services).await?;
    introduce(services, now, &nodes);
    let open: BTreeSet<Writer> =
        nodes.into_iter().filter(|node| node.closed_at.is_none()).map(|node| node.writer).collect();
    let mut after = None;
    loop {
        let read = Read::Sessions { node: None, after, limit: PAGE_ROWS };
        let Found::Sessions(page) = services.desk.read(read).await? else { return Ok(()) };
        after = page.rows.last().map(|found| found.row.client);
        let left = page.rows.into_iter().filter(|found| !open.contains(&found.row.owner));
        let late = !at_start || !services.node.neighbours().is_empty();
        take_up(services, left.collect(), late).await?;
        if !page.more {
            return Ok(());
        }
    }
}

/// The other nodes that live at this moment.
pub async fn meet(services: &Services) -> Result<Vec<Arc<str>>, DeskError> {
    let (now, nodes) = read_nodes(services).await?;
    introduce(services, now, &nodes);
    Ok(services.node.neighbours().to_vec())
}

/// The store's time, and all nodes that it knows.
pub async fn read_nodes(services: &Services) -> Result<(Time, Vec<Node>), DeskError> {
    let now = match services.desk.read(Read::Time).await? {
        Found::Time(now) => now,
        _ => services.now(),
    };
    let mut nodes: Vec<Node> = Vec::new();
    loop {
        let after = nodes.last().map(|node| node.writer.clone());
        let Found::Nodes(page) = services.desk.read(Read::Nodes { after, limit: PAGE_ROWS }).await? else {
            return Ok((now, nodes));
        };
        nodes.extend(page.rows);
        if !page.more {
            return Ok((now, nodes));
        }
    }
}

fn introduce(services: &Services, now: Time, nodes: &[Node]) {
    let own = services.node.settings.node.as_str();
    let lives =
        |node: &&Node| node.closed_at.is_none() && now < node.lease_until && *node.writer.node != *own;
    services.node.set_neighbours(nodes.iter().filter(lives).map(|node| node.writer.node.clone()).collect());
}

/// Takes sessions out of the store and gives them to their shards.
async fn take_up(
    services: &Services,
    left: Vec<Versioned<StoredSession>>,
    late: bool,
) -> Result<(), DeskError> {
    if left.is_empty() {
        return Ok(());
    }
    let own = Writer::new(&services.node.settings.node, services.node.epoch());
    let mut taking = JoinSet::new();
    for Versioned { version, row } in left {
        let key = RowKey::Session(row.client);
        let expects = vec![Expect { key: key.clone(), version }];
        let commit = Commit { writer: Some(own.clone()), expects, deletes: vec![key], ..Commit::default() };
        let desk = services.desk.clone();
        taking.spawn(async move {
            match desk.commit(commit).await {
                Ok(_) => Ok(Some(row)),
                // Another node was quicker.
                Err(DeskError::Store(StoreError::Conflict { .. })) => Ok(None),
                Err(error) => Err(error),
            }
        });
    }
    let shards = services.inboxes.len();
    let mut parts: Vec<Vec<Packed>> = (0..shards).map(|_| Vec::new()).collect();
    let mut trouble = None;
    while let Some(taken) = taking.join_next().await {
        match taken {
            Ok(Ok(Some(row))) => unpack(row, services.now(), &mut parts),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => trouble = Some(error),
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
    let sessions: usize = parts.iter().map(Vec::len).sum();
    tracing::info!(sessions, "taking up sessions that were left in the store");
    let mut listening = Vec::new();
    for (inbox, part) in services.inboxes.iter().zip(parts) {
        let (done, waiting) = oneshot::channel();
        inbox.force(Mail::Adopt(part, late, done));
        listening.push(waiting);
    }
    // Until each of them listens here, what is published would pass them by.
    for waiting in listening {
        let _ = waiting.await;
    }
    trouble.map_or(Ok(()), Err)
}

fn unpack(row: StoredSession, now: Time, parts: &mut [Vec<Packed>]) {
    let (client, shard) = (row.client, row.secret.shard(parts.len()));
    match unpacked(row, now) {
        Ok(packed) => parts[shard].push(packed),
        Err(error) => tracing::warn!(%error, %client, "a stored session is left out"),
    }
}
