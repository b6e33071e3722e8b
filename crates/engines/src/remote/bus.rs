//! The bus on a server, as the node sees it: takes what is said and asked, never waits. The link does the rest.

use super::desk::Desk;
use super::dialect::Dialect;
use super::ear::Delivery;
use super::link;
use crate::options::BusOptions;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use tavern_store::bus::{Bus, BusCounts, BusError, BusMessage, BusReceiver, Lost};
use tavern_store::error::Cause;
use tavern_store::interest::Interest;
use tavern_store::limits;
use tavern_store::store::Ticket;
use tavern_store::subject::Subject;
use tokio::sync::{Notify, mpsc};

/// Batches between the socket and the inbox.
const BATCHES: usize = 64;
/// The subject on which buses tell each other that words of theirs were lost.
const OWN: &str = "_bus";

pub struct RemoteBus {
    name: &'static str,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(super) struct Shared {
    pub node: Arc<str>,
    pub own: Subject,
    desk: Mutex<Desk>,
    /// The desk has something new.
    pub stirred: Notify,
    pub ending: Notify,
    is_full: AtomicBool,
    is_stopping: AtomicBool,
    began: Instant,
    /// When the server said something last, in milliseconds since then.
    heard_ms: AtomicU64,
    pub counts: Tally,
}

#[derive(Default)]
pub(super) struct Tally {
    pub sent: AtomicU64,
    pub received: AtomicU64,
    pub failed: AtomicU64,
    pub losses: AtomicU64,
}

impl RemoteBus {
    /// Returns when the server was reached, so that a wrong address shows at once.
    pub fn open<D: Dialect>(
        dialect: D,
        options: &BusOptions<'_>,
        inbox: Arc<dyn BusReceiver>,
    ) -> Result<RemoteBus, BusError> {
        let own = Subject::new(options.prefix, OWN, b"").map_err(|error| unavailable(Arc::new(error)))?;
        let mut desk = Desk::default();
        // Heard by the bus itself; the inbox gets nothing of it, as it carries no words.
        desk.book.add(&own.clone().into(), 0);
        let shared = Arc::new(Shared {
            node: options.node.into(),
            own,
            desk: Mutex::new(desk),
            stirred: Notify::new(),
            ending: Notify::new(),
            is_full: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            began: Instant::now(),
            heard_ms: AtomicU64::new(0),
            counts: Tally::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unavailable(Arc::new(error)))?;
        let (deliveries, waiting) = mpsc::channel(BATCHES);
        let (reached, answer) = std::sync::mpsc::channel();
        let (socket, hearing) = (shared.clone(), shared.clone());
        let threads = vec![
            spawn("bus", move || runtime.block_on(link::run(&socket, dialect, deliveries, reached)))?,
            spawn("bus-in", move || hearing.hand_over(&*inbox, waiting))?,
        ];
        let bus = RemoteBus { name: D::NAME, shared, threads: Mutex::new(threads) };
        match answer.recv() {
            Ok(Ok(())) => Ok(bus),
            Ok(Err(error)) => Err(unavailable(Arc::new(error))),
            Err(error) => Err(unavailable(Arc::new(error))),
        }
    }
}

/// Asks a server something, for somebody who only looks.
pub fn look<T>(asking: impl Future<Output = io::Result<T>>) -> Result<T, BusError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unavailable(Arc::new(error)))?;
    let asked = runtime.block_on(async { tokio::time::timeout(link::PATIENCE, asking).await });
    let answer = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    answer.map_err(|error| unavailable(Arc::new(error)))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, BusError> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
    spawned.map_err(|error| unavailable(Arc::new(error)))
}

pub(super) fn unavailable(source: Cause) -> BusError {
    BusError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source }
}

impl Bus for RemoteBus {
    fn publish(&self, batch: Vec<BusMessage>) {
        let mut desk = self.shared.desk();
        let failed = desk.say(batch);
        self.shared.note_fullness(&desk);
        drop(desk);
        self.shared.counts.failed.fetch_add(failed as u64, Ordering::Relaxed);
        self.shared.stirred.notify_one();
    }

    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        let holds = self.shared.desk().subscribe(interests, ticket);
        if !holds {
            self.shared.stirred.notify_one();
        }
        holds
    }

    fn unsubscribe(&self, interests: Vec<Interest>) {
        self.shared.desk().unsubscribe(&interests);
        self.shared.stirred.notify_one();
    }

    fn reaches_services(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        self.shared.is_full.load(Ordering::Relaxed)
    }

    /// Asked often enough, a server that is well has answered within two questions.
    fn is_connected(&self) -> bool {
        let silent = self.shared.now_ms().saturating_sub(self.shared.heard_ms.load(Ordering::Relaxed));
        self.shared.desk().is_connected() && silent < 2 * link::PING_EVERY.as_millis() as u64
    }

    fn name(&self) -> &'static str {
        self.name
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

    /// What was said before is written first, if the server takes it in time.
    fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.ending.notify_one();
        self.shared.stirred.notify_one();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the bus failed");
            }
        }
    }
}

impl Drop for RemoteBus {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    pub fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note_fullness(&self, desk: &Desk) {
        self.is_full.store(desk.is_full(), Ordering::Relaxed);
    }

    /// The server said something.
    pub fn hear(&self) {
        self.heard_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// The thread that fills the inbox.
    fn hand_over(&self, inbox: &dyn BusReceiver, mut waiting: mpsc::Receiver<Delivery>) {
        while let Some(delivery) = waiting.blocking_recv() {
            if self.is_stopping() {
                continue;
            }
            match delivery {
                Delivery::Words(parcels) => {
                    self.counts.received.fetch_add(parcels.len() as u64, Ordering::Relaxed);
                    inbox.messages(parcels);
                }
                Delivery::Confirmed(tickets, outcome) => {
                    tickets.into_iter().for_each(|ticket| inbox.confirmed(ticket, outcome.clone()));
                }
                Delivery::Lost(lost) => self.tell(inbox, lost),
            }
        }
    }

    fn tell(&self, inbox: &dyn BusReceiver, lost: Lost) {
        self.counts.losses.fetch_add(1, Ordering::Relaxed);
        inbox.lost(lost);
    }
}
