//! The Redis store: a thread that writes and a thread that reads, their queues and their connections. What needs a connection
//! while there is none is answered `Unavailable`. Must hold: every work is answered once, also when its connection ends.

use super::door::Door;
use super::reader::{self, Pages};
use super::script::Request;
use super::table::{Keys, Table};
use super::way::Way;
use super::writer::{Scribe, Watch};
use crate::intake::{Intake, Opened};
use crate::queue::Queue;
use std::sync::Arc;
use tavern_store::bus::BusError;
use tavern_store::clock::Clock;
use tavern_store::commit::Commit;
use tavern_store::error::StoreError;
use tavern_store::read::Read;
use tavern_store::store::{Answer, AnswerReceiver, Store, Ticket, Work};
use tokio::task::JoinSet;

/// Runs of the script that are under way: while one runs the next is on the wire.
const BATCHES: usize = 4;
/// Commits in one run, and their bytes: nobody else is served while it lasts. A commit that is larger travels alone.
const BATCH_COMMITS: usize = 256;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Reads that are under way: each may hold a page in memory.
const READS: usize = 32;
/// The version of how rows are written; grows with every change.
const VERSION: u64 = 1;

pub struct RedisStore {
    intake: Intake,
}

/// What the tasks of one thread share.
struct Desk {
    way: Way,
    keys: Keys,
    door: Door,
    watch: Watch,
    inbox: Arc<dyn AnswerReceiver>,
}

impl RedisStore {
    /// Time is the server's.
    pub fn open(url: &str, inbox: Arc<dyn AnswerReceiver>) -> Result<RedisStore, StoreError> {
        RedisStore::open_at(url, None, inbox)
    }

    /// With a clock in place of the server's, for tests.
    pub fn open_by(
        url: &str,
        clock: Arc<dyn Clock>,
        inbox: Arc<dyn AnswerReceiver>,
    ) -> Result<RedisStore, StoreError> {
        RedisStore::open_at(url, Some(clock), inbox)
    }

    fn open_at(
        url: &str,
        clock: Option<Arc<dyn Clock>>,
        inbox: Arc<dyn AnswerReceiver>,
    ) -> Result<RedisStore, StoreError> {
        let door = Door::parse(url).map_err(|error| match error {
            BusError::Malformed { what } => StoreError::Malformed { what },
            _ => StoreError::Malformed { what: "option" },
        })?;
        let store = RedisStore { intake: Intake::new(inbox.clone()) };
        let (commits, reads) = (store.intake.commits.clone(), store.intake.reads.clone());
        let arrivals = store.intake.arrivals.clone();
        let desk = move |door: Door| {
            let (way, keys) = (Way::new(door.clone(), arrivals.clone()), Keys::new(&door.prefix));
            Arc::new(Desk { way, keys, door, watch: Watch(clock.clone()), inbox: inbox.clone() })
        };
        let (writing, reading) = (desk(door.clone()), desk(door));
        store.intake.start("tavern-store-w", async move |opened: Opened| {
            if opened.tell(writing.begin().await).is_some() {
                writing.write_all(&commits).await;
            }
        })?;
        store.intake.start("tavern-store-r", async move |opened: Opened| {
            if opened.tell(reading.way.open(reading.keys.slot).await.map_err(StoreError::from)).is_some() {
                reading.read_all(&reads).await;
            }
        })?;
        Ok(store)
    }
}

impl Store for RedisStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.intake.submit(work);
    }

    fn has_shared_clock(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "redis"
    }

    fn reconnects(&self) -> u64 {
        self.intake.arrivals.count()
    }

    /// A crash may cost the last second, a failover what the replica lagged behind.
    fn may_lose_writes(&self) -> bool {
        true
    }

    fn stop(&self) {
        self.intake.stop();
    }
}

impl Desk {
    /// Refuses a store of another version.
    async fn begin(&self) -> Result<(), StoreError> {
        let (slot, clock) = (self.keys.slot, self.keys.get(Table::Clock));
        self.way.open(slot).await?;
        let known = VERSION.to_string();
        self.way.ask(&Request::plain(slot, &[b"HSETNX", clock, b"version", known.as_bytes()])).await?;
        let found = self.way.ask(&Request::plain(slot, &[b"HGET", clock, b"version"])).await?.number()?;
        match found {
            VERSION => Ok(()),
            found => Err(StoreError::SchemaVersion { found, known: VERSION }),
        }
    }

    async fn write_all(self: Arc<Desk>, queue: &Queue<(Ticket, Commit)>) {
        let mut under_way = JoinSet::new();
        while let Some(batch) = queue.next(BATCH_COMMITS, BATCH_BYTES).await {
            let desk = self.clone();
            under_way.spawn(async move { desk.write(batch).await });
            if under_way.len() >= BATCHES {
                under_way.join_next().await;
            }
        }
        under_way.join_all().await;
    }

    async fn write(&self, batch: Vec<(Ticket, Commit)>) {
        let commits: Vec<&Commit> = batch.iter().map(|(_, commit)| commit).collect();
        let scribe = Scribe { way: &self.way, keys: &self.keys, watch: &self.watch, wait: self.door.wait };
        let outcome = scribe.write(&commits).await;
        let tickets = batch.iter().map(|(ticket, _)| *ticket);
        let answers = match outcome {
            Ok(outcomes) => {
                let answer = |outcome: Result<_, _>| outcome.map_or_else(Answer::Failed, Answer::Committed);
                tickets.zip(outcomes.into_iter().map(answer)).collect()
            }
            Err(trouble) => {
                let (error, commits) = (&trouble as &dyn std::error::Error, batch.len());
                tracing::warn!(error, commits, "a batch failed");
                let error = StoreError::from(trouble);
                tickets.map(|ticket| (ticket, Answer::Failed(error.clone()))).collect()
            }
        };
        self.inbox.answer(answers);
    }

    async fn read_all(self: Arc<Desk>, queue: &Queue<(Ticket, Read)>) {
        let mut under_way = JoinSet::new();
        while let Some(batch) = queue.next(READS, usize::MAX).await {
            for (ticket, read) in batch {
                let desk = self.clone();
                under_way.spawn(async move {
                    let pages = Pages { way: &desk.way, keys: &desk.keys };
                    let outcome = reader::read(&pages, &desk.watch, &read).await;
                    let answer = outcome.map_err(StoreError::from).map_or_else(Answer::Failed, Answer::Read);
                    // One by one: pages can be large.
                    desk.inbox.answer(vec![(ticket, answer)]);
                });
                if under_way.len() >= READS {
                    under_way.join_next().await;
                }
            }
        }
        under_way.join_all().await;
    }
}
