//! The Postgres store: a thread that writes and a thread that reads, their queues and their connections. What needs a
//! connection while there is none is answered `Unavailable`.
//! Must hold: every work is answered once, also when its connection ends; no future of a connection outlives its patience.

use super::address::Address;
use super::link::{Link, PATIENCE};
use super::lot::Lot;
use super::schema;
use super::tls::Tls;
use super::value::Trouble;
use super::way::{Door, Way};
use super::writer::{self, Scribe, Watch};
use crate::intake::{Intake, Opened};
use crate::queue::Queue;
use futures_util::future::join_all;
use std::sync::Arc;
use tavern_store::clock::Clock;
use tavern_store::commit::Commit;
use tavern_store::error::StoreError;
use tavern_store::limits;
use tavern_store::read::Read;
use tavern_store::store::{Answer, AnswerReceiver, Store, Ticket, Work};

/// Connections that read: a slow reading holds up only those that share its connection.
const READERS: usize = 2;
/// Reads that are under way on one connection: each may hold a page in memory.
const READS: usize = 32;
/// Bytes of the commits in one transaction. A commit that is larger travels alone.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

pub struct PostgresStore {
    intake: Intake,
}

impl PostgresStore {
    /// Time is the server's.
    pub fn open(url: &str, inbox: Arc<dyn AnswerReceiver>) -> Result<PostgresStore, StoreError> {
        PostgresStore::open_at(url, None, inbox)
    }

    /// With a clock in place of the server's, for tests.
    pub fn open_by(
        url: &str,
        clock: Arc<dyn Clock>,
        inbox: Arc<dyn AnswerReceiver>,
    ) -> Result<PostgresStore, StoreError> {
        PostgresStore::open_at(url, Some(clock), inbox)
    }

    fn open_at(
        url: &str,
        clock: Option<Arc<dyn Clock>>,
        inbox: Arc<dyn AnswerReceiver>,
    ) -> Result<PostgresStore, StoreError> {
        let address = Address::parse(url)?;
        let store = PostgresStore { intake: Intake::new(inbox.clone()) };
        let (tls, arrivals) = (Tls::new(&address)?, store.intake.arrivals.clone());
        let door = Door { address: Arc::new(address), tls, reached: Arc::default(), arrivals };
        let (commits, reads) = (store.intake.commits.clone(), store.intake.reads.clone());
        let watch = Watch(clock);
        let desk = move |door: &Door, link| Desk {
            way: Way::new(door.clone(), link),
            watch: watch.clone(),
            inbox: inbox.clone(),
        };
        let (writing, reading) = (door.clone(), desk.clone());
        store.intake.start("tavern-store-w", async move |opened: Opened| {
            let Some(link) = opened.tell(first(&writing).await) else { return };
            desk(&writing, link).write_all(&commits).await;
        })?;
        store.intake.start("tavern-store-r", async move |opened: Opened| {
            let links = join_all((0..READERS).map(|_| door.connect())).await;
            let links: Result<Vec<Link>, Trouble> = links.into_iter().collect();
            let Some(links) = opened.tell(links.map_err(StoreError::from)) else { return };
            join_all(links.into_iter().map(|link| reading(&door, link).read_all(&reads))).await;
        })?;
        Ok(store)
    }
}

/// The first connection creates the tables.
async fn first(door: &Door) -> Result<Link, StoreError> {
    let link = door.connect().await?;
    schema::create(&link, &door.address.schema).await?;
    Ok(link)
}

impl Store for PostgresStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.intake.submit(work);
    }

    fn has_shared_clock(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str {
        "postgres"
    }

    fn reconnects(&self) -> u64 {
        self.intake.arrivals.count()
    }

    fn stop(&self) {
        self.intake.stop();
    }
}

/// One thread's part: its way to the database, and where its answers go.
struct Desk {
    way: Way,
    watch: Watch,
    inbox: Arc<dyn AnswerReceiver>,
}

impl Desk {
    async fn write_all(mut self, queue: &Queue<(Ticket, Commit)>) {
        let mut lane = None;
        while let Some(batch) = queue.next(limits::BATCH_COMMITS, BATCH_BYTES).await {
            let commits: Vec<&Commit> = batch.iter().map(|(_, commit)| commit).collect();
            let writing = async {
                let link = self.way.link().await?;
                let lane = match lane {
                    Some(lane) => lane,
                    None => *lane.insert(writer::choose_lane(link).await?),
                };
                Scribe { link, watch: &self.watch, lane }.write(&commits).await
            };
            let outcome = tokio::time::timeout(PATIENCE, writing).await.unwrap_or(Err(Trouble::Late));
            if outcome.as_ref().is_err_and(Trouble::ends_connection) {
                self.way.lose();
            }
            let tickets = batch.iter().map(|(ticket, _)| *ticket);
            let answers = match outcome {
                Ok(outcomes) => {
                    let answer =
                        |outcome: Result<_, _>| outcome.map_or_else(Answer::Failed, Answer::Committed);
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
    }

    async fn read_all(mut self, queue: &Queue<(Ticket, Read)>) {
        while let Some(batch) = queue.next(READS, usize::MAX).await {
            let (inbox, watch) = (&self.inbox, &self.watch);
            let lost = match self.way.link().await {
                Ok(link) => {
                    let lots = Lot::of(&batch).into_iter();
                    join_all(lots.map(|lot| answer_lot(link, watch, &**inbox, lot))).await.contains(&true)
                }
                Err(trouble) => {
                    let error = StoreError::from(trouble);
                    let failed = batch.iter().map(|(ticket, _)| (*ticket, Answer::Failed(error.clone())));
                    inbox.answer(failed.collect());
                    false
                }
            };
            if lost {
                self.way.lose();
            }
        }
    }
}

/// True: the connection is of no more use.
async fn answer_lot(link: &Link, watch: &Watch, inbox: &dyn AnswerReceiver, lot: Lot<'_>) -> bool {
    let mut lots = vec![lot];
    while let Some(lot) = lots.pop() {
        let outcome =
            tokio::time::timeout(PATIENCE, lot.read(link, watch)).await.unwrap_or(Err(Trouble::Late));
        let lost = outcome.as_ref().is_err_and(Trouble::ends_connection);
        match outcome {
            Ok(answers) => inbox.answer(answers),
            Err(_) if !lost && !lot.is_one() => lots.extend(lot.apart()),
            Err(trouble) => inbox.answer(lot.failed(&StoreError::from(trouble))),
        }
        if lost {
            let error = StoreError::from(Trouble::Down);
            lots.iter().for_each(|lot| inbox.answer(lot.failed(&error)));
            return true;
        }
    }
    false
}
