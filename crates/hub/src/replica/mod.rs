//! Copies of stored rows that a lossy bus keeps fresh: what `transaction` is for writes. A replica says what it is: how its
//! rows are read page by page, how an update of the bus is applied, which version it has. The driver runs its life: it
//! reads, keeps updates that arrive meanwhile, reads again when one is missing or when the store is newer, retries, answers
//! who waits, and drops what nobody uses. It knows no shard.
//! Must hold: a replica has at most one read in flight; an update that arrives during a read is applied after it; a read
//! serves only those who asked before it began; a failed read is retried until the replica is dropped; waits have an end.

mod contract;
mod documents;

pub(crate) use contract::{PageLoad, Replica, ReplicaHost};
pub(crate) use documents::DocumentList;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Applied;
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{Found, Read, StoreAnswer, StoreError, Ticket, planted};

/// Updates that are kept while rows are read; with more they are read again.
const UPDATES_MAX: usize = 10_000;
/// How long somebody waits for reads that begin again and again.
const WAIT_MS: u64 = 15_000;
/// Failures in a row after which the delay before a retry stops growing: at most four seconds.
const BACKOFF_MAX: u32 = 4;

/// A read has ended. The copy may be unused by now: see `Replicas::drop_unused`.
pub(crate) struct ReplicaRead<W> {
    pub name: Arc<str>,
    /// Why it failed; it is retried.
    pub failed: Option<StoreAnswer>,
    /// Those who waited for it.
    pub waiters: Vec<W>,
}

/// All replicas of one kind.
pub(crate) struct Replicas<R: Replica> {
    owner: <R::Host as ReplicaHost>::Owner,
    lives: HashMap<Arc<str>, Box<ReplicaLife<R>>, RandomState>,
    asked: HashMap<Ticket, (Arc<str>, ReplicaQuestion), RandomState>,
    /// How often they were compared.
    round: usize,
}

/// What a replica asked of the store.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplicaQuestion {
    Page,
    Compare,
}

struct ReplicaLife<R: Replica> {
    replica: R,
    /// It was read at least once.
    loaded: bool,
    /// The page that is being read.
    reading: Option<Ticket>,
    /// The number of the last read that began.
    reads: u64,
    /// Somebody needs a later read than the one in progress.
    again: bool,
    /// The read in progress is older than what is known: it answers nobody.
    outdated: bool,
    /// Updates received during the read.
    updates: Vec<R::Update>,
    /// Reads that failed in a row.
    failures: u32,
    /// Reads in a row whose pages were of different versions.
    torn: u32,
    /// What the store had when it was compared, if this copy lacked it.
    behind: Option<Found>,
    /// The earliest time at which something is to be done.
    due: Option<Time>,
    /// Each with the number of the read that is recent enough, and when they must be answered.
    waiters: Vec<(u64, Time, R::Waiter)>,
}

impl<R: Replica> Default for ReplicaLife<R> {
    fn default() -> ReplicaLife<R> {
        ReplicaLife {
            replica: R::default(),
            loaded: false,
            reading: None,
            reads: 0,
            again: false,
            outdated: false,
            updates: Vec::new(),
            failures: 0,
            torn: 0,
            behind: None,
            due: None,
            waiters: Vec::new(),
        }
    }
}

impl<R: Replica> Replicas<R> {
    pub fn new(owner: <R::Host as ReplicaHost>::Owner) -> Replicas<R> {
        Replicas { owner, lives: HashMap::default(), asked: HashMap::default(), round: 0 }
    }

    pub fn owns(&self, ticket: Ticket) -> bool {
        self.asked.contains_key(&ticket)
    }

