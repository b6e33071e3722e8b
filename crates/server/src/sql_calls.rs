//! Moves what applications publish from SQL: messages into history and to subscribers, events into the log of topics. One
//! server of the cluster does it; the others stand by.
//! Must hold: calls are done in their order; a call is removed from the queue after it is stored, and before it is delivered
//! if it is not; what is done again after a failure is recognised by its id.

use crate::config::Config;
use crate::health::NodeHealth;
use crate::shard::Shards;
use crate::shard::input::{HttpPublish, ShardInput};
use crate::store_client::{StoreClient, StoreClientError};
use crate::topics::TopicsApi;
use anyhow::Context;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_domain::{Channel, HistoryStamp};
use tavern_engines::{SqlCall, SqlCalls};
use tavern_hub::Node;
use tavern_hub::topics::{SQL_PUBLISHER, TopicCaller, TopicCommand};
use tavern_store::{Commit, NewHistoryMessage, StoreError, Writer};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::check_portable;
use tavern_wire::json::event::{DATA_BYTES, PublishedEvent, stored};
use tokio::sync::oneshot;

/// How long it looks again and again after a call, before it goes to sleep.
const LINGER: Duration = Duration::from_millis(50);
/// Between two looks: doubled while nothing is found.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
/// After a page that was not full, as long as it took at most: more calls then share the cost of the next page.
const LONGEST_REST: Duration = Duration::from_millis(4);
/// After a failure.
const RETRY: Duration = Duration::from_millis(500);
/// Bytes of messages in one commit.
const COMMIT_BYTES: usize = 4 << 20;
/// All go through one shard, so that they arrive in their order on all channels.
const SHARD: usize = 0;

pub struct SqlMover {
    pub config: Arc<Config>,
    pub node: Arc<Node>,
    pub store: Arc<StoreClient>,
    pub shards: Shards,
    pub topics: Arc<TopicsApi>,
    pub health: Arc<NodeHealth>,
}

/// The number of a call, and why it was refused for good.
type RefusedCall = (i64, String);

