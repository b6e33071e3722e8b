//! The threads of a store and the queues in front of them: invalid work is answered at once, the rest waits for the
//! thread that writes or the one that reads. Must hold: each work is queued or answered; `stop` returns when the
//! threads have ended.

use crate::queue::{QueueRefusal, WorkQueue};
use crate::reconnects::Reconnects;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tavern_store::error::Outage;
use tavern_store::{AnswerReceiver, Commit, Read, StoreAnswer, StoreError, Ticket, Work};

pub(crate) struct Workers {
    receiver: Arc<dyn AnswerReceiver>,
    pub commits: Arc<WorkQueue<(Ticket, Commit)>>,
    pub reads: Arc<WorkQueue<(Ticket, Read)>>,
    pub reconnects: Arc<Reconnects>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Workers {
    pub fn new(receiver: Arc<dyn AnswerReceiver>) -> Workers {
        let (commits, reads) = (Arc::new(WorkQueue::new()), Arc::new(WorkQueue::new()));
        Workers { receiver, commits, reads, reconnects: Arc::default(), threads: Mutex::default() }
    }

    /// Starts a thread that drains one of the queues until it is closed.
    pub fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        self.threads().push(thread.map_err(StoreError::unavailable)?);
        Ok(())
    }

    /// The same with a runtime, for a store on a server. Returns when the thread has reported how its start went.
    pub fn start(
        &self,
        name: &str,
        run: impl AsyncFnOnce(Started) + Send + 'static,
    ) -> Result<(), StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StoreError::unavailable)?;
        let (report, started) = std::sync::mpsc::channel();
        self.spawn(name, move || runtime.block_on(run(Started(report))))?;
        started.recv().unwrap_or(Err(Outage::Stopped.into()))
    }

    pub fn submit(&self, work: Vec<(Ticket, Work)>) {
        let (mut commits, mut reads, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (ticket, work) in work {
            let bytes = work.bytes();
            match work {
                Work::Commit(commit) => match commit.check() {
                    Ok(()) => commits.push((bytes, (ticket, commit))),
                    Err(error) => failed.push((ticket, StoreAnswer::Failed(error))),
                },
                Work::Read(read) => reads.push((bytes, (ticket, read))),
            }
        }
        failed.extend(self.commits.push(commits).into_iter().map(|(why, (ticket, _))| refused(why, ticket)));
        failed.extend(self.reads.push(reads).into_iter().map(|(why, (ticket, _))| refused(why, ticket)));
        if !failed.is_empty() {
            self.receiver.answer(failed);
        }
    }

    /// Returns when everything that was queued is answered.
    pub fn stop(&self) {
        self.commits.close();
        self.reads.close();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("store thread panicked");
            }
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports to the opener of a store how the start of a thread went.
pub(crate) struct Started(std::sync::mpsc::Sender<Result<(), StoreError>>);

impl Started {
    pub fn report<T>(self, outcome: Result<T, StoreError>) -> Option<T> {
        let (found, reported) = match outcome {
            Ok(found) => (Some(found), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // If the opener has given up, the store is dropped, which stops this thread.
        let _ = self.0.send(reported);
        found
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

fn refused(why: QueueRefusal, ticket: Ticket) -> (Ticket, StoreAnswer) {
    match why {
        QueueRefusal::Full => (ticket, StoreAnswer::Failed(Outage::Full.into())),
        QueueRefusal::Closed => (ticket, StoreAnswer::Failed(Outage::Stopped.into())),
    }
}
