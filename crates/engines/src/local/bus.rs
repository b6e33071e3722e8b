//! The bus on a folder. One thread writes what this node says and asks for, one reads what others say.
//! While nobody else is there it hears everything by one wish and says nothing; when somebody publishes, it is asked to
//! narrow, and from then on names what it listens to. Must hold: between the two there is no moment in which it is deaf.

use super::name;
use crate::open::Place;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tavern_local::{
    Error, Interest as Wish, Interrupter, Local, Message, Namespace, Options, SubscriptionsVersion,
};
use tavern_store::bus::{Bus, BusCounts, BusError, BusMessage, BusReceiver, Lost};
use tavern_store::interest::Interest;
use tavern_store::limits;
use tavern_store::store::Ticket;

/// Parcels read before they are handed over together.
const READ_TOGETHER: usize = 256;
/// Names that are listened to in one transaction.
const LISTEN_TOGETHER: usize = 1024;
/// After this long without company the node hears everything again.
const COMPANY: Duration = Duration::from_secs(30);
/// The reading thread looks up this often at least.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is tried to tell the others that words were lost.
const TELL: Duration = Duration::from_millis(250);
/// No version of the roster has this number.
const NEVER: u64 = u64::MAX;

pub struct LocalBus {
    shared: Arc<Shared>,
    interrupter: Interrupter,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    /// None after `stop`.
    local: RwLock<Option<Arc<Local>>>,
    version: SubscriptionsVersion,
    /// The version of the roster for which nobody else listens to anything.
    alone_at: AtomicU64,
    /// It hears everything by one wish; nothing is in `carried`.
    wide: AtomicBool,
    prefix: Arc<str>,
    inbox: Arc<dyn BusReceiver>,
    agenda: Mutex<Agenda>,
    stirred: Condvar,
    waiting_bytes: AtomicUsize,
    waiting: AtomicUsize,
    stopping: AtomicBool,
    counts: Atomics,
}

#[derive(Default)]
struct Atomics {
    sent: AtomicU64,
    received: AtomicU64,
    failed: AtomicU64,
    losses: AtomicU64,
}

#[derive(Default)]
struct Agenda {
    jobs: VecDeque<Job>,
    /// What is listened to by name. Asked for again it holds at once.
    carried: HashSet<Interest>,
    /// How many of them want each thing that is listened to in the folder.
    wanted: HashMap<Wish, usize>,
}

enum Job {
    Publish(Vec<BusMessage>),
    Subscribe(Vec<Interest>, Ticket),
    Unsubscribe(Vec<Interest>),
    Narrow,
    Widen,
    /// Tell the others that words were lost.
    Tell,
    Stop,
}

impl LocalBus {
    pub fn open(place: &Place<'_>, inbox: Arc<dyn BusReceiver>) -> Result<LocalBus, BusError> {
        let options = Options {
            log_messages: place.bounds.messages,
            log_bytes: place.bounds.bytes,
            log_age: Duration::from_millis(place.bounds.age_ms),
            message_bytes: place.bounds.message_bytes.max(tavern_local::MESSAGE_BYTES),
            echo: false,
            program: format!("node {}", place.node),
            ..Options::default()
        };
        let local = Arc::new(Local::open_with(place.folder, options).map_err(unavailable)?);
        // Where others are already, everything is named from the start: two that hear everything and speak at once
        // would each wait for the other to name what it listens to.
        let wide = local.version_if_alone().map_err(unavailable)?.is_some();
        local
            .add_interests(if wide { everything().to_vec() } else { vec![name::torn_wish(place.prefix)] })
            .map_err(unavailable)?;
        let alone_at = local.version_if_alone().map_err(unavailable)?.unwrap_or(NEVER);
        let shared = Arc::new(Shared {
            version: local.subscriptions_version(),
            alone_at: AtomicU64::new(alone_at),
            wide: AtomicBool::new(wide),
            prefix: place.prefix.into(),
            inbox,
            agenda: Mutex::default(),
            stirred: Condvar::new(),
            waiting_bytes: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            counts: Atomics::default(),
            local: RwLock::new(Some(local.clone())),
        });
        let interrupter = local.interrupter();
        let (writer, reader) = (shared.clone(), shared.clone());
        let writing = local.clone();
        let threads = vec![
            spawn("bus-out", move || writer.write_all(&writing))?,
            spawn("bus-in", move || reader.read_all(&local))?,
        ];
        Ok(LocalBus { shared, interrupter, threads: Mutex::new(threads) })
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, BusError> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
    spawned.map_err(|error| BusError::Unavailable {
        retry_after_ms: limits::RETRY_AFTER_MS,
        source: Arc::new(error),
    })
}

fn everything() -> [Wish; 2] {
    [Wish::everything(Namespace::Public), Wish::everything(Namespace::Private)]
}

fn unavailable(error: Error) -> BusError {
    BusError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source: Arc::new(error) }
}