impl SqlMover {
    pub async fn run(self) {
        while !self.health.is_stopping() {
            if let Err(error) = self.lead().await {
                // A standby whose server is ended, or a database that restarts.
                tracing::warn!(error = format!("{error:#}"), "cannot move calls from SQL; trying again");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn lead(&self) -> anyhow::Result<()> {
        let mut calls = SqlCalls::open(&self.config.store).await?;
        calls.lead(self.config.limits.message_bytes, DATA_BYTES).await?;
        tracing::info!("moving calls from SQL");
        let (mut pause, mut found_at) = (FIRST_PAUSE, Instant::now());
        loop {
            let page = calls.page().await?;
            if !page.is_empty() {
                calls.wake().await?;
                let began = Instant::now();
                self.do_all(&mut calls, &page).await?;
                if !calls.has_more() {
                    tokio::time::sleep(began.elapsed().min(LONGEST_REST)).await;
                }
                (pause, found_at) = (FIRST_PAUSE, Instant::now());
            } else if calls.is_asleep() {
                calls.wait().await?;
                (pause, found_at) = (FIRST_PAUSE, Instant::now());
            } else if found_at.elapsed() < LINGER || !calls.sleep().await? {
                // A transaction with calls may be open.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Messages first, then the events of each topic. Each part is removed when it is done: a failure repeats little.
    async fn do_all(&self, calls: &mut SqlCalls, page: &[SqlCall]) -> anyhow::Result<()> {
        let (good, bad): (Vec<&SqlCall>, Vec<&SqlCall>) = page.iter().partition(|call| flaw(call).is_none());
        if !bad.is_empty() {
            let refused = bad.iter().filter_map(|call| Some(refuse(call, flaw(call)?))).collect::<Vec<_>>();
            calls.remove(&bad, &refused).await?;
        }
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for call in good.iter().copied().filter(|call| call.event.is_none()) {
            if bytes > 0 && bytes + call.data.len() > COMMIT_BYTES {
                self.publish(calls, &std::mem::take(&mut messages)).await?;
                bytes = 0;
            }
            bytes += call.data.len();
            messages.push(call);
        }
        if !messages.is_empty() {
            self.publish(calls, &messages).await?;
        }
        let mut topics: BTreeMap<&str, Vec<&SqlCall>> = BTreeMap::new();
        for call in good.into_iter().filter(|call| call.event.is_some()) {
            topics.entry(&call.name).or_default().push(call);
        }
        for events in topics.values() {
            let mut refused = Vec::new();
            self.emit(events, &mut refused).await?;
            calls.remove(events, &refused).await?;
        }
        Ok(())
    }

    /// Stores the messages of channels with history in one commit, then delivers all.
    async fn publish(&self, calls: &mut SqlCalls, messages: &[&SqlCall]) -> anyhow::Result<()> {
        let new = |call: &&SqlCall| {
            let keep = self.node.history_limits(call.name.as_bytes())?;
            Some(NewHistoryMessage {
                channel: call.name.as_str().into(),
                // No other publisher has ids like these.
                id: Some(format!("s\n{}", call.id).into()),
                sender: None,
                json: true,
                body: call.data.as_bytes().into(),
                keep,
            })
        };
        let new: Vec<Option<NewHistoryMessage>> = messages.iter().map(new).collect();
        let is_stored: Vec<bool> = new.iter().map(Option::is_some).collect();
        let history: Vec<NewHistoryMessage> = new.into_iter().flatten().collect();
        let stamps = match self.store_history(history).await {
            Ok(stamps) => stamps,
            Err(StoreClientError::Store(
                error @ (StoreError::Corrupt { .. } | StoreError::TooLarge { .. }),
            )) => {
                return self.publish_each(calls, messages, &error).await;
            }
            Err(error) => return Err(error).context("cannot store messages"),
        };
        // What is delivered again has its old offset, and is dropped. Without history it would arrive twice.
        let removes_first = is_stored.contains(&false);
        if removes_first {
            calls.remove(messages, &[]).await?;
        }
        self.deliver(messages, &is_stored, stamps).await;
        if !removes_first {
            calls.remove(messages, &[]).await?;
        }
        Ok(())
    }

    async fn deliver(&self, messages: &[&SqlCall], is_stored: &[bool], stamps: Vec<HistoryStamp>) {
        let mut stamps = stamps.into_iter();
        for (call, is_stored) in messages.iter().zip(is_stored) {
            while self.shards.queue(SHARD).is_full() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (answer, _) = oneshot::channel();
            let (channel, data) = (call.name.as_str().into(), call.data.as_bytes().to_vec());
            let history = if *is_stored { stamps.next() } else { None };
            let publish = HttpPublish { channel, data, history, answer };
            self.shards.force(SHARD, ShardInput::Publish(Box::new(publish)));
        }
    }

    async fn store_history(
        &self,
        history: Vec<NewHistoryMessage>,
    ) -> Result<Vec<HistoryStamp>, StoreClientError> {
        if history.is_empty() {
            return Ok(Vec::new());
        }
        let writer = Some(Writer::new(&self.config.node, self.node.epoch()));
        let receipt = self.store.commit(Commit { writer, history, ..Commit::default() }).await?;
        let stamp = |position| HistoryStamp { position, at: receipt.time };
        Ok(receipt.history.iter().map(|appended| stamp(appended.position)).collect())
    }

    /// After a commit that is refused for good: only the messages that cause it are refused.
    async fn publish_each(
        &self,
        calls: &mut SqlCalls,
        messages: &[&SqlCall],
        error: &StoreError,
    ) -> anyhow::Result<()> {
        if let [call] = messages {
            return Ok(calls.remove(messages, &[refuse(call, error.to_string())]).await?);
        }
        for call in messages.chunks(1) {
            Box::pin(self.publish(calls, call)).await?;
        }
        Ok(())
    }

    /// Events of one topic: all of them are stored, or each on its own when one is refused.
    async fn emit(&self, run: &[&SqlCall], refused: &mut Vec<RefusedCall>) -> anyhow::Result<()> {
        match self.append(run).await {
            Ok(()) => Ok(()),
            // `internal` is a record that cannot be read: trying again would hold up everything behind it.
            Err(refusal) if refusal.code.retry() && refusal.code != Code::Internal => {
                anyhow::bail!("{}", refusal.message)
            }
            Err(refusal) if run.len() == 1 => {
                refused.push(refuse(run[0], refusal.message.into_owned()));
                Ok(())
            }
            Err(_) => {
                for call in run.chunks(1) {
                    Box::pin(self.emit(call, refused)).await?;
                }
                Ok(())
            }
        }
    }

    async fn append(&self, run: &[&SqlCall]) -> Result<(), Refusal> {
        let event = |call: &&SqlCall| {
            let event = call.event.as_ref()?;
            let id = event.id.clone().unwrap_or_else(|| format!("sql:{}", call.id));
            Some(PublishedEvent { id: Some(id), body: stored(&event.kind, None, call.at_ms, &call.data) })
        };
        let topic = run[0].name.as_str().into();
        let publish =
            TopicCommand::Publish { topic, once: None, events: run.iter().filter_map(event).collect() };
        let caller = TopicCaller { id: SQL_PUBLISHER.into(), admin: false };
        self.topics.run(&caller, publish).await.map(drop)
    }
}

/// What the functions did not notice, or cannot notice cheaply.
fn flaw(call: &SqlCall) -> Option<String> {
    let is_bad = |name| Channel::parse(name).map_or(true, |channel| channel.is_reserved());
    if call.event.is_none() && is_bad(&call.name) {
        return Some("bad channel name".to_owned());
    }
    check_portable(call.data.as_bytes()).err().map(|flaw| flaw.to_string())
}

fn refuse(call: &SqlCall, reason: String) -> RefusedCall {
    let (id, name) = (call.id, &call.name);
    tracing::error!(id, name, reason, "a call from SQL was refused; it is in sql_refused");
    (id, reason)
}
