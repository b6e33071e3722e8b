//! The bus on a server, as the node sees it: accepts messages and subscriptions, never waits. `connection` does the
//! rest.

use super::connection::{self, BusLink};
use super::outbox::Outbox;
use super::reader::BusDelivery;
use super::shared::{RemoteShared, unavailable};
use crate::options::BusOptions;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tavern_store::{Bus, BusCounts, BusError, BusPacket, BusReceiver, Interest, Subject, Ticket};
use tokio::sync::mpsc;

/// Batches between the socket and the receiver.
const BATCHES: usize = 64;
const LOSS_KIND: &str = "_bus";

pub struct RemoteBus {
    name: &'static str,
    /// Other programs can listen on its server to what is published for them.
    reaches_services: bool,
    shared: Arc<RemoteShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl RemoteBus {
    /// Returns when the server was reached, so that a wrong address fails at once.
    pub fn open<L: BusLink>(
        link: L,
        options: &BusOptions<'_>,
        receiver: Arc<dyn BusReceiver>,
    ) -> Result<RemoteBus, BusError> {
        let loss_subject = Subject::new(options.prefix, LOSS_KIND, b"");
        let loss_subject = loss_subject.map_err(|error| unavailable(Arc::new(error)))?;
        let mut outbox = Outbox::default();
        // For the bus itself: its messages are not for the receiver.
        outbox.interests.add(&loss_subject.clone().into(), 0);
        let shared = Arc::new(RemoteShared::new(options.node, loss_subject, outbox));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unavailable(Arc::new(error)))?;
        let (deliveries, waiting) = mpsc::channel(BATCHES);
        let (reached, answer) = std::sync::mpsc::channel();
        let (socket, receiving) = (shared.clone(), shared.clone());
        let threads = vec![
            spawn("bus", move || {
                runtime.block_on(connection::run(&socket, link, deliveries, reached));
            })?,
            spawn("bus-in", move || hand_over(&receiving, &*receiver, waiting))?,
        ];
        let bus = RemoteBus {
            name: L::NAME,
            reaches_services: L::REACHES_SERVICES,
            shared,
            threads: Mutex::new(threads),
        };
        match answer.recv() {
            Ok(Ok(())) => Ok(bus),
            Ok(Err(error)) => Err(unavailable(Arc::new(error))),
            Err(error) => Err(unavailable(Arc::new(error))),
        }
    }
}

/// Runs a few queries on a server, for `tavern doctor`.
pub fn ask<T>(asking: impl Future<Output = io::Result<T>>) -> Result<T, BusError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| unavailable(Arc::new(error)))?;
    let asked = runtime.block_on(async { tokio::time::timeout(connection::CONNECT_TIMEOUT, asking).await });
    let answer = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    answer.map_err(|error| unavailable(Arc::new(error)))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, BusError> {
    let spawned = std::thread::Builder::new().name(name.into()).spawn(run);
    spawned.map_err(|error| unavailable(Arc::new(error)))
}

/// The thread that calls the receiver.
fn hand_over(shared: &RemoteShared, receiver: &dyn BusReceiver, mut waiting: mpsc::Receiver<BusDelivery>) {
    while let Some(delivery) = waiting.blocking_recv() {
        if shared.is_stopping() {
            continue;
        }
        match delivery {
            BusDelivery::Messages(messages) => {
                shared.counts.received.fetch_add(messages.len() as u64, Ordering::Relaxed);
                receiver.messages(messages);
            }
            BusDelivery::Confirmed(tickets, outcome) => {
                tickets.into_iter().for_each(|ticket| receiver.confirmed(ticket, outcome.clone()));
            }
            BusDelivery::Lost(lost) => {
                shared.counts.losses.fetch_add(1, Ordering::Relaxed);
                receiver.lost(lost);
            }
        }
    }
}

impl Bus for RemoteBus {
    fn publish(&self, batch: Vec<BusPacket>) {
        let mut outbox = self.shared.outbox();
        let failed = outbox.publish(batch);
        self.shared.note_fullness(&outbox);
        drop(outbox);
        self.shared.counts.failed.fetch_add(failed as u64, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }

    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        let holds = self.shared.outbox().subscribe(interests, ticket);
        if !holds {
            self.shared.changed.notify_one();
        }
        holds
    }

    fn unsubscribe(&self, interests: Vec<Interest>) {
        self.shared.outbox().unsubscribe(&interests);
        self.shared.changed.notify_one();
    }

    fn reaches_services(&self) -> bool {
        self.reaches_services
    }

    fn is_full(&self) -> bool {
        self.shared.is_full()
    }

    /// A healthy server has answered within two pings.
    fn is_connected(&self) -> bool {
        let silence = 2 * connection::PING_EVERY.as_millis() as u64;
        self.shared.outbox().is_connected() && self.shared.silent_ms() < silence
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn counts(&self) -> BusCounts {
        self.shared.counts.read()
    }

    /// Queued messages are sent first, if the server accepts them in time.
    fn stop(&self) {
        self.shared.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("bus thread panicked");
            }
        }
    }
}

impl Drop for RemoteBus {
    fn drop(&mut self) {
        self.stop();
    }
}