impl Bus for LocalBus {
    fn publish(&self, mut batch: Vec<BusMessage>) {
        let shared = &self.shared;
        {
            let local = shared.local.read().unwrap_or_else(PoisonError::into_inner);
            let Some(local) = &*local else { return };
            batch.retain(|parcel| {
                let (space, name) = name::place(&shared.prefix, &parcel.subject);
                local.may_have_subscribers(space, &name)
            });
        }
        if batch.is_empty() {
            return;
        }
        let bytes: usize = batch.iter().map(weight).sum();
        shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.waiting.fetch_add(batch.len(), Ordering::Relaxed);
        shared.add(Job::Publish(batch));
    }

    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        let mut agenda = self.shared.agenda();
        if interests.iter().all(|interest| agenda.carried.contains(interest)) {
            return true;
        }
        agenda.jobs.push_back(Job::Subscribe(interests, ticket));
        self.shared.stirred.notify_one();
        false
    }

    fn unsubscribe(&self, mut interests: Vec<Interest>) {
        let mut agenda = self.shared.agenda();
        // From here on it does not hold any more, even if somebody asks before the folder knows.
        interests.retain(|interest| agenda.carried.remove(interest));
        agenda.jobs.push_back(Job::Unsubscribe(interests));
        self.shared.stirred.notify_one();
    }

    fn is_alone(&self) -> bool {
        self.shared.version.get() == self.shared.alone_at.load(Ordering::Acquire)
    }

    fn hears_everything(&self) -> bool {
        self.shared.wide.load(Ordering::SeqCst)
    }

    fn is_full(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) >= limits::QUEUED_ITEMS
            || self.shared.waiting_bytes.load(Ordering::Relaxed) >= limits::QUEUED_BYTES
    }

    fn name(&self) -> &'static str {
        "local"
    }

    fn counts(&self) -> BusCounts {
        let counts = &self.shared.counts;
        BusCounts {
            sent: counts.sent.load(Ordering::Relaxed),
            received: counts.received.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            losses: counts.losses.load(Ordering::Relaxed),
        }
    }

    fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.interrupter.interrupt();
        self.shared.add(Job::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the bus failed");
            }
        }
        let local = self.shared.local.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = local.and_then(Arc::into_inner).map(Local::close) {
            tracing::warn!(%error, "the bus left something in the folder; the next one to open it cleans up");
        }
    }
}

impl Drop for LocalBus {
    fn drop(&mut self) {
        self.stop();
    }
}

fn weight(parcel: &BusMessage) -> usize {
    parcel.payload.len() + parcel.note.len() + parcel.subject.as_str().len()
}

