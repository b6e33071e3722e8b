//! Taking messages out of the database and giving them to the subscribers of this process.
//! Must hold: nothing is taken twice, nothing is skipped; what was lost is told before what follows it.

use crate::error::Error;
use crate::message::{Space, Words};
use crate::process::{Process, State};
use crate::{limits, sweep, table};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one look into the queue found.
struct Taken {
    words: Vec<Arc<Words>>,
    /// `lost` and `lost_to` of this process; None: others took it for dead.
    losses: Option<(i64, i64)>,
    more: bool,
}

impl Process {
    /// Takes what is there until `subscriber` has something to read or nothing is left.
    pub fn pump_for(&self, state: &mut State, subscriber: u64, patience: Duration) -> Result<(), Error> {
        self.hear(state);
        while self.pump(state, subscriber, patience)?
            && state.subscribers.get(&subscriber).is_some_and(|own| own.mailbox.is_empty())
        {}
        Ok(())
    }

    /// Takes everything that is there.
    pub fn pump_all(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        self.hear(state);
        while self.pump(state, 0, patience)? {}
        Ok(())
    }

    /// The bell is emptied before the queue is read: what is committed later rings again.
    fn hear(&self, state: &mut State) {
        if self.bell().hear().narrow {
            state.narrow += 1;
            self.stirred.notify_all();
        }
    }

    /// Takes one part of the queue. False: nothing is left.
    fn pump(&self, state: &mut State, reader: u64, patience: Duration) -> Result<bool, Error> {
        let process = self.number();
        if process == 0 {
            return Ok(false);
        }
        let cursor = state.cursor;
        let taken = take(self.reader(state)?, process, cursor).map_err(|error| self.fault(error))?;
        let Some((lost, lost_to)) = taken.losses else {
            self.rejoin(state, patience)?;
            return Ok(false);
        };
        self.tell_losses(state, lost, lost_to);
        let mut others = false;
        for words in &taken.words {
            state.cursor = words.id;
            state.unacked += 1;
            state.unacked_bytes += words.size();
            others |= self.tell(state, words, reader);
        }
        if others {
            self.stirred.notify_all();
            if state.attended {
                // The one who sleeps at the bell may have got something, and we have emptied the bell.
                self.bell().ring_home();
            }
        }
        if state.unacked >= limits::UNACKED || state.unacked_bytes >= limits::UNACKED_BYTES {
            self.acknowledge_or_later(state, patience)?;
        }
        Ok(taken.more)
    }

    /// Gives words to everybody here who hears them. True: somebody else than `reader` got something.
    fn tell(&self, state: &mut State, words: &Arc<Words>, reader: u64) -> bool {
        let here = self.number();
        let subscribers = &mut state.subscribers;
        let mut others = false;
        state.roster.hearers(words, |id, message| {
            let Some(subscriber) = subscribers.get_mut(&id) else { return };
            let own = words.process == here && words.subscriber == id;
            if !own || subscriber.echo {
                subscriber.mailbox.push(message);
                others |= id != reader;
            }
        });
        others
    }

    /// Says what others took out of our queue. What had been read and not yet marked as read is no loss.
    fn tell_losses(&self, state: &mut State, lost: i64, lost_to: i64) {
        let gone = (lost - state.lost).max(0) as usize;
        if gone == 0 {
            return;
        }
        state.lost = lost;
        let read = gone.min(state.unacked);
        state.unacked -= read;
        if lost_to > state.cursor {
            let missed = (gone - read) as u64;
            let listening = |own: &&mut crate::process::Subscriber| !own.interests.is_empty();
            for own in state.subscribers.values_mut().filter(listening) {
                own.mailbox.lose(missed);
            }
            self.stirred.notify_all();
        }
    }

    /// Marks as read in the database what was read.
    pub fn acknowledge(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        if state.unacked == 0 {
            return Ok(());
        }
        let (process, cursor) = (self.number(), state.cursor);
        self.write(patience, |database, head| {
            let sql = "DELETE FROM queue WHERE process = ?1 AND id <= ?2";
            database.prepare_cached(sql)?.execute([process, cursor])?;
            sweep::trim(database, head)
        })?;
        (state.unacked, state.unacked_bytes) = (0, 0);
        Ok(())
    }

    /// Marks that cannot be written now are written later; what was read stays read.
    fn acknowledge_or_later(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        or_later(self.acknowledge(state, patience))
    }

    /// What is done once in a while by whoever is there.
    pub fn look(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        state.looked_at = Instant::now();
        if self.number() == 0 {
            return Ok(());
        }
        // Somebody in this process may have opened and closed the lock file, which frees every lock on it.
        let _ = self.locks.live(self.number());
        self.acknowledge_or_later(state, patience)?;
        let sql = "SELECT swept_at FROM head";
        let swept_at: i64 =
            self.reader(state)?.query_row(sql, [], |row| row.get(0)).map_err(|error| self.fault(error))?;
        let since = table::now_ms() - swept_at;
        if !(0..limits::SWEEP_MS as i64).contains(&since) {
            or_later(self.sweep(patience).map(drop))?;
        }
        Ok(())
    }

    pub fn reader<'a>(&self, state: &'a mut State) -> Result<&'a Connection, Error> {
        if state.reader.is_none() {
            state.reader = Some(table::connect(&self.folder)?);
        }
        Ok(state.reader.as_ref().expect("it was made above"))
    }
}

fn or_later(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.is_passing() => Ok(()),
        outcome => outcome,
    }
}

/// Reads losses and the next messages in one moment of the database, which ends here.
fn take(database: &Connection, process: i64, cursor: i64) -> rusqlite::Result<Taken> {
    let run = |sql: &str| database.prepare_cached(sql)?.execute([]);
    run("BEGIN")?;
    let taken = take_inside(database, process, cursor);
    run("COMMIT")?;
    taken
}

fn take_inside(database: &Connection, process: i64, cursor: i64) -> rusqlite::Result<Taken> {
    let sql = "SELECT lost, lost_to FROM process WHERE id = ?1";
    let losses = database.prepare_cached(sql)?.query_row([process], |row| Ok((row.get(0)?, row.get(1)?)));
    let losses = losses.optional()?;
    let mut words = Vec::new();
    let mut bytes = 0;
    let sql = "SELECT log.id, log.process, subscriber, space, channel, note, payload \
               FROM queue JOIN log ON log.id = queue.id \
               WHERE queue.process = ?1 AND queue.id > ?2 ORDER BY queue.id LIMIT ?3";
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query(params![process, cursor, limits::PUMP as i64])?;
    while let Some(row) = rows.next()? {
        let blob = |at: usize| row.get_ref(at)?.as_blob().map(Box::from).map_err(rusqlite::Error::from);
        let one = Words {
            id: row.get(0)?,
            process: row.get(1)?,
            subscriber: row.get::<_, i64>(2)? as u64,
            space: Space::of(row.get(3)?),
            channel: blob(4)?,
            note: blob(5)?,
            payload: blob(6)?,
        };
        bytes += one.size();
        words.push(Arc::new(one));
        if bytes >= limits::PUMP_BYTES {
            break;
        }
    }
    let more = words.len() >= limits::PUMP || bytes >= limits::PUMP_BYTES;
    Ok(Taken { words, losses, more })
}
