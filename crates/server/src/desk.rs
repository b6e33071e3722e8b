//! Between the server and its store: the work of shards, whose answers go back as mail, and the server's own questions,
//! one work in, one answer awaited. Must hold: nothing is looked up for the work of a shard; its ticket says whose it is.

use crate::auth::KeySource;
use crate::shard::inbox::Inbox as ShardInbox;
use crate::shard::mail::Mail;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tavern_engine::{Answer, ApiKey, Commit, Found, Inbox, Read, Receipt, Store, StoreError, Ticket, Work};
use tokio::sync::oneshot;

/// How long the store may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A ticket's bits from here on are the number of its shard, counted from one; without them it is the desk's own.
const SHARD_SHIFT: u32 = 48;

#[derive(Default)]
pub struct Desk {
    store: OnceLock<Arc<dyn Store>>,
    waiting: Mutex<HashMap<Ticket, Waiter>>,
    tickets: AtomicU64,
    shards: OnceLock<Vec<Arc<ShardInbox>>>,
}

enum Waiter {
    Any(oneshot::Sender<Answer>),
    Key(oneshot::Sender<Result<Option<ApiKey>, StoreError>>),
}

#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store did not answer within 10 s")]
    Late,
}

impl Desk {
    /// The store is opened with the desk as its inbox, then set here.
    pub fn set_store(&self, store: Arc<dyn Store>) {
        let _ = self.store.set(store);
    }

    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.store.get()
    }

    fn submit(&self, work: Work, waiter: Waiter) {
        let ticket = Ticket(self.tickets.fetch_add(1, Ordering::Relaxed));
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket, waiter);
        if let Some(store) = self.store.get() {
            store.submit(vec![(ticket, work)]);
        }
    }

    /// The shards are made after the store is opened; they are set here.
    pub fn set_shards(&self, shards: Vec<Arc<ShardInbox>>) {
        let _ = self.shards.set(shards);
    }

    /// Work of a shard; its answers come as mail.
    pub fn submit_for(&self, shard: usize, work: Vec<(Ticket, Work)>) {
        let of_shard = |own: Ticket| {
            assert!(own.0 >> SHARD_SHIFT == 0, "a shard counts its work from one");
            Ticket((shard as u64 + 1) << SHARD_SHIFT | own.0)
        };
        if let Some(store) = self.store.get() {
            store.submit(work.into_iter().map(|(own, work)| (of_shard(own), work)).collect());
        }
    }

    async fn ask(&self, work: Work) -> Result<Answer, DeskError> {
        match self.answer_to(work).await {
            Some(Answer::Failed(error)) => Err(error.into()),
            Some(answer) => Ok(answer),
            None => Err(DeskError::Late),
        }
    }

    /// Whatever the store answers. None: nothing in time.
    pub async fn answer_to(&self, work: Work) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        self.submit(work, Waiter::Any(sender));
        tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
    }

    pub async fn commit(&self, commit: Commit) -> Result<Receipt, DeskError> {
        match self.ask(Work::Commit(commit)).await? {
            Answer::Committed(receipt) => Ok(receipt),
            other => unreachable!("a commit was answered with {other:?}"),
        }
    }

    pub async fn read(&self, read: Read) -> Result<Found, DeskError> {
        match self.ask(Work::Read(read)).await? {
            Answer::Read(found) => Ok(found),
            other => unreachable!("a read was answered with {other:?}"),
        }
    }
}

impl Desk {
    /// Whoever asked may have given up; then the answer is nobody's.
    fn tell(&self, ticket: Ticket, answer: Answer) {
        match self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&ticket) {
            Some(Waiter::Any(sender)) => drop(sender.send(answer)),
            Some(Waiter::Key(sender)) => drop(sender.send(key_of(answer))),
            None => {}
        }
    }
}

impl Inbox for Desk {
    fn answer(&self, answers: Vec<(Ticket, Answer)>) {
        let mut by_shard: BTreeMap<usize, Vec<(Ticket, Answer)>> = BTreeMap::new();
        for (ticket, answer) in answers {
            match (ticket.0 >> SHARD_SHIFT).checked_sub(1) {
                Some(shard) => {
                    let own = Ticket(ticket.0 & ((1 << SHARD_SHIFT) - 1));
                    by_shard.entry(shard as usize).or_default().push((own, answer));
                }
                None => self.tell(ticket, answer),
            }
        }
        for (shard, answers) in by_shard {
            if let Some(inbox) = self.shards.get().and_then(|shards| shards.get(shard)) {
                inbox.force(Mail::Answers(answers));
            }
        }
    }
}

impl KeySource for Desk {
    fn find(&self, hash: [u8; 32], reply: oneshot::Sender<Result<Option<ApiKey>, StoreError>>) {
        self.submit(Work::Read(Read::KeyByHash(hash)), Waiter::Key(reply));
    }
}

fn key_of(answer: Answer) -> Result<Option<ApiKey>, StoreError> {
    match answer {
        Answer::Read(Found::Key(key)) => Ok(key.map(|versioned| versioned.row)),
        Answer::Failed(error) => Err(error),
        other => unreachable!("a question for a key was answered with {other:?}"),
    }
}