impl Shared {
    fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, job: Job) {
        self.agenda().jobs.push_back(job);
        self.stirred.notify_one();
    }

    /// While words are torn it does not wait for ever.
    fn next_job(&self, torn: bool) -> Job {
        let mut agenda = self.agenda();
        loop {
            if let Some(job) = agenda.jobs.pop_front() {
                return job;
            }
            if torn {
                let waited = self.stirred.wait_timeout(agenda, TELL).unwrap_or_else(PoisonError::into_inner);
                agenda = waited.0;
                if agenda.jobs.is_empty() {
                    return Job::Tell;
                }
            } else {
                agenda = self.stirred.wait(agenda).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// The thread that writes.
    fn write_all(&self, local: &Local) {
        // Words were lost that the others do not know of.
        let mut torn = false;
        loop {
            match self.next_job(torn) {
                Job::Publish(batch) => torn = !self.carry(local, batch, torn),
                Job::Tell => torn = !self.carry(local, Vec::new(), torn),
                Job::Subscribe(interests, ticket) => self.subscribe(local, interests, ticket),
                Job::Unsubscribe(interests) => {
                    if let Err(error) = self.end(local, &interests) {
                        tracing::warn!(%error, "the bus still listens to what nobody here wants");
                    }
                }
                Job::Narrow => self.narrow(local),
                Job::Widen => self.widen(local),
                Job::Stop => return,
            }
            self.look_around(local);
        }
    }

    /// Looks whether anybody else listens, if the roster has changed since it was last known.
    fn look_around(&self, local: &Local) {
        if self.version.get() != self.alone_at.load(Ordering::Acquire)
            && let Ok(alone_at) = local.version_if_alone()
        {
            self.alone_at.store(alone_at.unwrap_or(NEVER), Ordering::Release);
        }
    }

    /// Publishes this batch, and what came meanwhile, in one transaction; before it, if words are torn, that they are. False:
    /// the others do not know of words that were lost.
    fn carry(&self, local: &Local, mut batch: Vec<BusMessage>, torn: bool) -> bool {
        {
            let mut agenda = self.agenda();
            while batch.len() < READ_TOGETHER
                && let Some(Job::Publish(_)) = agenda.jobs.front()
            {
                let Some(Job::Publish(more)) = agenda.jobs.pop_front() else { break };
                batch.extend(more);
            }
        }
        self.waiting_bytes.fetch_sub(batch.iter().map(weight).sum(), Ordering::Relaxed);
        self.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
        self.look_around(local);
        if self.version.get() == self.alone_at.load(Ordering::Acquire) {
            return true;
        }
        let places: Vec<_> = batch.iter().map(|parcel| name::place(&self.prefix, &parcel.subject)).collect();
        let notes: Vec<_> = batch.iter().map(name::note).collect();
        let parts = places.iter().zip(&notes).zip(&batch);
        let torn_place = torn.then(|| name::torn_place(&self.prefix));
        let told = torn_place.iter().map(|place| name::draft(place, &[], &[]));
        let words = parts.map(|((place, note), parcel)| name::draft(place, note, &parcel.payload));
        let drafts: Vec<_> = told.chain(words).collect();
        match local.publish_all(&drafts) {
            Ok(_) => {
                self.counts.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
                true
            }
            Err(error) => {
                let failed = self.counts.failed.fetch_add(batch.len() as u64, Ordering::Relaxed);
                if failed == 0 || batch.len() as u64 > failed % 1000 {
                    tracing::error!(%error, messages = batch.len(), "the bus could not carry messages to other processes");
                }
                false
            }
        }
    }

    /// Begins to listen to this, and to what was asked for meanwhile, in one transaction.
    fn subscribe(&self, local: &Local, mut interests: Vec<Interest>, ticket: Ticket) {
        let mut tickets = vec![ticket];
        {
            let mut agenda = self.agenda();
            while interests.len() < LISTEN_TOGETHER
                && let Some(Job::Subscribe(..)) = agenda.jobs.front()
            {
                let Some(Job::Subscribe(more, ticket)) = agenda.jobs.pop_front() else { break };
                interests.extend(more);
                tickets.push(ticket);
            }
        }
        let outcome = self.begin(local, &interests).map_err(unavailable);
        for ticket in tickets {
            self.inbox.confirmed(ticket, outcome.clone());
        }
    }

    fn begin(&self, local: &Local, interests: &[Interest]) -> Result<(), Error> {
        if self.wide.load(Ordering::SeqCst) {
            return Ok(());
        }
        local.add_interests(self.wishes(interests))?;
        let mut agenda = self.agenda();
        for interest in interests {
            if agenda.carried.insert(interest.clone()) {
                for wish in name::wishes(&self.prefix, interest) {
                    *agenda.wanted.entry(wish).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Stops listening to what nothing that is carried wants any more. These were taken out of `carried` before.
    fn end(&self, local: &Local, interests: &[Interest]) -> Result<(), Error> {
        let mut unwanted = Vec::new();
        let mut agenda = self.agenda();
        for wish in self.wishes(interests) {
            if let Some(count) = agenda.wanted.get_mut(&wish) {
                *count -= 1;
                if *count == 0 {
                    agenda.wanted.remove(&wish);
                    unwanted.push(wish);
                }
            }
        }
        drop(agenda);
        local.remove_interests(unwanted).map(drop)
    }

    fn wishes<'a>(&'a self, interests: &'a [Interest]) -> impl Iterator<Item = Wish> + 'a {
        interests.iter().flat_map(|interest| name::wishes(&self.prefix, interest))
    }

    /// Names what this node listens to, then stops hearing everything.
    fn narrow(&self, local: &Local) {
        if !self.wide.swap(false, Ordering::SeqCst) {
            return;
        }
        // After the line above: who subscribes from now on asks for it, who did before is in this list.
        let needs = self.inbox.interests();
        let begun =
            self.begin(local, &needs).and_then(|()| local.add_interests([name::torn_wish(&self.prefix)]));
        match begun.and_then(|_| local.remove_interests(everything())) {
            Ok(_) => tracing::info!("other processes use this folder: the bus carries messages"),
            Err(error) => {
                tracing::warn!(%error, "the bus goes on hearing everything");
                self.wide.store(true, Ordering::SeqCst);
            }
        }
    }

    /// Nobody else is there: hears everything, then forgets the names.
    fn widen(&self, local: &Local) {
        if self.wide.load(Ordering::SeqCst) || !matches!(local.version_if_alone(), Ok(Some(_))) {
            return;
        }
        if let Err(error) = local.add_interests(everything()) {
            tracing::warn!(%error, "the bus goes on naming what it listens to");
            return;
        }
        self.wide.store(true, Ordering::SeqCst);
        let carried: Vec<Interest> = self.agenda().carried.drain().collect();
        if let Err(error) = self.end(local, &carried) {
            tracing::warn!(%error, "the bus still listens by name as well");
        }
    }

    /// The thread that reads.
    fn read_all(&self, local: &Local) {
        let mut company_at = Instant::now();
        let mut last_id = 0;
        while !self.stopping.load(Ordering::SeqCst) {
            match local.wait(LOOK) {
                Ok(Some(message)) => {
                    company_at = Instant::now();
                    self.hand_over(local, message, &mut last_id);
                }
                Ok(None) => {
                    if local.take_narrow_request() {
                        company_at = Instant::now();
                        self.add(Job::Narrow);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "the bus cannot be read");
                    std::thread::sleep(LOOK);
                }
            }
            if company_at.elapsed() >= COMPANY && !self.wide.load(Ordering::SeqCst) {
                company_at = Instant::now();
                self.add(Job::Widen);
            }
        }
    }

    /// Gives the node one message and what follows it. A message that several wishes match comes several times.
    fn hand_over(&self, local: &Local, first: Message, last_id: &mut u64) {
        let mut parcels = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message.publication() {
                Some(words) if words.id() == *last_id => {}
                Some(words) if !name::is_torn(&self.prefix, words) => {
                    *last_id = words.id();
                    parcels.extend(name::parcel(&self.prefix, words));
                }
                // The folder kept too little for this node, or another one could not write.
                told => {
                    *last_id = told.map_or(*last_id, |words| words.id());
                    self.give(std::mem::take(&mut parcels));
                    self.counts.losses.fetch_add(1, Ordering::Relaxed);
                    self.inbox.lost(Lost::Everything);
                }
            }
            if parcels.len() < READ_TOGETHER {
                // An error here shows again at the next wait.
                next = local.poll().unwrap_or(None);
            }
        }
        self.give(parcels);
    }

    fn give(&self, parcels: Vec<BusMessage>) {
        if !parcels.is_empty() {
            self.counts.received.fetch_add(parcels.len() as u64, Ordering::Relaxed);
            self.inbox.messages(parcels);
        }
    }
}
