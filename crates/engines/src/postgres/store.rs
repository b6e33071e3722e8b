//! The Postgres store: one thread that writes and one that reads, their queues and their connections. Work that needs a
//! connection while there is none is answered `Unavailable`.
//! Must hold: every work is answered once, also when its connection ends; no work takes longer than its timeout.

use super::address::PostgresAddress;
use super::connection::{PostgresConnection, TIMEOUT};
use super::error::PostgresError;
use super::read_batch::ReadBatch;
use super::reconnect::{PostgresDatabase, Reconnecting};
use super::tls::PostgresTls;
use super::writer::{self, PostgresClock, PostgresWriter};
use super::{pooler, schema};
use crate::queue::WorkQueue;
use crate::worker::{Started, Workers};
use futures_util::future::join_all;
use std::sync::Arc;
use tavern_store::{
    AnswerReceiver, Clock, Commit, Read, Store, StoreAnswer, StoreError, Ticket, Work, limits,
};

/// Connections that read: a slow read delays only those that share its connection.
const READERS: usize = 2;
/// Reads in flight on one connection: each may hold a page in memory.
const READS: usize = 32;
/// Bytes of the commits in one transaction. A larger commit gets a transaction of its own.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

pub struct PostgresStore {
    workers: Workers,
}

impl PostgresStore {
    /// The time is the server's, as far as the node's clock trusts it.
    pub fn open(
        url: &str,
        node: Arc<dyn Clock>,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Result<PostgresStore, StoreError> {
        PostgresStore::open_at(url, PostgresClock { replaced: None, node }, receiver)
    }

    /// With a clock instead of the server's, for tests.
    pub fn open_by(
        url: &str,
        clock: Arc<dyn Clock>,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Result<PostgresStore, StoreError> {
        PostgresStore::open_at(url, PostgresClock { replaced: Some(clock.clone()), node: clock }, receiver)
    }

    fn open_at(
        url: &str,
        clock: PostgresClock,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Result<PostgresStore, StoreError> {
        let address = PostgresAddress::parse(url)?;
        let store = PostgresStore { workers: Workers::new(receiver.clone()) };
        let (tls, reconnects) = (PostgresTls::new(&address)?, store.workers.reconnects.clone());
        let database =
            PostgresDatabase { address: Arc::new(address), tls, reached: Arc::default(), reconnects };
        let (commits, reads) = (store.workers.commits.clone(), store.workers.reads.clone());
        let worker = move |database: &PostgresDatabase, connection| PostgresWorker {
            connection: Reconnecting::new(database.clone(), connection),
            clock: clock.clone(),
            receiver: receiver.clone(),
        };
        let (writing, reading) = (database.clone(), worker.clone());
        store.workers.start("tavern-store-w", async move |started: Started| {
            let Some(connection) = started.report(first(&writing).await) else { return };
            worker(&writing, connection).write_all(&commits).await;
        })?;
        store.workers.start("tavern-store-r", async move |started: Started| {
            let connections = join_all((0..READERS).map(|_| database.connect())).await;
            let connections: Result<Vec<PostgresConnection>, PostgresError> =
                connections.into_iter().collect();
            let Some(connections) = started.report(connections.map_err(StoreError::from)) else { return };
            let workers = connections.into_iter().map(|connection| reading(&database, connection));
            join_all(workers.map(|worker| worker.read_all(&reads))).await;
        })?;
        Ok(store)
    }
}

/// The first connection creates the tables.
async fn first(database: &PostgresDatabase) -> Result<PostgresConnection, StoreError> {
    let connection = database.connect().await?;
    pooler::refuse(&database.address, &database.tls).await?;
    schema::create(&connection, &database.address.schema).await?;
    Ok(connection)
}

impl Store for PostgresStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.workers.submit(work);
    }

    fn has_shared_clock(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "postgres"
    }

    fn reconnects(&self) -> u64 {
        self.workers.reconnects.count()
    }

    fn stop(&self) {
        self.workers.stop();
    }
}

/// What one connection works with.
struct PostgresWorker {
    connection: Reconnecting,
    clock: PostgresClock,
    receiver: Arc<dyn AnswerReceiver>,
}

impl PostgresWorker {
    async fn write_all(mut self, queue: &WorkQueue<(Ticket, Commit)>) {
        let mut lane = None;
        while let Some(batch) = queue.next(limits::BATCH_COMMITS, BATCH_BYTES).await {
            let commits: Vec<&Commit> = batch.iter().map(|(_, commit)| commit).collect();
            let writing = async {
                let connection = self.connection.get().await?;
                let lane = match lane {
                    Some(lane) => lane,
                    None => *lane.insert(writer::choose_lane(connection).await?),
                };
                PostgresWriter { connection, clock: &self.clock, lane }.write(&commits).await
            };
            let outcome = tokio::time::timeout(TIMEOUT, writing).await.unwrap_or(Err(PostgresError::Timeout));
            if outcome.as_ref().is_err_and(PostgresError::ends_connection) {
                self.connection.lose();
            }
            let tickets = batch.iter().map(|(ticket, _)| *ticket);
            let answers = match outcome {
                Ok(outcomes) => {
                    let answer = |outcome: Result<_, _>| {
                        outcome.map_or_else(StoreAnswer::Failed, StoreAnswer::Committed)
                    };
                    tickets.zip(outcomes.into_iter().map(answer)).collect()
                }
                Err(error) => {
                    let error = StoreError::from(error);
                    tickets.map(|ticket| (ticket, StoreAnswer::Failed(error.clone()))).collect()
                }
            };
            self.receiver.answer(answers);
        }
    }

    async fn read_all(mut self, queue: &WorkQueue<(Ticket, Read)>) {
        while let Some(batch) = queue.next(READS, usize::MAX).await {
            let (receiver, clock) = (&self.receiver, &self.clock);
            let is_lost = match self.connection.get().await {
                Ok(connection) => {
                    let batches = ReadBatch::by_kind(&batch).into_iter();
                    let answers = batches.map(|batch| answer_batch(connection, clock, &**receiver, batch));
                    join_all(answers).await.contains(&true)
                }
                Err(error) => {
                    let error = StoreError::from(error);
                    let failed =
                        batch.iter().map(|(ticket, _)| (*ticket, StoreAnswer::Failed(error.clone())));
                    receiver.answer(failed.collect());
                    false
                }
            };
            if is_lost {
                self.connection.lose();
            }
        }
    }
}

/// True: the connection is unusable.
async fn answer_batch(
    connection: &PostgresConnection,
    clock: &PostgresClock,
    receiver: &dyn AnswerReceiver,
    batch: ReadBatch<'_>,
) -> bool {
    let mut batches = vec![batch];
    while let Some(batch) = batches.pop() {
        let reading = tokio::time::timeout(TIMEOUT, batch.read(connection, clock));
        let outcome = reading.await.unwrap_or(Err(PostgresError::Timeout));
        let is_lost = outcome.as_ref().is_err_and(PostgresError::ends_connection);
        match outcome {
            Ok(answers) => receiver.answer(answers),
            Err(error) if !is_lost && !error.is_timeout() && !batch.is_one() => batches.extend(batch.split()),
            Err(error) => receiver.answer(batch.failed(&StoreError::from(error))),
        }
        if is_lost {
            let error = StoreError::from(PostgresError::NotConnected);
            batches.iter().for_each(|batch| receiver.answer(batch.failed(&error)));
            return true;
        }
    }
    false
}
