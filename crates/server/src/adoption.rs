//! Reads which nodes are alive, and adopts the sessions that stopped nodes left in the store: before this node is
//! ready, at each heartbeat, and at once when a node announces that it left some. Any node may adopt: the store
//! decides races. Must hold: sessions of a live node are migrating and are not touched; a session is removed from the
//! store before it is used here.

use crate::clock::NodeClock;
use crate::health::NodeHealth;
use crate::load::ClusterLoad;
use crate::shard::Shards;
use crate::shard::input::ShardInput;
use crate::store_client::{StoreClient, StoreClientError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_hub::{Node, PackedSession, may_have_missed, take_session};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Clock, Found, NodeRow as StoredNode, Read, StoreError, StoredSession, Versioned, Writer};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

pub struct Adoption {
    pub node: Arc<Node>,
    pub store: Arc<StoreClient>,
    pub clock: Arc<NodeClock>,
    pub shards: Shards,
    pub health: Arc<NodeHealth>,
    /// Notified when another node has left sessions in the store, and when the server stops.
    pub wake: Arc<Notify>,
    pub load: Arc<ClusterLoad>,
}

impl Adoption {
    /// Checks every heartbeat until the server stops.
    pub async fn run(self: Arc<Adoption>, heartbeat: Duration) {
        loop {
            // A heartbeat or a notification: both start a check.
            let _ = tokio::time::timeout(heartbeat, self.wake.notified()).await;
            if self.health.is_stopping() {
                // Never during a check: sessions that were removed from the store must reach their shard.
                return;
            }
            if let Err(error) = self.check(false).await {
                tracing::debug!(%error, "adoption postponed");
            }
        }
    }

    /// One check: which nodes are alive, and which sessions the others left. At the start this node has published
    /// nothing yet.
    pub async fn check(&self, at_start: bool) -> Result<(), StoreClientError> {
        self.node.adoption.begin();
        let checked = self.adopt_left(at_start).await;
        self.node.adoption.end();
        checked
    }

    async fn adopt_left(&self, at_start: bool) -> Result<(), StoreClientError> {
        let (now, nodes) = read_nodes(&self.store, &self.clock).await?;
        self.set_other_nodes(now, &nodes);
        let open: BTreeSet<&Writer> =
            nodes.iter().filter(|node| node.closed_at.is_none()).map(|node| &node.writer).collect();
        let own = Writer::new(&self.node.settings.node, self.node.epoch());
        let is_late = |owner: &Writer| !at_start || may_have_missed(owner, &own, &nodes);
        let mut after = None;
        loop {
            let read = Read::Sessions { node: None, after, limit: PAGE_ROWS };
            let Found::Sessions(page) = self.store.read(read).await? else { return Ok(()) };
            after = page.rows.last().map(|found| found.row.client);
            let left = page.rows.into_iter().filter(|found| !open.contains(&found.row.owner));
            let (late, in_time) = left.partition(|found| is_late(&found.row.owner));
            self.adopt(late, true).await?;
            self.adopt(in_time, false).await?;
            if !page.more {
                return Ok(());
            }
        }
    }

    /// The other nodes that are alive now.
    pub async fn live_nodes(&self) -> Result<Vec<Arc<str>>, StoreClientError> {
        let (now, nodes) = read_nodes(&self.store, &self.clock).await?;
        self.set_other_nodes(now, &nodes);
        Ok(self.node.other_nodes().to_vec())
    }

    fn set_other_nodes(&self, now: Time, nodes: &[StoredNode]) {
        self.load.node_log.note(now, nodes);
        let own = self.node.settings.node.as_str();
        let lives = |node: &&StoredNode| {
            node.closed_at.is_none() && now < node.lease_until && *node.writer.node != *own
        };
        self.node.set_other_nodes(nodes.iter().filter(lives).map(|node| node.writer.node.clone()).collect());
    }

    /// Removes sessions from the store and gives them to their shards.
    async fn adopt(&self, left: Vec<Versioned<StoredSession>>, late: bool) -> Result<(), StoreClientError> {
        if left.is_empty() {
            return Ok(());
        }
        let own = Writer::new(&self.node.settings.node, self.node.epoch());
        let mut taking = JoinSet::new();
        for session in left {
            taking.spawn(take(self.store.clone(), own.clone(), session));
        }
        let mut parts: Vec<Vec<PackedSession>> = (0..self.shards.len()).map(|_| Vec::new()).collect();
        let mut failure = None;
        while let Some(taken) = taking.join_next().await {
            match taken {
                Ok(Ok(Some(row))) => unpack(row, self.clock.now(), &mut parts),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => failure = Some(error),
                Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            }
        }
        let sessions: usize = parts.iter().map(Vec::len).sum();
        tracing::info!(sessions, "adopting sessions");
        let mut listening = Vec::new();
        for (shard, part) in parts.into_iter().enumerate() {
            let (done, waiting) = oneshot::channel();
            self.shards.force(shard, ShardInput::Adopt(part, late, done));
            listening.push(waiting);
        }
        // Messages published before their subscriptions are registered here would be lost.
        for waiting in listening {
            let _ = waiting.await;
        }
        failure.map_or(Ok(()), Err)
    }
}

/// None: another node has adopted it.
async fn take(
    store: Arc<StoreClient>,
    own: Writer,
    session: Versioned<StoredSession>,
) -> Result<Option<StoredSession>, StoreClientError> {
    match store.commit(take_session(own, &session)).await {
        Ok(_) => Ok(Some(session.row)),
        Err(StoreClientError::Store(StoreError::Conflict { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

fn unpack(row: StoredSession, now: Time, parts: &mut [Vec<PackedSession>]) {
    let (client, shard) = (row.client, row.secret.shard(parts.len()));
    match PackedSession::from_row(row, now) {
        Ok(packed) => parts[shard].push(packed),
        Err(error) => tracing::warn!(%error, %client, "cannot read a stored session; dropped"),
    }
}

/// The store's time, and all nodes that it knows.
pub async fn read_nodes(
    store: &StoreClient,
    clock: &NodeClock,
) -> Result<(Time, Vec<StoredNode>), StoreClientError> {
    let now = match store.read(Read::Time).await? {
        Found::Time(now) => now,
        _ => clock.now(),
    };
    let mut nodes: Vec<StoredNode> = Vec::new();
    loop {
        let after = nodes.last().map(|node| node.writer.clone());
        let Found::Nodes(page) = store.read(Read::Nodes { after, limit: PAGE_ROWS }).await? else {
            return Ok((now, nodes));
        };
        nodes.extend(page.rows);
        if !page.more {
            return Ok((now, nodes));
        }
    }
}
