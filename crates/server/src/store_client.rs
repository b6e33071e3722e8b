//! The server's access to its store: requests of shards, whose answers go to the queues of the shards, and requests
//! of the rest of the server, which are awaited. Must hold: answers are routed to shards by the ticket alone, without
//! a lookup.

use crate::auth::KeySource;
use crate::health::NodeHealth;
use crate::metrics::{MetricKind, MetricSource, Series};
use crate::refusal_log::RefusalLogs;
use crate::store_times::StoreTimes;
use crate::supervisor::fault;
use crate::traces::Tracer;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tavern_hub::node::histogram::LatencyCounts;
use tavern_store::{
    AnswerReceiver, ApiKey, Commit, Found, Read, Receipt, Store, StoreAnswer, StoreError, Ticket, Work,
};
use tokio::sync::oneshot;

/// How long the store may take to answer a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The bits of a ticket from here on are its shard number plus one; zero means a request of the server itself.
const SHARD_SHIFT: u32 = 48;

#[derive(Default)]
pub struct StoreClient {
    store: OnceLock<Arc<dyn Store>>,
    waiting: Mutex<HashMap<Ticket, StoreWaiter>>,
    tickets: AtomicU64,
    shards: OnceLock<Arc<dyn ShardAnswers>>,
    counts: StoreCounts,
    times: StoreTimes,
    tracer: OnceLock<Arc<Tracer>>,
    health: OnceLock<Arc<NodeHealth>>,
    failures: RefusalLogs,
}

/// Receives the answers to the requests of shards.
pub trait ShardAnswers: Send + Sync {
    fn deliver(&self, shard: usize, answers: Vec<(Ticket, StoreAnswer)>);
}

/// Outcomes of store requests, for the metrics.
#[derive(Default)]
struct StoreCounts {
    done: AtomicU64,
    /// A conflict, or the node is fenced.
    refused: AtomicU64,
    failed: AtomicU64,
}

impl StoreCounts {
    fn note(&self, answers: &[(Ticket, StoreAnswer)]) {
        let (mut done, mut refused, mut failed) = (0, 0, 0);
        for (_, answer) in answers {
            match answer {
                StoreAnswer::Committed(_) | StoreAnswer::Read(_) => done += 1,
                StoreAnswer::Failed(error) if error.is_refusal() => refused += 1,
                StoreAnswer::Failed(_) => failed += 1,
            }
        }
        for (counter, count) in [(&self.done, done), (&self.refused, refused), (&self.failed, failed)] {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}

enum StoreWaiter {
    Any(oneshot::Sender<StoreAnswer>),
    Key(oneshot::Sender<Result<Option<ApiKey>, StoreError>>),
}

#[derive(Debug, thiserror::Error)]
pub enum StoreClientError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store did not answer within 10 s")]
    Timeout,
}

impl StoreClient {
    /// The store is opened with this client as the receiver of its answers, then set here.
    pub fn set_store(&self, store: Arc<dyn Store>) {
        let _ = self.store.set(store);
    }

    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.get()
    }

    /// A damaged store is reported here.
    pub fn set_health(&self, health: Arc<NodeHealth>) {
        let _ = self.health.set(health);
    }

    /// Logs failures: a damaged store once, anything else at most once in a while.
    fn note_failures(&self, answers: &[(Ticket, StoreAnswer)]) {
        let failed = answers.iter().filter_map(|(_, answer)| match answer {
            StoreAnswer::Failed(error) if !error.is_refusal() => Some(error),
            _ => None,
        });
        for error in failed {
            let reason = match error {
                StoreError::Damaged { what, .. } => {
                    if self.health.get().is_some_and(|health| health.set_store_damaged(what)) {
                        let error = error as &dyn std::error::Error;
                        tracing::error!(
                            error,
                            "the store is damaged; not ready until it is restored and the server started again"
                        );
                    }
                    continue;
                }
                StoreError::Corrupt { .. } => "unreadable row",
                _ => "failed request",
            };
            if let Some(failed) = self.failures.count(reason) {
                tracing::warn!(error = error as &dyn std::error::Error, failed, reason, "store failed");
            }
        }
    }

