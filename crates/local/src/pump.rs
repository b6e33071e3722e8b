//! Taking messages out of the database and giving them to the subscribers of this process.
//! Must hold: nothing is taken twice, nothing is skipped; what was lost is told before what follows it.

use crate::error::Error;
use crate::message::{Space, Words};
use crate::process::{Process, State};
use crate::table::Head;
use crate::{limits, sweep, table};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one look into the queue found.
struct Taken {
    words: Vec<Arc<Words>>,
    /// `lost` of this process; None: others took it for dead.
    lost: Option<i64>,
    more: bool,
}

impl Process {
    /// Takes what is there until `subscriber` has something to read or nothing is left.
    pub fn pump_for(&self, state: &mut State, subscriber: u64, patience: Duration) -> Result<(), Error> {
        self.hear(state);
        loop {
            let more = self.pump(state, subscriber, patience).inspect_err(|_| self.stir(state))?;
            if !more {
                return Ok(());
            }
            if state.subscribers.get(&subscriber).is_none_or(|own| !own.mailbox.is_empty()) {
                // What is left may be for the one who sleeps at the bell, and we have emptied it.
                self.stir(state);
                return Ok(());
            }
        }
    }

    /// Takes everything that is there.
    pub fn pump_all(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        self.hear(state);
        while self.pump(state, 0, patience).inspect_err(|_| self.stir(state))? {}
        Ok(())
    }

    /// The bell is emptied before the queue is read: what is committed later rings again.
    fn hear(&self, state: &mut State) {
        if self.bell().hear().narrow {
            state.narrow += 1;
            self.stir(state);
        }
    }

    /// Makes those who wait look up: there is something in a mailbox, or left in a queue whose bell was emptied.
    pub fn stir(&self, state: &State) {
        self.stirred.notify_all();
        if state.attended {
            self.bell().ring_home();
        }
    }

    /// Takes one part of the queue. False: nothing is left.
    fn pump(&self, state: &mut State, reader: u64, patience: Duration) -> Result<bool, Error> {
        let process = self.number();
        if process == 0 || state.displaced {
            return Ok(false);
        }
        let cursor = state.cursor;
        let taken = take(self.reader(state)?, process, cursor).map_err(|error| self.fault(error))?;
        let Some(lost) = taken.lost else {
            return or_later(self.rejoin(state, chore(patience))).map(|()| false);
        };
        let mut others = tell_losses(state, lost);
        for words in &taken.words {
            state.cursor = words.id;
            state.unacked += 1;
            state.unacked_bytes += words.size();
            others |= self.tell(state, words, reader);
        }
        if others {
            self.stir(state);
        }
        if state.unacked >= limits::UNACKED || state.unacked_bytes >= limits::UNACKED_BYTES {
            or_later(self.acknowledge(state, chore(patience)))?;
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

    /// Marks as read in the database what was read.
    pub fn acknowledge(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        if state.unacked == 0 {
            return Ok(());
        }
        let (process, cursor) = (self.number(), state.cursor);
        let lost = self.write(patience, |database, head| {
            let sql = "DELETE FROM queue WHERE process = ?1 AND id <= ?2";
            database.prepare_cached(sql)?.execute([process, cursor])?;
            sweep::trim(database, head)?;
            lost_of(database, process)
        })?;
        // What was lost up to now is set against what stood there up to now.
        if lost.is_some_and(|lost| tell_losses(state, lost)) {
            self.stir(state);
        }
        (state.unacked, state.unacked_bytes) = (0, 0);
        Ok(())
    }

    /// What is done once in a while by whoever is there. What cannot be done now is done later.
    pub fn look(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        state.looked_at = Instant::now();
        or_later(self.do_chores(state, chore(patience)))
    }

    fn do_chores(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        if state.displaced {
            return self.rejoin(state, patience);
        }
        if self.number() == 0 {
            return Ok(());
        }
        // Somebody in this process may have opened and closed the lock file, which frees every lock on it.
        let _ = self.locks.live(self.number());
        self.acknowledge(state, patience)?;
        self.see_off(state, patience)?;
        let head = Head::read(self.reader(state)?).map_err(|error| self.fault(error))?;
        if sweep::is_due(&head) {
            self.sweep(patience)?;
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

/// Says what others took out of our queue. What had been read and not yet marked as read is no loss.
/// True: somebody was told.
fn tell_losses(state: &mut State, lost: i64) -> bool {
    let gone = (lost - state.lost).max(0) as usize;
    let read = gone.min(state.unacked);
    state.lost = lost;
    state.unacked -= read;
    let missed = (gone - read) as u64;
    if missed == 0 {
        return false;
    }
    for own in state.subscribers.values_mut().filter(|own| !own.interests.is_empty()) {
        own.mailbox.lose(missed);
    }
    true
}

/// How long a chore may wait for its turn.
fn chore(patience: Duration) -> Duration {
    patience.min(Duration::from_millis(limits::CHORE_MS))
}

/// Reading does not depend on what a reader writes: what cannot be written now is written another time.
fn or_later(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if error.is_passing() => Ok(()),
        outcome => outcome,
    }
}

fn lost_of(database: &Connection, process: i64) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT lost FROM process WHERE id = ?1";
    database.prepare_cached(sql)?.query_row([process], |row| row.get(0)).optional()
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
    let lost = lost_of(database, process)?;
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
    Ok(Taken { words, lost, more })
}
