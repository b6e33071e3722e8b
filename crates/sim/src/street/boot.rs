//! How a process of a node begins and ends, as the server does it: it opens an epoch, takes up the sessions that the
//! last clean stop left, and lives; it packs its sessions into the store, says goodbye, and is gone. A failure of the
//! store on the way ends the process.

use super::house::{Asker, Desk, House, Life, Running};
use super::plant::Plant;
use super::world::{Alarm, Street};
use super::{DRAIN_MS, LEASE_MS, Outcome};
use std::sync::Arc;
use tavern_domain::{ClientId, Epoch};
use tavern_engine::{
    Answer, Commit, Found, NodeChange, Page, Read, Row, RowKey, SessionBody, StoredSession, Ticket,
    Versioned, Work, Writer,
};
use tavern_hub::migration::Packed;

pub struct Booting {
    pub desk: Desk,
    epoch: Option<Epoch>,
    left: Vec<StoredSession>,
}

pub struct Stopping {
    pub desk: Desk,
    writer: Writer,
    sessions: bool,
}

const DESK: Ticket = Ticket(0);

impl Street {
    /// A process of this name starts.
    pub fn boot(&mut self, at: usize) {
        let house = &mut self.houses[at];
        house.process += 1;
        let mut desk = Desk::new(&self.hall, &house.name);
        let open = NodeChange::Open { name: house.name.as_str().into(), lease_ms: LEASE_MS };
        desk.submit(Asker::Process, DESK, Work::Commit(Commit { node: Some(open), ..Commit::default() }));
        house.life = Life::Booting(Box::new(Booting { desk, epoch: None, left: Vec::new() }));
    }

    /// The process ends without a word.
    pub fn crash(&mut self, at: usize) {
        self.say(|| format!("house {at} crashes"));
        let now = self.now;
        match std::mem::replace(&mut self.houses[at].life, Life::Down) {
            Life::Up(running) => {
                running.bus.stop();
                running.desk.store.crash();
            }
            Life::Booting(booting) => booting.desk.store.crash(),
            Life::Stopping(stopping) => stopping.desk.store.crash(),
            Life::Down => {}
        }
        self.house_is_gone(at, now);
    }

    pub fn go_on_booting(&mut self, at: usize) -> Outcome {
        let name = self.houses[at].name.clone();
        let Life::Booting(booting) = &mut self.houses[at].life else { return Ok(()) };
        // It asks one thing at a time.
        let Some((_, _, answer)) = booting.desk.take_answers().pop() else { return Ok(()) };
        match answer {
            Answer::Committed(receipt) => {
                booting.epoch = receipt.epoch;
                booting.ask_sessions(&name, None);
            }
            Answer::Read(Found::Sessions(page)) => {
                let more = page.more;
                let last = booting.keep(page);
                if !more {
                    return self.open_doors(at);
                }
                booting.ask_sessions(&name, last);
            }
            _ => {
                self.crash(at);
                self.alarms.insert((self.now + 500, Alarm::Boot(at)));
            }
        }
        Ok(())
    }

    fn open_doors(&mut self, at: usize) -> Outcome {
        let Life::Booting(booting) = std::mem::replace(&mut self.houses[at].life, Life::Down) else {
            return Ok(());
        };
        let Booting { desk, epoch, left } = *booting;
        let epoch = epoch.unwrap_or(Epoch(0));
        let house = &self.houses[at];
        let mut running = Running::new(house, desk, &self.hall, epoch, (self.now, &mut self.rng), self.plant);
        let local = house.local(self.now);
        let writer = Some(Writer::new(&house.name, epoch));
        for stored in &left {
            let body = SessionBody::decode(&stored.body).map_err(|error| error.to_string())?;
            let packed = Packed {
                key: stored.secret,
                client: stored.client,
                user: stored.user.clone(),
                name: stored.name.clone(),
                detached_at: stored.detached_at.unwrap_or(local),
                expires_at: stored.expires_at,
                body,
            };
            running.shards[stored.secret.shard(house.shards)].adopt(local, &packed);
        }
        running.ready = left.is_empty();
        if !left.is_empty() {
            let deletes = left.iter().map(|stored| RowKey::Session(stored.client)).collect();
            let commit = Commit { writer, deletes, ..Commit::default() };
            running.desk.submit(Asker::Process, DESK, Work::Commit(commit));
        }
        self.adopted += left.len();
        self.say(|| format!("house {at} is open with epoch {} and {} sessions", epoch.0, left.len()));
        self.houses[at].life = Life::Up(Box::new(running));
        self.house_is_open(at, &left);
        self.carry_out(at)
    }

    /// A clean stop begins: no more commands, the sessions go to the store.
    pub fn stop(&mut self, at: usize) -> Outcome {
        self.say(|| format!("house {at} stops"));
        self.carry_out(at)?;
        let local = self.houses[at].local(self.now);
        let Life::Up(mut running) = std::mem::replace(&mut self.houses[at].life, Life::Down) else {
            return Ok(());
        };
        let mut packed = Vec::new();
        for shard in &mut running.shards {
            packed.extend(shard.pack(local));
        }
        running.bus.stop();
        let writer = Writer::new(&self.houses[at].name, running.node.epoch());
        if self.plant == Plant::ForgetSessions {
            self.planted |= !packed.is_empty();
            packed.clear();
        }
        let puts = packed.iter_mut().map(|session| Row::Session(stored(session, &writer))).collect();
        let mut desk = running.desk;
        let commit = Commit { writer: Some(writer.clone()), puts, ..Commit::default() };
        desk.submit(Asker::Process, DESK, Work::Commit(commit));
        self.houses[at].life = Life::Stopping(Box::new(Stopping { desk, writer, sessions: false }));
        self.house_is_gone(at, self.now);
        self.stops += 1;
        Ok(())
    }

    pub fn go_on_stopping(&mut self, at: usize) {
        let Life::Stopping(stopping) = &mut self.houses[at].life else { return };
        for (asker, _, answer) in stopping.desk.take_answers() {
            if asker != Asker::Process {
                continue;
            }
            if !matches!(answer, Answer::Committed(_)) {
                return self.crash(at);
            }
            if stopping.sessions {
                self.houses[at].life = Life::Down;
                self.houses[at].left = Some(self.houses[at].process);
                return;
            }
            stopping.sessions = true;
            let stop = NodeChange::Stop { node: stopping.writer.clone() };
            let writer = Some(stopping.writer.clone());
            let commit = Commit { writer, node: Some(stop), ..Commit::default() };
            stopping.desk.submit(Asker::Process, DESK, Work::Commit(commit));
        }
    }
}

impl Booting {
    fn ask_sessions(&mut self, name: &str, after: Option<ClientId>) {
        let node: Option<Arc<str>> = Some(name.into());
        self.desk.submit(Asker::Process, DESK, Work::Read(Read::Sessions { node, after, limit: 100 }));
    }

    fn keep(&mut self, page: Page<Versioned<StoredSession>>) -> Option<ClientId> {
        self.left.extend(page.rows.into_iter().map(|row| row.row));
        self.left.last().map(|stored| stored.client)
    }
}

fn stored(packed: &mut Packed, owner: &Writer) -> StoredSession {
    // The hub lists them in no order; a run must be the same each time.
    packed.body.subscriptions.sort_by(|one, two| one.name.cmp(&two.name));
    let stored = tavern_hub::migration::stored(packed, owner);
    StoredSession { expires_at: stored.expires_at + DRAIN_MS, ..stored }
}

impl House {
    pub fn is_down(&self) -> bool {
        matches!(self.life, Life::Down)
    }
}
