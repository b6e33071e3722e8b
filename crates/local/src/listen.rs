//! Subscribing and unsubscribing: first in the database for others to see, then in memory.
//! Must hold: what was published before an unsubscription, and counted, is still delivered.

use crate::error::Error;
use crate::message::{Interest, Kind};
use crate::process::{Process, State};
use crate::table::Head;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;
use std::time::Duration;

/// Names in one transaction: it holds everybody else up.
const NAMES: usize = 1_000;

impl Process {
    pub fn listen(
        &self,
        state: &mut State,
        subscriber: u64,
        interests: BTreeSet<Interest>,
        patience: Duration,
    ) -> Result<(), Error> {
        let own = &state.subscribers.get(&subscriber).expect("the handle keeps it").interests;
        let new: Vec<Interest> = interests.into_iter().filter(|interest| !own.contains(interest)).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.join(state, patience)?;
        self.enlist(state, subscriber, &new, patience)?;
        if new.iter().any(|interest| interest.kind == Kind::Everything) {
            // Whoever asked before did not mean it.
            let narrow = state.narrow;
            state.subscribers.get_mut(&subscriber).expect("the handle keeps it").narrowed = narrow;
        }
        Ok(())
    }

    /// Writes down what a subscriber listens to. Again is the same as once.
    pub fn enlist(
        &self,
        state: &mut State,
        subscriber: u64,
        interests: &[Interest],
        patience: Duration,
    ) -> Result<(), Error> {
        let process = self.number();
        for part in interests.chunks(NAMES) {
            let head = self.write(patience, |database, head| {
                let sql = "INSERT OR IGNORE INTO subscription (space, kind, name, process, subscriber) \
                           VALUES (?1, ?2, ?3, ?4, ?5)";
                let mut insert = database.prepare_cached(sql)?;
                let mut added = 0;
                for Interest { space, kind, name } in part {
                    let row = params![*space as i64, *kind as i64, name, process, subscriber as i64];
                    added += insert.execute(row)?;
                }
                changed(head, part, added as i64);
                Ok(*head)
            })?;
            self.page.raise(head.roster);
            for interest in part {
                state.roster.add(subscriber, interest, head.last_id);
                let subscriber = state.subscribers.get_mut(&subscriber).expect("the handle keeps it");
                subscriber.interests.insert(interest.clone());
            }
        }
        Ok(())
    }

    pub fn unlisten(
        &self,
        state: &mut State,
        subscriber: u64,
        interests: BTreeSet<Interest>,
        patience: Duration,
    ) -> Result<(), Error> {
        let Some(own) = state.subscribers.get(&subscriber) else { return Ok(()) };
        let old: Vec<Interest> =
            interests.into_iter().filter(|interest| own.interests.contains(interest)).collect();
        let process = self.number();
        for part in old.chunks(NAMES) {
            let head = self.write(patience, |database, head| {
                let removed = remove(database, part, process, subscriber)?;
                changed(head, part, -removed);
                Ok(*head)
            })?;
            self.page.raise(head.roster);
            for interest in part {
                // Whatever comes later was not meant for it, even if others here hear it.
                state.roster.end(subscriber, interest, head.last_id);
                if let Some(subscriber) = state.subscribers.get_mut(&subscriber) {
                    subscriber.interests.remove(interest);
                }
            }
            self.pump_all(state, patience)?;
            part.iter().for_each(|interest| state.roster.remove(subscriber, interest));
        }
        Ok(())
    }
}

fn remove(database: &Connection, part: &[Interest], process: i64, subscriber: u64) -> rusqlite::Result<i64> {
    let sql = "DELETE FROM subscription \
               WHERE space = ?1 AND kind = ?2 AND name = ?3 AND process = ?4 AND subscriber = ?5";
    let mut delete = database.prepare_cached(sql)?;
    let mut removed = 0;
    for Interest { space, kind, name } in part {
        removed += delete.execute(params![*space as i64, *kind as i64, name, process, subscriber as i64])?;
    }
    Ok(removed as i64)
}

/// Removes everything that one subscriber listens to.
pub fn forget_subscriber(
    database: &Connection,
    head: &mut Head,
    process: i64,
    subscriber: u64,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM subscription WHERE process = ?1 AND subscriber = ?2";
    let ended = database.prepare_cached(sql)?.execute([process, subscriber as i64])?;
    head.subscriptions -= ended as i64;
    head.roster += 1;
    head.patterns += 1;
    Ok(())
}

/// Publishers must look again at what they remember.
fn changed(head: &mut Head, part: &[Interest], by: i64) {
    head.roster += 1;
    head.patterns += u64::from(part.iter().any(|interest| interest.kind != Kind::Channel));
    head.subscriptions += by;
}
