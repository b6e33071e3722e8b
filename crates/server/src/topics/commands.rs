//! Passes topic commands to a shard, and waits for their replies. Must hold: a command is run by one shard; every
//! wait for a reply has a timeout.

use super::TopicsApi;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_hub::topics::{Pulled, TopicCaller, TopicCommand, TopicReply};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_wire::error::{Code, Refusal};
use tokio::sync::oneshot;

/// How long a shard and the store may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest wait of a client that pulls.
pub const PULL_WAIT_MS_MAX: u64 = 30_000;
/// The longest single wait on a shard: the shard does not notice that the client disconnects or the server stops.
const PULL_WAIT: Duration = Duration::from_secs(1);

/// A command for a shard, and the receiver of its reply.
pub struct TopicRequest {
    pub caller: TopicCaller,
    pub command: TopicCommand,
    pub answer: oneshot::Sender<Result<TopicReply, Refusal>>,
}

/// The shards, as far as topics need them.
pub trait TopicShards: Send + Sync {
    /// Gives a command to a shard. False: its queue is full.
    fn run(&self, request: TopicRequest) -> bool;

    /// Notifies a shard that a topic has new events.
    fn topic_grew(&self, shard: usize, topic: Arc<str>);
}

impl TopicsApi {
    /// Runs a command on a shard.
    pub async fn run(&self, caller: &TopicCaller, command: TopicCommand) -> Result<TopicReply, Refusal> {
        let wait = match &command {
            TopicCommand::Pull { wait_ms, .. } => Duration::from_millis(*wait_ms),
            _ => Duration::ZERO,
        };
        let (answer, waiting) = oneshot::channel();
        if !self.shards.run(TopicRequest { caller: caller.clone(), command, answer }) {
            return Err(
                Refusal::new(Code::Unavailable, "the server is overloaded; retry later").retry_after(500)
            );
        }
        match tokio::time::timeout(wait + REPLY_TIMEOUT, waiting).await {
            Ok(reply) => reply
                .map_err(|_| Refusal::new(Code::Unavailable, "the server is stopping").retry_after(1000))?,
            Err(_) => Err(Refusal::new(Code::Unavailable, "the store did not answer; retry")
                .retry_after(RETRY_AFTER_MS)),
        }
    }

    /// The next events of a subscription; waits for them. `check` is asked after each wait: the caller may have lost its
    /// rights meanwhile.
    pub async fn pull<C: Future<Output = Result<(), Refusal>>>(
        &self,
        caller: &TopicCaller,
        name: &str,
        after: Option<u64>,
        limit: u32,
        wait: Duration,
        check: impl Fn() -> C,
    ) -> Result<Pulled, Refusal> {
        let until = Instant::now() + wait.min(Duration::from_millis(PULL_WAIT_MS_MAX));
        loop {
            let left = if self.is_stopping() { Duration::ZERO } else { until - Instant::now().min(until) };
            let wait_ms = left.min(PULL_WAIT).as_millis() as u64;
            let command = TopicCommand::Pull { name: name.into(), after, limit, wait_ms };
            let TopicReply::Pulled(pulled) = self.run(caller, command).await? else {
                return Err(unexpected());
            };
            if wait_ms > 0 {
                check().await?;
            }
            if pulled.count > 0 || left.is_zero() {
                return Ok(pulled);
            }
        }
    }
}

/// A shard replied to another command.
pub fn unexpected() -> Refusal {
    Refusal::new(Code::Internal, "internal error: a command got the reply of another one; report this bug")
}
