//! The node's vigil: it renews its own lease, and looks after what others left: nodes whose lease has ended, presences
//! nobody vouches for, deadlines nobody settled. Any node may do any part of it, twice too: the store arbitrates.
//! Must hold: an unknown node is not a dead node; an epoch is closed before anything of it is touched.

use crate::desk::{Desk, DeskError};
use crate::services::Services;
use crate::shard::mail::Mail;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tavern_domain::presence::{Departure, Home, Loss};
use tavern_domain::{Channel, Time};
use tavern_engine::limits::PAGE_ROWS;
use tavern_engine::{Commit, Found, Node, NodeChange, Presence, Proof, Read, StoreError, Writer};

/// Whoever wrote a deadline down settles it; others wait this long for that.
const OVERDUE_MS: u64 = 1_000;

pub async fn keep(services: Arc<Services>) {
    let nodes = services.config.nodes.clone();
    loop {
        renew(&services).await;
        if let Err(error) = look_around(&services).await {
            tracing::debug!(%error, "the look at other nodes is put off");
        }
        services.inboxes.iter().for_each(|inbox| inbox.force(Mail::Look));
        tokio::time::sleep(Duration::from_millis(nodes.heartbeat_ms)).await;
    }
}

fn writer(services: &Services) -> Writer {
    Writer::new(&services.node.settings.node, services.node.epoch())
}

/// Keeps the lease alive. While the store does not answer, the server is not ready.
async fn renew(services: &Services) {
    let lease_ms = services.config.nodes.lease_ms;
    let node = writer(services);
    let change = NodeChange::Renew { node: node.clone(), lease_ms };
    let outcome = change_node(&services.desk, Some(node), change).await;
    if let Err(DeskError::Store(StoreError::Fenced { .. })) = outcome {
        return begin_again(services).await;
    }
    let trouble = services.store_trouble.swap(outcome.is_err(), Ordering::Relaxed);
    match outcome {
        Err(error) if !trouble => tracing::error!(%error, "the node's lease could not be renewed"),
        Ok(()) if trouble => tracing::info!("the store answers again"),
        _ => {}
    }
}

/// Others took this node for dead, because it slept or could not reach the store: what they ended stays ended, and who
/// lives here is announced anew.
async fn begin_again(services: &Services) {
    tracing::warn!("this node was taken for dead: it begins a new epoch. Does another server use its name?");
    let name: Arc<str> = services.node.settings.node.as_str().into();
    let open = NodeChange::Open { name, lease_ms: services.config.nodes.lease_ms };
    match services.desk.commit(Commit { node: Some(open), ..Commit::default() }).await {
        Ok(receipt) => {
            if let Some(epoch) = receipt.epoch {
                services.node.begin_epoch(epoch);
                services.inboxes.iter().for_each(|inbox| inbox.force(Mail::Announce));
            }
        }
        Err(error) => tracing::error!(%error, "no new epoch could be opened; it is tried again"),
    }
}

async fn change_node(desk: &Desk, writer: Option<Writer>, change: NodeChange) -> Result<(), DeskError> {
    desk.commit(Commit { writer, node: Some(change), ..Commit::default() }).await.map(drop)
}

async fn look_around(services: &Services) -> Result<(), DeskError> {
    let Found::Time(now) = services.desk.read(Read::Time).await? else { return Ok(()) };
    let Found::Nodes(nodes) = services.desk.read(Read::Nodes { after: None, limit: PAGE_ROWS }).await? else {
        return Ok(());
    };
    let own = writer(services);
    for node in nodes.rows.into_iter().filter(|node| node.writer != own) {
        look_after(services, now, node).await?;
    }
    settle_overdue(services, now).await
}

/// Closes a dead node's epoch, then marks what it vouched for as lost; when nothing is left, forgets it.
async fn look_after(services: &Services, now: Time, node: Node) -> Result<(), DeskError> {
    let Some(closed_at) = node.closed_at else {
        if now >= node.lease_until {
            tracing::warn!(node = %node.writer, "the lease of a node has ended: its clients are lost");
            let close = NodeChange::Close { node: node.writer, proof: Proof::LeaseEnded };
            change_node(&services.desk, Some(writer(services)), close).await?;
        }
        return Ok(());
    };
    let mut left = 0;
    let mut after = None;
    loop {
        let read = Read::PresencesAt { home: node.writer.clone(), after, limit: PAGE_ROWS };
        let Found::Presences(page) = services.desk.read(read).await? else { return Ok(()) };
        after = page.rows.last().map(|row| row.row.key.clone());
        left += page.rows.len();
        for row in page.rows {
            take_over(services, now, &node, closed_at, row.row);
        }
        if !page.more {
            break;
        }
    }
    let long_gone = now >= closed_at + services.config.sessions.drain_ms + services.config.nodes.lease_ms;
    let own_past = *node.writer.node == *services.node.settings.node;
    if left == 0 && (own_past || long_gone) {
        let forget = NodeChange::Forget { node: node.writer };
        change_node(&services.desk, Some(writer(services)), forget).await?;
    }
    Ok(())
}

/// Who said goodbye left its sessions in the store: their clients have the whole grace, at least `drain_ms`, to come
/// back before anybody is told. Who died is told at once.
fn take_over(services: &Services, now: Time, node: &Node, closed_at: Time, presence: Presence) {
    let kind = Channel::parse(&presence.key.channel).map_or("", |channel| channel.kind);
    let grace_ms = services.node.settings.kind(kind).grace_ms;
    if node.clean && now < closed_at + grace_ms.max(services.config.sessions.drain_ms) {
        return;
    }
    let reason = if node.clean { Departure::Lost } else { Departure::NodeDown };
    let home = Home { node: node.writer.node.clone(), epoch: node.writer.epoch };
    let taken = (presence, home, Loss { at: closed_at, grace_ms, reason });
    services.inboxes[0].force(Mail::TakeOver(Box::new(taken)));
}

async fn settle_overdue(services: &Services, now: Time) -> Result<(), DeskError> {
    let read = Read::DueDeadlines { by: now - OVERDUE_MS, after: None, limit: PAGE_ROWS };
    let Found::Deadlines(page) = services.desk.read(read).await? else { return Ok(()) };
    for deadline in page.rows {
        services.inboxes[0].force(Mail::Overdue(deadline));
    }
    Ok(())
}