    fn submit(&self, work: Work, waiter: StoreWaiter) {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket, waiter);
        if let Some(store) = self.store.get() {
            self.times.begin(ticket, &work);
            store.submit(vec![(ticket, work)]);
        }
    }

    /// How long commits and reads took.
    pub fn latencies(&self) -> LatencyCounts {
        self.times.latencies()
    }

    /// The shards are created after the store is opened; they are set here.
    pub fn set_shards(&self, shards: Arc<dyn ShardAnswers>) {
        let _ = self.shards.set(shards);
    }

    /// The ticket under which the store knows a request of a shard.
    pub fn ticket_of(shard: usize, own: Ticket) -> Ticket {
        assert!(own.0 >> SHARD_SHIFT == 0, "a ticket of a shard is too large");
        Ticket((shard as u64 + 1) << SHARD_SHIFT | own.0)
    }

    /// Commits of traced commands are recorded by this tracer.
    pub fn set_tracer(&self, tracer: Arc<Tracer>) {
        let _ = self.tracer.set(tracer);
    }

    /// Submits a request of a shard; its answer goes to `ShardAnswers`.
    pub fn submit_for(&self, shard: usize, work: Vec<(Ticket, Work)>) {
        if let Some(store) = self.store.get() {
            let work = work.into_iter().map(|(own, work)| (StoreClient::ticket_of(shard, own), work));
            store.submit(work.inspect(|(ticket, work)| self.times.begin(*ticket, work)).collect());
        }
    }

    async fn ask(&self, work: Work) -> Result<StoreAnswer, StoreClientError> {
        match self.answer_to(work).await {
            Some(StoreAnswer::Failed(error)) => Err(error.into()),
            Some(answer) => Ok(answer),
            None => Err(StoreClientError::Timeout),
        }
    }

    /// The answer of the store. None: it timed out.
    pub async fn answer_to(&self, work: Work) -> Option<StoreAnswer> {
        let (sender, answer) = oneshot::channel();
        self.submit(work, StoreWaiter::Any(sender));
        tokio::time::timeout(TIMEOUT, answer).await.ok()?.ok()
    }

    pub async fn commit(&self, commit: Commit) -> Result<Receipt, StoreClientError> {
        match self.ask(Work::Commit(commit)).await? {
            StoreAnswer::Committed(receipt) => Ok(receipt),
            other => unreachable!("a commit was answered with {other:?}"),
        }
    }

    pub async fn read(&self, read: Read) -> Result<Found, StoreClientError> {
        match self.ask(Work::Read(read)).await? {
            StoreAnswer::Read(found) => Ok(found),
            other => unreachable!("a read was answered with {other:?}"),
        }
    }
}

impl MetricSource for StoreClient {
    fn gather(&self, all: &mut Vec<Series>) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.counts;
        let mut answers =
            Series::new("tavern_store_answers_total", MetricKind::Counter, "Answers of the store by outcome");
        for (outcome, counter) in
            [("done", &counts.done), ("refused", &counts.refused), ("failed", &counts.failed)]
        {
            answers.add([("outcome", outcome.into())], get(counter));
        }
        all.push(answers);
        self.times.gather(all);
    }
}

impl StoreClient {
    /// If the caller has given up, the answer is dropped.
    fn answer_waiter(&self, ticket: Ticket, answer: StoreAnswer) {
        match self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&ticket) {
            Some(StoreWaiter::Any(sender)) => drop(sender.send(answer)),
            Some(StoreWaiter::Key(sender)) => drop(sender.send(key_of(answer))),
            None => {}
        }
    }
}

impl AnswerReceiver for StoreClient {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        fault::strikes("store");
        self.counts.note(&answers);
        self.note_failures(&answers);
        answers.iter().for_each(|(ticket, _)| self.times.end(*ticket));
        if let Some(tracer) = self.tracer.get() {
            tracer.commits_end(&answers);
        }
        let mut by_shard: BTreeMap<usize, Vec<(Ticket, StoreAnswer)>> = BTreeMap::new();
        for (ticket, answer) in answers {
            match (ticket.0 >> SHARD_SHIFT).checked_sub(1) {
                Some(shard) => {
                    let own = Ticket(ticket.0 & ((1 << SHARD_SHIFT) - 1));
                    by_shard.entry(shard as usize).or_default().push((own, answer));
                }
                None => self.answer_waiter(ticket, answer),
            }
        }
        for (shard, answers) in by_shard {
            if let Some(shards) = self.shards.get() {
                shards.deliver(shard, answers);
            }
        }
    }
}

impl KeySource for StoreClient {
    fn find(&self, hash: [u8; 32], reply: oneshot::Sender<Result<Option<ApiKey>, StoreError>>) {
        self.submit(Work::Read(Read::KeyByHash(hash)), StoreWaiter::Key(reply));
    }
}

fn key_of(answer: StoreAnswer) -> Result<Option<ApiKey>, StoreError> {
    match answer {
        StoreAnswer::Read(Found::Key(key)) => Ok(key.map(|versioned| versioned.row)),
        StoreAnswer::Failed(error) => Err(error),
        other => unreachable!("a key lookup was answered with {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Epoch;
    use tavern_store::Writer;

    #[test]
    fn answers_are_counted_by_outcome() {
        let client = StoreClient::default();
        let failed = |error| (Ticket(1), StoreAnswer::Failed(error));
        let away =
            StoreError::Unavailable { retry_after_ms: 1, source: Arc::new(std::io::Error::other("away")) };
        let first = StoreError::UnknownNode { node: Writer { node: "a".into(), epoch: Epoch(1) } };
        client.answer(vec![
            (Ticket(1), StoreAnswer::Read(Found::Key(None))),
            (Ticket(1), StoreAnswer::Read(Found::Key(None))),
            failed(away),
            failed(first),
        ]);
        let mut all = Vec::new();
        client.gather(&mut all);
        let outcomes: Vec<(&str, f64)> =
            all[0].rows.iter().map(|row| (&*row.labels[0].1, row.value)).collect();
        assert_eq!(outcomes, [("done", 2.0), ("refused", 1.0), ("failed", 1.0)]);
    }
}
