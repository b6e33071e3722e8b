//! Subscribing and unsubscribing: first in the database for publishers to see, then in memory.
//! Must hold: what was published before an unsubscription, and counted, is still delivered.

use super::FolderReceiver;
use crate::database::FolderCounters;
use crate::error::Error;
use crate::limits;
use crate::message::{Interest, InterestKind};
use crate::process::Process;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;
use std::time::Duration;

impl FolderReceiver {
    /// Subscribes to what is not subscribed to yet. Returns how many subscriptions the subscriber has then.
    pub fn add_interests(
        &mut self,
        process: &Process,
        subscriber: u64,
        interests: BTreeSet<Interest>,
        timeout: Duration,
    ) -> Result<usize, Error> {
        let own = &self.subscribers.get(subscriber).expect("the handle keeps it").interests;
        let new: Vec<Interest> = interests.into_iter().filter(|interest| !own.contains(interest)).collect();
        if !new.is_empty() {
            self.register(process, timeout)?;
            self.store_interests(process, subscriber, &new, timeout)?;
        }
        if new.iter().any(|interest| interest.kind == InterestKind::Everything) {
            // Earlier requests to narrow were meant for others.
            self.subscribers.skip_narrow_requests(subscriber);
        }
        Ok(self.subscribers.count_of(subscriber))
    }

    /// Registers the process, if it is not.
    fn register(&mut self, process: &Process, timeout: Duration) -> Result<(), Error> {
        if self.displaced {
            return self.register_again(process, timeout);
        }
        if process.number() == 0 {
            self.queue.restart(process.register(timeout)?);
        }
        Ok(())
    }

    /// Stores the interests of a subscriber. Idempotent.
    pub(super) fn store_interests(
        &mut self,
        process: &Process,
        subscriber: u64,
        interests: &[Interest],
        timeout: Duration,
    ) -> Result<(), Error> {
        let number = process.number();
        for part in interests.chunks(limits::SUBSCRIBE) {
            let last_id = process.database.write(timeout, |database, counters| {
                let added = insert(database, part, number, subscriber)?;
                count_change(counters, part, added);
                Ok(counters.last_id)
            })?;
            for interest in part {
                self.subscribers.routes.add(subscriber, interest, last_id);
                let subscriber = self.subscribers.get_mut(subscriber).expect("the handle keeps it");
                subscriber.interests.insert(interest.clone());
            }
        }
        Ok(())
    }

    /// Unsubscribes from what is subscribed to. Returns how many subscriptions the subscriber has then.
    pub fn remove_interests(
        &mut self,
        process: &Process,
        subscriber: u64,
        interests: BTreeSet<Interest>,
        timeout: Duration,
    ) -> Result<usize, Error> {
        let Some(own) = self.subscribers.get(subscriber) else { return Ok(0) };
        let old: Vec<Interest> =
            interests.into_iter().filter(|interest| own.interests.contains(interest)).collect();
        let number = process.number();
        for part in old.chunks(limits::SUBSCRIBE) {
            let last_id = process.database.write(timeout, |database, counters| {
                let removed = delete(database, part, number, subscriber)?;
                count_change(counters, part, -removed);
                Ok(counters.last_id)
            })?;
            for interest in part {
                // Later messages are not for it, even if other subscribers of this process receive them.
                self.subscribers.routes.end(subscriber, interest, last_id);
                if let Some(subscriber) = self.subscribers.get_mut(subscriber) {
                    subscriber.interests.remove(interest);
                }
            }
            self.fetch_all(process, timeout)?;
            part.iter().for_each(|interest| self.subscribers.routes.remove(subscriber, interest));
        }
        Ok(self.subscribers.count_of(subscriber))
    }

    /// Ends everything of one subscriber. If the database cannot be written now, maintenance retries.
    pub fn remove_subscriber(
        &mut self,
        process: &Process,
        subscriber: u64,
        timeout: Duration,
    ) -> Result<(), Error> {
        if self.subscribers.remove(subscriber) {
            self.departed.push(subscriber);
            self.remove_departed(process, timeout)?;
        }
        Ok(())
    }

    /// Removes the subscriptions of closed subscribers.
    pub(super) fn remove_departed(&mut self, process: &Process, timeout: Duration) -> Result<(), Error> {
        let number = process.number();
        if self.departed.is_empty() || number == 0 {
            return Ok(());
        }
        process.database.write(timeout, |database, counters| {
            self.departed.iter().try_for_each(|&id| delete_all(database, counters, number, id))
        })?;
        self.departed.clear();
        Ok(())
    }
}

/// Returns how many rows are new.
fn insert(database: &Connection, part: &[Interest], process: i64, subscriber: u64) -> rusqlite::Result<i64> {
    let sql = "INSERT OR IGNORE INTO subscription (namespace, kind, name, process, subscriber) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    change(database, sql, part, process, subscriber)
}

/// Returns how many rows there were.
fn delete(database: &Connection, part: &[Interest], process: i64, subscriber: u64) -> rusqlite::Result<i64> {
    let sql = "DELETE FROM subscription \
               WHERE namespace = ?1 AND kind = ?2 AND name = ?3 AND process = ?4 AND subscriber = ?5";
    change(database, sql, part, process, subscriber)
}

fn change(
    database: &Connection,
    sql: &str,
    part: &[Interest],
    process: i64,
    subscriber: u64,
) -> rusqlite::Result<i64> {
    let mut statement = database.prepare_cached(sql)?;
    let mut changed = 0;
    for Interest { namespace, kind, name } in part {
        let row = params![*namespace as i64, *kind as i64, name, process, subscriber as i64];
        changed += statement.execute(row)?;
    }
    Ok(changed as i64)
}

/// Removes every subscription of one subscriber.
fn delete_all(
    database: &Connection,
    counters: &mut FolderCounters,
    process: i64,
    subscriber: u64,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM subscription WHERE process = ?1 AND subscriber = ?2";
    let ended = database.prepare_cached(sql)?.execute([process, subscriber as i64])?;
    counters.subscriptions -= ended as i64;
    counters.subscriptions_version += 1;
    counters.patterns_version += 1;
    Ok(())
}

/// Makes publishers drop what they cached.
fn count_change(counters: &mut FolderCounters, part: &[Interest], by: i64) {
    counters.subscriptions_version += 1;
    counters.patterns_version +=
        u64::from(part.iter().any(|interest| interest.kind != InterestKind::Channel));
    counters.subscriptions += by;
}
