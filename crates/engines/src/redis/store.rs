//! The Redis store: a thread that writes and a thread that reads, their queues and their connections. Work that needs a
//! connection while there is none is answered `Unavailable`. Must hold: every work is answered once, also when its connection ends.

use super::address::RedisAddress;
use super::clock::RedisClock;
use super::pages::Pages;
use super::pool::ConnectionPool;
use super::reader;
use super::schema::{RedisKeys, RedisTable, VERSION};
use super::script::ScriptCall;
use super::writer::RedisWriter;
use crate::queue::WorkQueue;
use crate::worker::{Started, Workers};
use std::sync::Arc;
use tavern_store::{
    AnswerReceiver, BusError, Clock, Commit, Read, Store, StoreAnswer, StoreError, Ticket, Work,
};
use tokio::task::JoinSet;

/// Script calls in flight: while one runs, the next is on the wire.
const BATCHES: usize = 4;
/// Commits per script call, and their bytes: the server does nothing else during the call. A larger commit gets its
/// own call.
const BATCH_COMMITS: usize = 256;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Reads in flight: each may hold a page in memory.
const READS: usize = 32;

pub struct RedisStore {
    workers: Workers,
}

/// What the tasks of one thread share.
struct RedisWorker {
    pool: ConnectionPool,
    keys: RedisKeys,
    address: RedisAddress,
    clock: RedisClock,
    receiver: Arc<dyn AnswerReceiver>,
}

impl RedisStore {
    /// The time is the server's, as far as the node's clock trusts it.
    pub fn open(
        url: &str,
        node: Arc<dyn Clock>,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Result<RedisStore, StoreError> {
        RedisStore::open_at(url, RedisClock { replaced: None, node }, receiver)
    }

    /// With a clock instead of the server's, for tests.
    pub fn open_by(
        url: &str,
        clock: Arc<dyn Clock>,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Result<RedisStore, StoreError> {
        RedisStore::open_at(url, RedisClock { replaced: Some(clock.clone()), node: clock }, receiver)
    }

    fn open_at(
        url: &str,
        clock: RedisClock,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Result<RedisStore, StoreError> {
        let address = RedisAddress::parse(url).map_err(|error| match error {
            BusError::Malformed { what } => StoreError::Malformed { what },
            _ => StoreError::Malformed { what: "option" },
        })?;
        let store = RedisStore { workers: Workers::new(receiver.clone()) };
        let (commits, reads) = (store.workers.commits.clone(), store.workers.reads.clone());
        let reconnects = store.workers.reconnects.clone();
        let worker = move |address: RedisAddress| {
            let keys = RedisKeys::new(&address.prefix);
            let pool = ConnectionPool::new(address.clone(), keys.slot, reconnects.clone());
            Arc::new(RedisWorker { pool, keys, address, clock: clock.clone(), receiver: receiver.clone() })
        };
        let (writing, reading) = (worker(address.clone()), worker(address));
        store.workers.start("tavern-store-w", async move |started: Started| {
            if started.report(writing.begin().await).is_some() {
                writing.write_all(&commits).await;
            }
        })?;
        store.workers.start("tavern-store-r", async move |started: Started| {
            if started.report(reading.pool.open().await.map_err(StoreError::from)).is_some() {
                reading.read_all(&reads).await;
            }
        })?;
        Ok(store)
    }
}

impl Store for RedisStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.workers.submit(work);
    }

    fn has_shared_clock(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "redis"
    }

    fn reconnects(&self) -> u64 {
        self.workers.reconnects.count()
    }

    /// A crash may lose the last second, a failover what the replica had not received.
    fn may_lose_writes(&self) -> bool {
        true
    }

    fn stop(&self) {
        self.workers.stop();
    }
}

impl RedisWorker {
    /// Refuses a store of another version.
    async fn begin(&self) -> Result<(), StoreError> {
        let clock = self.keys.get(RedisTable::Clock);
        self.pool.open().await?;
        let known = VERSION.to_string();
        self.pool.ask(&ScriptCall::plain(&[b"HSETNX", clock, b"version", known.as_bytes()])).await?;
        let found = self.pool.ask(&ScriptCall::plain(&[b"HGET", clock, b"version"])).await?.number()?;
        match found {
            VERSION => Ok(()),
            found => Err(StoreError::SchemaVersion { found, known: VERSION }),
        }
    }

    async fn write_all(self: Arc<RedisWorker>, queue: &WorkQueue<(Ticket, Commit)>) {
        let mut in_flight = JoinSet::new();
        while let Some(batch) = queue.next(BATCH_COMMITS, BATCH_BYTES).await {
            let worker = self.clone();
            in_flight.spawn(async move { worker.write(batch).await });
            if in_flight.len() >= BATCHES {
                in_flight.join_next().await;
            }
        }
        in_flight.join_all().await;
    }

    async fn write(&self, batch: Vec<(Ticket, Commit)>) {
        let commits: Vec<&Commit> = batch.iter().map(|(_, commit)| commit).collect();
        let durability = self.address.durability;
        let writer = RedisWriter { pool: &self.pool, keys: &self.keys, clock: &self.clock, durability };
        let outcome = writer.write(&commits).await;
        let tickets = batch.iter().map(|(ticket, _)| *ticket);
        let answers = match outcome {
            Ok(outcomes) => {
                let answer =
                    |outcome: Result<_, _>| outcome.map_or_else(StoreAnswer::Failed, StoreAnswer::Committed);
                tickets.zip(outcomes.into_iter().map(answer)).collect()
            }
            Err(error) => {
                let error = StoreError::from(error);
                tickets.map(|ticket| (ticket, StoreAnswer::Failed(error.clone()))).collect()
            }
        };
        self.receiver.answer(answers);
    }

    async fn read_all(self: Arc<RedisWorker>, queue: &WorkQueue<(Ticket, Read)>) {
        let mut in_flight = JoinSet::new();
        while let Some(batch) = queue.next(READS, usize::MAX).await {
            for (ticket, read) in batch {
                let worker = self.clone();
                in_flight.spawn(async move {
                    let pages = Pages { pool: &worker.pool, keys: &worker.keys };
                    let outcome = reader::read(&pages, &worker.clock, &read).await;
                    let answer =
                        outcome.map_err(StoreError::from).map_or_else(StoreAnswer::Failed, StoreAnswer::Read);
                    // One by one: pages can be large.
                    worker.receiver.answer(vec![(ticket, answer)]);
                });
                if in_flight.len() >= READS {
                    in_flight.join_next().await;
                }
            }
        }
        in_flight.join_all().await;
    }
}
