//! Waits for single answers, for tools and tests. Not for the server: a hub never waits.

use crate::commit::{Commit, Receipt};
use crate::error::StoreError;
use crate::read::{Found, Read};
use crate::store::{AnswerReceiver, Store, StoreAnswer, Ticket, Work};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A store whose callers wait for each answer, for tools and tests. See the example of this crate.
pub struct BlockingStore {
    store: Arc<dyn Store>,
    answers: Arc<PendingAnswers>,
    tickets: AtomicU64,
    timeout: Duration,
}

#[derive(Default)]
struct PendingAnswers {
    /// Tickets that a caller waits for, with the answer once it has arrived.
    waiting: Mutex<BTreeMap<Ticket, Option<StoreAnswer>>>,
    arrived: Condvar,
}

impl BlockingStore {
    /// Wraps the store that `open` returns.
    pub fn with(
        timeout: Duration,
        open: impl FnOnce(Arc<dyn AnswerReceiver>) -> Result<Arc<dyn Store>, StoreError>,
    ) -> Result<BlockingStore, StoreError> {
        let answers = Arc::new(PendingAnswers::default());
        let store = open(answers.clone())?;
        Ok(BlockingStore { store, answers, tickets: AtomicU64::new(1), timeout })
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Commits and waits. A timeout is `Unavailable`: the outcome is then unknown.
    pub fn commit(&self, commit: Commit) -> Result<Receipt, StoreError> {
        match self.run(vec![Work::Commit(commit)]).remove(0) {
            StoreAnswer::Committed(receipt) => Ok(receipt),
            StoreAnswer::Failed(error) => Err(error),
            StoreAnswer::Read(found) => unreachable!("a commit was answered with {found:?}"),
        }
    }

    /// Reads and waits.
    pub fn read(&self, read: Read) -> Result<Found, StoreError> {
        match self.run(vec![Work::Read(read)]).remove(0) {
            StoreAnswer::Read(found) => Ok(found),
            StoreAnswer::Failed(error) => Err(error),
            StoreAnswer::Committed(receipt) => unreachable!("a read was answered with {receipt:?}"),
        }
    }

    /// Submits all works together; returns the answers in the same order.
    pub fn run(&self, works: Vec<Work>) -> Vec<StoreAnswer> {
        let first = self.tickets.fetch_add(works.len() as u64, Ordering::Relaxed);
        let tickets: Vec<Ticket> = (first..).map(Ticket).take(works.len()).collect();
        self.answers.lock().extend(tickets.iter().map(|&ticket| (ticket, None)));
        self.store.submit(tickets.iter().copied().zip(works).collect());
        let waiting = self.answers.lock();
        let late = |waiting: &mut BTreeMap<Ticket, Option<StoreAnswer>>| {
            tickets.iter().any(|ticket| waiting.get(ticket).is_none_or(Option::is_none))
        };
        let (mut waiting, _) = self
            .answers
            .arrived
            .wait_timeout_while(waiting, self.timeout, late)
            .unwrap_or_else(PoisonError::into_inner);
        let answer = |ticket| waiting.remove(ticket).flatten();
        tickets
            .iter()
            .map(answer)
            .map(|answer| answer.unwrap_or_else(|| StoreAnswer::Failed(StoreError::timeout())))
            .collect()
    }
}

impl Drop for BlockingStore {
    fn drop(&mut self) {
        self.store.stop();
    }
}

impl PendingAnswers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ticket, Option<StoreAnswer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AnswerReceiver for PendingAnswers {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        let mut waiting = self.lock();
        for (ticket, answer) in answers {
            // The answer came too late: its caller has stopped waiting.
            if let Some(slot) = waiting.get_mut(&ticket) {
                *slot = Some(answer);
            }
        }
        drop(waiting);
        self.arrived.notify_all();
    }
}