    pub fn get(&self, name: &str) -> Option<&R> {
        self.lives.get(name).map(|life| &life.replica)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut R> {
        self.lives.get_mut(name).map(|life| &mut life.replica)
    }

    /// A replica that is used from now on, but not read yet.
    pub fn make(&mut self, name: &Arc<str>) -> &mut R {
        &mut self.lives.entry(name.clone()).or_default().replica
    }

    pub fn is_reading(&self, name: &str) -> bool {
        self.lives.get(name).is_some_and(|life| life.reading.is_some())
    }

    /// Whether a read is asked for that begins after the one in progress.
    pub fn reads_again(&self, name: &str) -> bool {
        self.lives.get(name).is_some_and(|life| life.again)
    }

    /// Reads it, now or after the read in progress. Returns the number of that read.
    pub fn refresh(&mut self, host: &mut R::Host, name: &Arc<str>) -> u64 {
        let life = self.lives.entry(name.clone()).or_default();
        if life.reading.is_some() {
            life.again = true;
            return life.reads + 1;
        }
        self.begin(host, name);
        self.lives.get(name).map_or(0, |life| life.reads)
    }

    /// Reads it unless it is being read.
    pub fn read(&mut self, host: &mut R::Host, name: &Arc<str>) {
        if !self.is_reading(name) {
            self.refresh(host, name);
        }
    }

    /// Somebody waits for the read in progress, or for one that begins now.
    pub fn wait(&mut self, host: &mut R::Host, name: &Arc<str>, waiter: R::Waiter) {
        self.read(host, name);
        self.wait_for(host.now(), name, |life| life.reads, waiter);
    }

    /// Somebody waits for a read that begins now or later.
    pub fn wait_fresh(&mut self, host: &mut R::Host, name: &Arc<str>, waiter: R::Waiter) {
        let read = self.refresh(host, name);
        self.wait_for(host.now(), name, |_| read, waiter);
    }

    /// Those whom the read did not help wait for the next one, which somebody begins.
    pub fn defer(&mut self, host: &R::Host, name: &str, waiters: Vec<R::Waiter>) {
        for waiter in waiters {
            self.wait_for(host.now(), name, |life| life.reads + 1, waiter);
        }
    }

    fn wait_for(&mut self, now: Time, name: &str, read: impl Fn(&ReplicaLife<R>) -> u64, waiter: R::Waiter) {
        if let Some(life) = self.lives.get_mut(name) {
            life.waiters.push((read(life), now + WAIT_MS, waiter));
        }
    }

    /// The read in progress may be older than what is known now: its result is not used.
    pub fn outdate(&mut self, name: &str) {
        if let Some(life) = self.lives.get_mut(name) {
            life.outdated |= life.reading.is_some();
        }
    }

    /// An update of the bus. None: there is no such replica.
    pub fn update(&mut self, host: &mut R::Host, name: &str, update: &R::Update) -> Option<&mut R> {
        let (name, life) = self.lives.get_key_value_mut(name)?;
        if life.reading.is_some() && !R::ORDERED {
            match life.updates.len() < UPDATES_MAX {
                true => life.updates.push(update.clone()),
                false => life.again = true,
            }
        }
        if (life.loaded || R::ORDERED)
            && life.replica.apply(host, name, update) == Applied::Gap
            && !planted("hub-replica-gap")
        {
            // Updates of two nodes may arrive out of order: the missing one is usually in flight.
            life.wake(host, self.owner, name, R::MISSING_MS);
        }
        Some(&mut life.replica)
    }

    /// The store has answered.
    pub fn answered(
        &mut self,
        host: &mut R::Host,
        ticket: Ticket,
        answer: StoreAnswer,
    ) -> Option<ReplicaRead<R::Waiter>> {
        let (name, question) = self.asked.remove(&ticket)?;
        let life = self.lives.get_mut(&name)?;
        if question == ReplicaQuestion::Compare {
            if let StoreAnswer::Read(found) = answer
                && life.replica.is_behind(&found)
                && !planted("hub-replica-compare")
            {
                // What is missing may be in flight.
                life.behind = Some(found);
                life.wake(host, self.owner, &name, R::MISSING_MS);
            }
            return None;
        }
        // It may have been dropped and made again.
        life.reading.take_if(|reading| *reading == ticket || planted("hub-replica-page"))?;
        let StoreAnswer::Read(found) = answer else { return self.failed(host, name, answer) };
        match life.replica.load(host, &name, found) {
            PageLoad::More(read) => self.ask(host, &name, read),
            PageLoad::Again => {
                // One change during a read is usual; with many the pages rarely fit together.
                let delay_ms = match life.torn {
                    0 => 0,
                    torn => RETRY_AFTER_MS << (torn - 1).min(BACKOFF_MAX),
                };
                life.torn += 1;
                return self.restart(host, name, delay_ms);
            }
            PageLoad::Complete => return self.complete(host, name),
            PageLoad::Unusable => {
                let answer = StoreAnswer::Failed(StoreError::timeout());
                return self.failed(host, name, answer);
            }
        }
        None
    }

    /// A timer of this table is due.
    pub fn due(&mut self, host: &mut R::Host, name: &Arc<str>) {
        let Some(life) = self.lives.get_mut(name) else { return };
        let is_new = !life.loaded && life.reads == 0;
        if !is_new && life.due.is_none_or(|due| due > host.now()) {
            return;
        }
        life.due = None;
        if life.reading.is_some() {
            // What is missing is checked again after it.
            return;
        }
        if life.waiters.is_empty() {
            life.replica.expire(host, name);
        }
        if !life.is_needed(host, name) {
            return self.drop(host, name);
        }
        let late = life.behind.take().is_some_and(|found| life.replica.is_behind(&found));
        let must_load = !(life.loaded || R::ORDERED) || life.failures + life.torn > 0;
        if must_load || late || life.replica.has_gap() || R::EVERY_MS > 0 {
            self.begin(host, name);
        }
    }

    /// Compares a part of them with the store, because the loss of the last update cannot be detected otherwise.
    pub fn compare(&mut self, host: &mut R::Host) {
        self.round = self.round.wrapping_add(1);
        let (round, parts) = (self.round, self.lives.len() / R::COMPARED + 1);
        for name in self.names(|name| is_turn(name, round, parts)) {
            let life = self.lives.get(&name).filter(|life| life.loaded || R::ORDERED);
            if let Some(read) = life.and_then(|life| life.replica.compare(&name)) {
                let ticket = host.read(self.owner, read);
                self.asked.insert(ticket, (name, ReplicaQuestion::Compare));
            }
        }
    }

    /// Those with such a name. Sorted, so that a run is reproducible.
    pub fn names(&self, is_meant: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.lives.keys().filter(|name| is_meant(name)).cloned().collect();
        names.sort_unstable();
        names
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut R> {
        self.lives.values_mut().map(|life| &mut life.replica)
    }

    /// Drops all that nobody uses.
    pub fn drop_all_unused(&mut self, host: &mut R::Host) {
        let is_unused = |name: &Arc<str>, life: &mut Box<ReplicaLife<R>>| !life.is_needed(host, name);
        let mut unused: Vec<_> = self.lives.extract_if(is_unused).collect();
        unused.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        unused.into_iter().for_each(|(name, life)| life.replica.end(host, &name));
    }

    /// Drops it unless somebody uses it, or waits for a read.
    pub fn drop_unused(&mut self, host: &mut R::Host, name: &Arc<str>) {
        if self.lives.get(name).is_some_and(|life| !life.is_needed(host, name)) {
            self.drop(host, name);
        }
    }

    /// Drops it, also if a read is in progress: updates may be missed from now on.
    pub fn drop(&mut self, host: &mut R::Host, name: &Arc<str>) {
        if let Some(life) = self.lives.remove(name) {
            life.replica.end(host, name);
        }
    }

    fn begin(&mut self, host: &mut R::Host, name: &Arc<str>) {
        let Some(life) = self.lives.get_mut(name) else { return };
        let Some(read) = life.replica.begin(host, name) else { return self.drop_unused(host, name) };
        life.reads += 1;
        (life.again, life.outdated) = (false, false);
        life.updates.clear();
        self.ask(host, name, read);
    }

    fn ask(&mut self, host: &mut R::Host, name: &Arc<str>, read: Read) {
        let Some(life) = self.lives.get_mut(name) else { return };
        let ticket = host.read(self.owner, read);
        life.reading = Some(ticket);
        self.asked.insert(ticket, (name.clone(), ReplicaQuestion::Page));
    }

    /// All pages were read.
    fn complete(&mut self, host: &mut R::Host, name: Arc<str>) -> Option<ReplicaRead<R::Waiter>> {
        let life = self.lives.get_mut(&name)?;
        (life.failures, life.torn) = (0, 0);
        if life.outdated && !planted("hub-replica-late") {
            return self.restart(host, name, 0);
        }
        life.loaded = true;
        life.replica.install(host, &name);
        for update in std::mem::take(&mut life.updates) {
            if !planted("hub-replica-kept") {
                life.replica.apply_kept(host, &name, &update);
            }
        }
        // It may have begun before the copy was compared.
        life.behind = life.behind.take().filter(|found| life.replica.is_behind(found));
        if life.replica.has_gap() || life.behind.is_some() {
            life.wake(host, self.owner, &name, R::MISSING_MS);
        }
        let waiters = life.served();
        let wake_ms = R::EVERY_MS.max(R::UNUSED_MS);
        if life.again {
            self.begin(host, &name);
        } else if !R::KEEPS {
            self.drop(host, &name);
        } else if wake_ms > 0 {
            life.wake(host, self.owner, &name, wake_ms);
        }
        Some(ReplicaRead { name, failed: None, waiters })
    }

    /// What was read is not used: reads again. Those who have waited for too long are told.
    fn restart(
        &mut self,
        host: &mut R::Host,
        name: Arc<str>,
        delay_ms: u64,
    ) -> Option<ReplicaRead<R::Waiter>> {
        let (owner, now) = (self.owner, host.now());
        let life = self.lives.get_mut(&name)?;
        let late = life.waiters.extract_if(.., |(_, due, _)| *due <= now);
        let waiters: Vec<R::Waiter> = late.map(|(_, _, waiter)| waiter).collect();
        match delay_ms {
            0 => self.begin(host, &name),
            _ => life.wake(host, owner, &name, delay_ms),
        }
        let failed = Some(StoreAnswer::Failed(StoreError::timeout()));
        (!waiters.is_empty()).then_some(ReplicaRead { name, failed, waiters })
    }

    /// The store does not answer.
    fn failed(
        &mut self,
        host: &mut R::Host,
        name: Arc<str>,
        answer: StoreAnswer,
    ) -> Option<ReplicaRead<R::Waiter>> {
        let life = self.lives.get_mut(&name)?;
        life.failures += 1;
        life.updates.clear();
        let waiters = life.served();
        if life.waiters.is_empty() {
            life.replica.expire(host, &name);
        }
        match (life.is_needed(host, &name), life.waiters.is_empty()) {
            (false, _) => self.drop(host, &name),
            // They asked after it had begun.
            (true, false) => self.begin(host, &name),
            (true, true) => {
                let delay_ms = RETRY_AFTER_MS << (life.failures - 1).min(BACKOFF_MAX);
                life.wake(host, self.owner, &name, delay_ms);
            }
        }
        Some(ReplicaRead { name, failed: Some(answer), waiters })
    }
}

impl<R: Replica> ReplicaLife<R> {
    fn is_needed(&self, host: &R::Host, name: &Arc<str>) -> bool {
        self.reading.is_some() || !self.waiters.is_empty() || self.replica.is_used(host, name)
    }

    /// Those whom the read that has ended serves.
    fn served(&mut self) -> Vec<R::Waiter> {
        let reads = self.reads;
        self.waiters.extract_if(.., |(read, ..)| *read <= reads).map(|(_, _, waiter)| waiter).collect()
    }

    fn wake(
        &mut self,
        host: &mut R::Host,
        owner: <R::Host as ReplicaHost>::Owner,
        name: &Arc<str>,
        in_ms: u64,
    ) {
        let due = host.now() + in_ms;
        if self.due.is_none_or(|earlier| due < earlier) {
            self.due = Some(due);
            host.wake(owner, due, name);
        }
    }
}

/// Whether it is compared in this round: each is in one of so many rounds.
fn is_turn(name: &str, round: usize, parts: usize) -> bool {
    let sum = name.bytes().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
    parts == 1 || sum.wrapping_add(round) % parts == 0
}

#[cfg(test)]
mod tests;
