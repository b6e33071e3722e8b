//! How a store with threads of its own takes work: what is wrong is answered at once, the rest waits for the thread that
//! writes or the one that reads. Must hold: each work is queued or answered; `stop` returns when the threads have ended.

use crate::queue::{Queue, Refused};
use crate::store::{Answer, Commit, Inbox, Outage, Read, Ticket, Work};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub(crate) struct Intake {
    inbox: Arc<dyn Inbox>,
    pub commits: Arc<Queue<(Ticket, Commit)>>,
    pub reads: Arc<Queue<(Ticket, Read)>>,
    /// Connections to a server that were made so far.
    pub arrivals: Arc<AtomicU64>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
