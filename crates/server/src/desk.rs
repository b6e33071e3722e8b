//! The server's own questions to the store: one work in, one answer awaited. Not for hot paths.

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

#[derive(Default)]
pub struct Desk {
    store: OnceLock<Arc<dyn Store>>,
    waiting: Mutex<HashMap<Ticket, Waiter>>,
    tickets: AtomicU64,
    shards: OnceLock<Vec<Arc<ShardInbox>>>,
}

enum Waiter {
    /// A shard, and its own number for the work.
    Shard(usize, Ticket),
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
        let first = self.tickets.fetch_add(work.len() as u64, Ordering::Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbered = Vec::with_capacity(work.len());
        for (at, (own, work)) in work.into_iter().enumerate() {
            let ticket = Ticket(first + at as u64);
            waiting.insert(ticket, Waiter::Shard(shard, own));
            numbered.push((ticket, work));
        }
        drop(waiting);
        if let Some(store) = self.store.get() {
            store.submit(numbered);
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

impl Inbox for Desk {
    fn answer(&self, answers: Vec<(Ticket, Answer)>) {
        let mut by_shard: BTreeMap<usize, Vec<(Ticket, Answer)>> = BTreeMap::new();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for (ticket, answer) in answers {
            // Whoever asked may have given up; then the answer is nobody's.
            match waiting.remove(&ticket) {
                Some(Waiter::Shard(shard, own)) => by_shard.entry(shard).or_default().push((own, answer)),
                Some(Waiter::Any(sender)) => drop(sender.send(answer)),
                Some(Waiter::Key(sender)) => drop(sender.send(key_of(answer))),
                None => {}
            }
        }
        drop(waiting);
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
