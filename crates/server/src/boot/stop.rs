//! The stop: sessions migrate to live nodes, and their clients are notified; then nothing is accepted any more, and the last
//! requests of services are answered; sessions that no node took are stored; then the node closes its lease. After a failure
//! the same, as far as possible, in less time. Must hold: a node that has lost sessions does not close its lease: it expires,
//! and then the other nodes treat the node's clients as lost.

use super::assemble::Parts;
use super::start::{RunningServer, Tasks};
use crate::adoption::Adoption;
use crate::shard::Shards;
use crate::shard::input::ShardInput;
use crate::store_client::StoreClientError;
use crate::supervisor::{SupervisedTask, Supervisor};
use std::sync::Arc;
use std::time::Duration;
use tavern_hub::{PackedSession, store_session};
use tavern_store::{Commit, NodeChange, StoreError, Writer};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The longest drain after a failure: the failed part may hang.
const FAILURE_DRAIN: Duration = Duration::from_secs(3);
/// The time beyond the drain for closing the lease, if deliveries used up all of it.
const CLOSE_LEASE: Duration = Duration::from_secs(2);
/// Sessions in one commit.
const SESSIONS_PER_COMMIT: usize = 500;
/// How long the shards wait for the last requests of services.
const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// How often the number of sessions that still migrate is checked.
const CHECK: Duration = Duration::from_millis(10);
/// The pause before a store that is not available is asked again.
const RETRY: Duration = Duration::from_millis(100);
/// How many checks, one every `CHECK`, connections get to close by themselves.
const LAST_CHECKS: usize = 30;

pub async fn stop(running: RunningServer, supervisor: &Supervisor, failed: bool) -> anyhow::Result<()> {
    let RunningServer { parts, adoption, tasks, name: _name } = running;
    let Tasks { liveness, adoption: adopting, delivery, stop_delivery, acceptors, others } = tasks;
    let timeout = Duration::from_millis(parts.config.sessions.drain_ms);
    let timeout = if failed { timeout.min(FAILURE_DRAIN) } else { timeout };
    adoption.wake.notify_one();
    stop_delivery.notify_one();
    match failed {
        true => drop(tokio::time::timeout(FAILURE_DRAIN, adopting.ended()).await),
        false => adopting.ended().await,
    }
    others.iter().for_each(SupervisedTask::abort);
    let drained = drain(&parts, &adoption, timeout, &liveness, delivery);
    let stopped = tokio::time::timeout(timeout + CLOSE_LEASE, drained).await;
    acceptors.iter().for_each(SupervisedTask::abort);
    liveness.abort();
    let drained = stopped.unwrap_or_else(|_| {
        tracing::error!(timeout_ms = timeout.as_millis() as u64, "drain timed out; some sessions are lost");
        Ok(())
    });
    // Also stops the shards that the drain did not reach.
    parts.shards.force_all(|| ShardInput::Stop(oneshot::channel().0));
    finish_answers(&parts).await;
    let supervisor = supervisor.clone();
    tokio::task::spawn_blocking(move || supervisor.join_threads()).await?;
    if let Some(bus) = parts.node.bus_interests.bus().cloned() {
        tokio::task::spawn_blocking(move || bus.stop()).await?;
    }
    if let Some(store) = parts.store.store().cloned() {
        tokio::task::spawn_blocking(move || store.stop()).await?;
    }
    tracing::info!("stopped");
    drained
}

