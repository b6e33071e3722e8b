//! How a store with threads of its own takes work: what is wrong is answered at once, the rest waits for the thread that
//! writes or the one that reads. Must hold: each work is queued or answered; `stop` returns when the threads have ended.

use crate::queue::{Queue, Refused};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tavern_store::commit::Commit;
use tavern_store::error::Outage;
#[cfg(any(feature = "postgres", feature = "redis"))]
use tavern_store::error::StoreError;
use tavern_store::read::Read;
use tavern_store::store::{Answer, AnswerReceiver, Ticket, Work};

pub(crate) struct Intake {
    inbox: Arc<dyn AnswerReceiver>,
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
    pub fn new(inbox: Arc<dyn AnswerReceiver>) -> Intake {
        let (commits, reads) = (Arc::new(Queue::new()), Arc::new(Queue::new()));
        Intake { inbox, commits, reads, arrivals: Arc::default(), threads: Mutex::default() }
    }

    /// A thread that drains one of the queues until it is closed.
    pub fn keep(&self, thread: JoinHandle<()>) {
        self.threads().push(thread);
    }

    /// A thread of its own with a runtime, for a store on a server. Returns once it has said how its opening went.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub fn start(
        &self,
        name: &str,
        run: impl AsyncFnOnce(Opened) + Send + 'static,
    ) -> Result<(), StoreError> {
        let wrong = |error: std::io::Error| StoreError::Unavailable {
            retry_after_ms: tavern_store::limits::RETRY_AFTER_MS,
            source: Arc::new(error),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(wrong)?;
        let (tell, opened) = std::sync::mpsc::channel();
        let run = move || runtime.block_on(run(Opened(tell)));
        self.keep(std::thread::Builder::new().name(name.into()).spawn(run).map_err(wrong)?);
        opened.recv().unwrap_or(Err(Outage::Stopped.into()))
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

/// Tells whoever opens a store how it went.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) struct Opened(std::sync::mpsc::Sender<Result<(), StoreError>>);

#[cfg(any(feature = "postgres", feature = "redis"))]
impl Opened {
    pub fn tell<T>(self, outcome: Result<T, StoreError>) -> Option<T> {
        let (found, told) = match outcome {
            Ok(found) => (Some(found), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // Nobody listens when the thread that opens has gone; then the store is dropped and stops.
        let _ = self.0.send(told);
        found
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
