//! The place of this process among those of the folder: taken with its first subscription, left with its last handle,
//! taken again when others gave it away.
//! Must hold: a number is given once; what dies between two steps leaves nothing that its row does not name.

use crate::error::Error;
use crate::listen::forget_subscriber;
use crate::message::Interest;
use crate::process::{Process, State};
use crate::roster::Roster;
use crate::sweep;
use crate::table::{self, Head};
use crate::wake::{Bell, name_of};
use rusqlite::params;
use std::io;
use std::sync::Arc;
use std::time::Duration;

impl Process {
    /// Gives this process its number, if it has none. From then on others can see it and wake it.
    pub fn join(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        if state.displaced {
            return self.rejoin(state, patience);
        }
        if self.number() != 0 {
            return Ok(());
        }
        self.take_place(state, patience)
    }

    fn take_place(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        let bell = Arc::new(Bell::new(&self.folder)?);
        let (number, last_id) = self.take_number(patience)?;
        // After the row: somebody who dies in between leaves nothing that the row does not name.
        if let Err(error) = bell.hang(&self.folder, number) {
            self.give_back(number, patience);
            return Err(error);
        }
        (state.cursor, state.lost, state.unacked, state.unacked_bytes) = (last_id, 0, 0, 0);
        self.rename(number);
        self.hang(bell);
        Ok(())
    }

    /// A new number, written down, and the last message before it.
    fn take_number(&self, patience: Duration) -> Result<(i64, i64), Error> {
        let mut held = 0;
        let taken = self.write(patience, |database, head| {
            held = match self.find_number(head) {
                Ok(number) => number,
                Err(error) => return Ok(Err(error)),
            };
            let sql = "INSERT INTO process (id, pid, program, since) VALUES (?1, ?2, ?3, ?4)";
            database.execute(sql, params![held, self.pid, self.program, table::now_ms()])?;
            Ok(Ok((held, head.last_id)))
        });
        let taken = taken.inspect_err(|_| self.locks.leave(held))?;
        taken.map_err(|error| Error::io(&self.folder.path, "its lock failed", error))
    }

    /// The next number that nobody holds. Held, though never given, is one whose holder could not write it down.
    fn find_number(&self, head: &mut Head) -> io::Result<i64> {
        loop {
            head.last_process += 1;
            if self.locks.live(head.last_process)? {
                return Ok(head.last_process);
            }
        }
    }

    fn give_back(&self, number: i64, patience: Duration) {
        let sql = "DELETE FROM process WHERE id = ?1";
        // If this fails too, it is found dead as soon as its lock is free.
        let _ = self.write(patience, |database, _| database.execute(sql, [number]));
        self.locks.leave(number);
    }

    /// Others took this process for dead: it joins again under a new number, and says that it may have missed
    /// something. What fails is tried again at the next look.
    pub fn rejoin(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        state.displaced = true;
        self.leave(patience)?;
        self.take_place(state, patience)?;
        state.roster = Roster::default();
        let listening = state.subscribers.iter().filter(|(_, own)| !own.interests.is_empty());
        let all: Vec<(u64, Vec<Interest>)> =
            listening.map(|(id, own)| (*id, own.interests.iter().cloned().collect())).collect();
        for (id, interests) in all {
            self.enlist(state, id, &interests, patience)?;
        }
        state.departed.clear();
        state.displaced = false;
        for own in state.subscribers.values_mut().filter(|own| !own.interests.is_empty()) {
            own.mailbox.lose(0);
        }
        self.stir(state);
        Ok(())
    }

    /// Ends everything of one subscriber; nobody reads for it any more.
    pub fn remove_subscriber(&self, id: u64, patience: Duration) -> Result<(), Error> {
        let mut state = self.state();
        let Some(gone) = state.subscribers.remove(&id) else { return Ok(()) };
        if gone.interests.is_empty() {
            return Ok(());
        }
        gone.interests.iter().for_each(|interest| state.roster.remove(id, interest));
        state.departed.push(id);
        self.see_off(&mut state, patience)
    }

    /// Ends the subscriptions of those who are gone.
    pub fn see_off(&self, state: &mut State, patience: Duration) -> Result<(), Error> {
        let process = self.number();
        if state.departed.is_empty() || process == 0 {
            return Ok(());
        }
        let version = self.write(patience, |database, head| {
            state.departed.iter().try_for_each(|&id| forget_subscriber(database, head, process, id))?;
            Ok(head.roster)
        })?;
        self.page.raise(version);
        state.departed.clear();
        Ok(())
    }

    /// Nothing of this process stays in the folder.
    pub fn leave(&self, patience: Duration) -> Result<(), Error> {
        let number = self.number();
        if number == 0 {
            return Ok(());
        }
        self.folder.remove(&name_of(number));
        let gone = self.write(patience, |database, head| {
            sweep::forget(database, head, number)?;
            Ok(head.roster)
        });
        self.locks.leave(number);
        self.rename(0);
        self.page.raise(gone?);
        self.trim_all(patience)
    }
}
