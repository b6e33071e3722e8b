//! The receiving half of a process: fetches messages from its queue, delivers them to its subscribers and runs
//! maintenance. All threads of the process share one receiver behind a mutex, which is taken before the database's.

mod queue;
mod subscribe;

use crate::database::{FolderCounters, is_sweep_due};
use crate::error::Error;
use crate::limits;
use crate::options::Options;
use crate::process::Process;
use crate::routing::SubscriberRoutes;
use crate::subscribers::LocalSubscribers;
use queue::ProcessQueue;
use rusqlite::Connection;
use std::time::{Duration, Instant};

pub struct FolderReceiver {
    pub subscribers: LocalSubscribers,
    queue: ProcessQueue,
    /// Another process took this one for dead, and it has not registered again yet.
    displaced: bool,
    /// Subscribers that were closed and whose subscriptions are still in the database.
    departed: Vec<u64>,
    /// A thread sleeps at the waker; the others wait for it to return.
    pub sleeping: bool,
    maintained_at: Instant,
}

impl FolderReceiver {
    pub fn new() -> FolderReceiver {
        FolderReceiver {
            subscribers: LocalSubscribers::default(),
            queue: ProcessQueue::default(),
            displaced: false,
            departed: Vec::new(),
            sleeping: false,
            maintained_at: Instant::now(),
        }
    }

    pub fn add_subscriber(&mut self, options: &Options) -> u64 {
        self.subscribers.add(options)
    }

    /// Fetches messages until `subscriber` has one to read or none is left.
    pub fn fetch_for(&mut self, process: &Process, subscriber: u64, timeout: Duration) -> Result<(), Error> {
        self.drain_signals(process);
        while self.fetch(process, subscriber, timeout)? {
            if !self.subscribers.is_empty(subscriber) {
                // The rest may be for the thread that sleeps, and its signal is consumed.
                process.notify(self.sleeping);
                break;
            }
        }
        Ok(())
    }

    /// Fetches all messages.
    fn fetch_all(&mut self, process: &Process, timeout: Duration) -> Result<(), Error> {
        self.drain_signals(process);
        while self.fetch(process, 0, timeout)? {}
        Ok(())
    }

    /// Consumes the signals before the queue is read: whatever is committed later signals again.
    fn drain_signals(&mut self, process: &Process) {
        if process.waker().drain() {
            self.subscribers.request_narrow();
            process.notify(self.sleeping);
        }
    }

    /// Fetches one part of the queue. False: nothing is left. After an error the signals that were consumed are passed
    /// on to the other threads.
    fn fetch(&mut self, process: &Process, reader: u64, timeout: Duration) -> Result<bool, Error> {
        let sleeping = self.sleeping;
        self.fetch_part(process, reader, timeout).inspect_err(|_| process.notify(sleeping))
    }

    fn fetch_part(&mut self, process: &Process, reader: u64, timeout: Duration) -> Result<bool, Error> {
        let number = process.number();
        if number == 0 || self.displaced {
            return Ok(false);
        }
        let Some(fetched) = self.queue.fetch(&process.database, number)? else {
            ignore_transient(self.register_again(process, brief(timeout)))?;
            return Ok(false);
        };
        let mut others = self.deliver_gap(fetched.missed);
        for publication in &fetched.publications {
            others |= self.subscribers.deliver(publication, number, reader);
        }
        if others {
            process.notify(self.sleeping);
        }
        if self.queue.is_acknowledgement_due() {
            ignore_transient(self.acknowledge(process, brief(timeout)))?;
        }
        Ok(fetched.more)
    }

    /// True: there was a gap to deliver.
    fn deliver_gap(&mut self, missed: u64) -> bool {
        if missed > 0 {
            self.subscribers.deliver_gap(missed);
        }
        missed > 0
    }

    fn acknowledge(&mut self, process: &Process, timeout: Duration) -> Result<(), Error> {
        let missed = self.queue.acknowledge(&process.database, process.number(), timeout)?;
        if self.deliver_gap(missed) {
            process.notify(self.sleeping);
        }
        Ok(())
    }

    /// How long until maintenance is due.
    pub fn until_maintenance(&self) -> Duration {
        Duration::from_millis(limits::MAINTENANCE_MS).saturating_sub(self.maintained_at.elapsed())
    }

    /// Runs the maintenance that is due. What cannot be done now is retried the next time.
    pub fn maintain(&mut self, process: &Process, timeout: Duration) -> Result<(), Error> {
        self.maintained_at = Instant::now();
        ignore_transient(self.try_maintain(process, brief(timeout)))
    }

    fn try_maintain(&mut self, process: &Process, timeout: Duration) -> Result<(), Error> {
        if self.displaced {
            return self.register_again(process, timeout);
        }
        if process.number() == 0 {
            return Ok(());
        }
        // Other code in this process may have opened and closed the lock file, which releases every lock on it.
        let _ = process.database.locks.claim(process.number());
        self.acknowledge(process, timeout)?;
        self.remove_departed(process, timeout)?;
        let counters = self.read(process, FolderCounters::read)?;
        if is_sweep_due(&counters) {
            process.database.sweep(timeout)?;
        }
        Ok(())
    }

    /// Registers under a new number after another process took this one for dead, and reports a gap to every
    /// subscriber. If it fails, the next maintenance tries again.
    fn register_again(&mut self, process: &Process, timeout: Duration) -> Result<(), Error> {
        self.displaced = true;
        process.unregister(timeout)?;
        self.queue.restart(process.register(timeout)?);
        self.subscribers.routes = SubscriberRoutes::default();
        for (subscriber, interests) in self.subscribers.interests() {
            self.store_interests(process, subscriber, &interests, timeout)?;
        }
        self.departed.clear();
        self.displaced = false;
        self.subscribers.deliver_gap(0);
        process.notify(self.sleeping);
        Ok(())
    }

    /// Runs a query on the connection for reading.
    pub fn read<T>(
        &mut self,
        process: &Process,
        query: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        query(self.queue.connection(&process.database)?).map_err(|error| process.database.error(error))
    }
}

/// How long a write that can be retried later may wait for the write lock.
fn brief(timeout: Duration) -> Duration {
    timeout.min(Duration::from_millis(limits::ACKNOWLEDGE_MS))
}

/// Reading does not depend on what a reader writes: a write that fails for now is retried later.
fn ignore_transient(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_transient() => Ok(()),
        result => result,
    }
}
