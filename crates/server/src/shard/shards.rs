//! The shards of this node as the rest of the server reaches them: one queue each. Cheap to clone.

use crate::auth::AuthError;
use crate::resp::OtherShards;
use crate::shard::input::ShardQueue;
use crate::shard::input::{SessionName, ShardInput};
use crate::shard::queue::Full;
use crate::store_client::ShardAnswers;
use crate::topics::{TopicRequest, TopicShards};
use crate::traces;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tavern_domain::Identity;
use tavern_hub::topics::TopicCommand;
use tavern_hub::{LinkId, ShardEvent};
use tavern_store::{StoreAnswer, Ticket};

#[derive(Clone)]
pub struct Shards(Arc<ShardQueues>);

struct ShardQueues {
    queues: Vec<Arc<ShardQueue>>,
    next: AtomicUsize,
}

impl Shards {
    pub fn new(queues: Vec<Arc<ShardQueue>>) -> Shards {
        Shards(Arc::new(ShardQueues { queues, next: AtomicUsize::new(0) }))
    }

    pub fn len(&self) -> usize {
        self.0.queues.len()
    }

    pub fn queue(&self, shard: usize) -> &Arc<ShardQueue> {
        &self.0.queues[shard]
    }

    /// The shard of a new connection: round-robin.
    pub fn next(&self) -> usize {
        self.0.next.fetch_add(1, Ordering::Relaxed) % self.len()
    }

    /// The shard of a session, or of a new one.
    pub fn of_session(&self, session: Option<&SessionName>) -> usize {
        session.map_or_else(|| self.next(), |name| name.key.shard(self.len()))
    }

    pub fn put(&self, shard: usize, input: ShardInput) -> Result<(), Full> {
        self.queue(shard).put(input)
    }

    /// Even if the queue is full: for inputs that must not be lost and are bounded elsewhere.
    pub fn force(&self, shard: usize, input: ShardInput) {
        self.queue(shard).force(input);
    }

    /// One input for each shard.
    pub fn force_all(&self, input: impl Fn() -> ShardInput) {
        self.0.queues.iter().for_each(|queue| queue.force(input()));
    }

    /// The queue of some shard is full.
    pub fn is_any_full(&self) -> bool {
        self.0.queues.iter().any(|queue| queue.is_full())
    }
}

impl ShardAnswers for Shards {
    fn deliver(&self, shard: usize, answers: Vec<(Ticket, StoreAnswer)>) {
        self.force(shard, ShardInput::Answers(answers));
    }
}

impl TopicShards for Shards {
    /// A subscription is always pulled on the same shard, which remembers where its last reply ended.
    fn run(&self, request: TopicRequest) -> bool {
        let shard = match &request.command {
            TopicCommand::Pull { name, .. } => {
                let mut hasher = DefaultHasher::new();
                name.hash(&mut hasher);
                (hasher.finish() % self.len() as u64) as usize
            }
            _ => self.next(),
        };
        self.put(shard, ShardInput::Topic(Box::new(request)).in_trace(traces::current())).is_ok()
    }

    fn topic_grew(&self, shard: usize, topic: Arc<str>) {
        self.force(shard, ShardInput::Hub(ShardEvent::TopicGrew(topic)));
    }
}

impl OtherShards for Shards {
    fn log_in(&self, shard: usize, link: LinkId, client: u64, outcome: Result<Identity, AuthError>) {
        self.force(shard, ShardInput::Login(link, client, outcome));
    }

    fn kill(&self, shard: usize, link: LinkId, client: u64) {
        self.force(shard, ShardInput::Kill(link, client));
    }
}