/// Moves or stores the sessions, while deliveries in flight end; then the node closes its lease.
async fn drain(
    parts: &Parts,
    adoption: &Adoption,
    timeout: Duration,
    liveness: &SupervisedTask,
    delivery: SupervisedTask,
) -> anyhow::Result<()> {
    let until = Instant::now() + timeout;
    let node = &parts.node;
    // The node may have started a new epoch since its start.
    let writer = Writer::new(&node.settings.node, node.epoch());
    let frozen = ask_shards(&parts.shards, ShardInput::Freeze).await;
    let drain_ms = parts.config.sessions.drain_ms;
    let moved =
        tokio::time::timeout(timeout / 3 * 2, migrate(&parts.shards, adoption, drain_ms, timeout)).await;
    if moved.is_err() {
        tracing::warn!("migration timed out; storing the remaining sessions");
    }
    let closing = &parts.connections.closing;
    closing.begin();
    if !closing.answered(until.min(Instant::now() + LAST_REQUESTS)).await {
        tracing::warn!("some requests of services took too long; they are refused");
    }
    let packed = ask_shards(&parts.shards, ShardInput::Stop).await;
    let shards = parts.shards.len();
    let complete = frozen.len() == shards && packed.len() == shards;
    keep_sessions(parts, &writer, packed.into_iter().flatten().collect(), until).await?;
    // After the lease is closed the store accepts nothing more from this node.
    drop(tokio::time::timeout_at(until, delivery.ended()).await);
    // A renewal after the lease is closed would be refused, and the node would consider itself fenced.
    liveness.abort();
    if !complete {
        tracing::warn!("a shard has failed; leaving the lease to expire");
        return Ok(());
    }
    let stop = NodeChange::Stop { node: writer.clone() };
    let close = Commit { writer: Some(writer), node: Some(stop), ..Commit::default() };
    let mut attempts = 0;
    let closed = retry(until, || {
        attempts += 1;
        parts.store.commit(close.clone())
    });
    match closed.await {
        // An earlier attempt has closed it.
        Err(StoreClientError::Store(StoreError::Fenced { .. })) if attempts > 1 => {}
        closed => {
            closed?;
        }
    }
    node.announce_departure();
    Ok(())
}

/// Sends an input to each shard in turn and waits for its reply. A failed shard does not reply.
async fn ask_shards<T>(shards: &Shards, input: impl Fn(oneshot::Sender<T>) -> ShardInput) -> Vec<T> {
    let mut replies = Vec::new();
    for shard in 0..shards.len() {
        let (reply, replied) = oneshot::channel();
        shards.force(shard, input(reply));
        replies.extend(replied.await.ok());
    }
    replies
}

/// Asks the store again while it is not available, as long as there is time. A commit must have the same effect when it
/// is repeated.
async fn retry<T, F>(until: Instant, mut ask: impl FnMut() -> F) -> Result<T, StoreClientError>
where
    F: Future<Output = Result<T, StoreClientError>>,
{
    loop {
        match ask().await {
            Err(StoreClientError::Store(StoreError::Unavailable { .. }))
                if Instant::now() + RETRY < until =>
            {
                tokio::time::sleep(RETRY).await;
            }
            answer => return answer,
        }
    }
}

async fn keep_sessions(
    parts: &Parts,
    writer: &Writer,
    mut packed: Vec<PackedSession>,
    until: Instant,
) -> anyhow::Result<()> {
    let drain_ms = parts.config.sessions.drain_ms;
    tracing::info!(sessions = packed.len(), "storing sessions");
    for part in packed.chunks_mut(SESSIONS_PER_COMMIT) {
        let mut commit = Commit { writer: Some(writer.clone()), ..Commit::default() };
        for session in part {
            session.body.window_ms = session.body.window_ms.max(drain_ms);
            session.expires_at = session.expires_at + drain_ms;
            store_session(&mut commit, session.to_row(writer));
        }
        retry(until, || parts.store.commit(commit.clone())).await?;
    }
    Ok(())
}

/// Offers the sessions to the live nodes, and waits until they have taken them.
async fn migrate(shards: &Shards, adoption: &Adoption, drain_ms: u64, timeout: Duration) {
    let live = match retry(Instant::now() + timeout / 3, || adoption.live_nodes()).await {
        Ok(live) => live,
        Err(error) => return tracing::warn!(%error, "cannot read the live nodes; storing sessions"),
    };
    if !live.is_empty() {
        tracing::info!(nodes = live.len(), "offering sessions to other nodes");
    }
    let live: Arc<[Arc<str>]> = live.into();
    shards.force_all(|| ShardInput::Leave(live.clone(), drain_ms));
    while ask_shards(shards, ShardInput::Leaving).await.iter().sum::<usize>() > 0 {
        tokio::time::sleep(CHECK).await;
    }
}

/// Waits for HTTP responses that are still being written.
async fn finish_answers(parts: &Parts) {
    for _ in 0..LAST_CHECKS {
        if parts.connections.open() == 0 {
            return;
        }
        tokio::time::sleep(CHECK).await;
    }
}
