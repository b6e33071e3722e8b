//! How a store with threads of its own takes work: what is wrong is answered at once, the rest waits for the thread that
//! writes or the one that reads. Must hold: each work is queued or answered; `stop` returns when the threads have ended.

use crate::queue::{Queue, Refused};
use crate::store::{Answer, Commit, Inbox, Outage, Read, Ticket, Work};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(crate) struct Intake {
    inbox: Arc<dyn Inbox>,
    pub commits: Arc<Queue<(Ticket, Commit)>>,
    pub reads: Arc<Queue<(Ticket, Read)>>,
    pub arrivals: Arc<Arrivals>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How often the store's server was found to be another life of it than before.
#[derive(Default)]
pub(crate) struct Arrivals {
    count: AtomicU64,
    life: Mutex<Option<String>>,
}

impl Arrivals {
    /// A connection was made, to this life of a server. None: nobody knows which.
    pub fn note(&self, life: Option<String>) {
        let mut known = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if life.is_none() || *known != life {
            self.count.fetch_add(1, Ordering::Relaxed);
            *known = life;
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Intake {
    pub fn new(inbox: Arc<dyn Inbox>) -> Intake {
        let (commits, reads) = (Arc::new(Queue::new()), Arc::new(Queue::new()));
        Intake { inbox, commits, reads, arrivals: Arc::default(), threads: Mutex::default() }
    }

    /// A thread that drains one of the queues until it is closed.
    pub fn keep(&self, thread: JoinHandle<()>) {
        self.threads().push(thread);
    }

    pub fn submit(&self, work: Vec<(Ticket, Work)>) {
        let (mut commits, mut reads, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (ticket, work) in work {
            let bytes = work.bytes();
            match work {
                Work::Commit(commit) => match commit.check() {
                    Ok(()) => commits.push((bytes, (ticket, commit))),
                    Err(error) => failed.push((ticket, Answer::Failed(error))),
                },
                Work::Read(read) => reads.push((bytes, (ticket, read))),
            }
        }
        failed.extend(self.commits.push(commits).into_iter().map(|(why, (ticket, _))| refused(why, ticket)));
        failed.extend(self.reads.push(reads).into_iter().map(|(why, (ticket, _))| refused(why, ticket)));
        if !failed.is_empty() {
            self.inbox.answer(failed);
        }
    }

    /// Ends when everything that was queued is answered.
    pub fn stop(&self) {
        self.commits.close();
        self.reads.close();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended in a panic");
            }
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.stop();
    }
}

fn refused(why: Refused, ticket: Ticket) -> (Ticket, Answer) {
    match why {
        Refused::Full => (ticket, Answer::Failed(Outage::Full.into())),
        Refused::Closed => (ticket, Answer::Failed(Outage::Stopped.into())),
    }
}
