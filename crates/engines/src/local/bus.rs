//! The bus on a folder, as the node sees it. One thread writes (`writer`), one reads (`reader`). While there is no
//! other process, the bus has one subscription to everything and sends nothing; when another process publishes, it
//! asks the bus to narrow, and from then on the bus subscribes by name. Must hold: no message is missed during the
//! switch.

use super::name;
use super::shared::{Job, LocalShared, NEVER, weight};
use super::{reader, writer};
use crate::options::BusOptions;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tavern_local::{Interrupter, Local, Options};
use tavern_store::{Bus, BusCounts, BusError, BusPacket, BusReceiver, Interest, Ticket, limits};

pub struct LocalBus {
    shared: Arc<LocalShared>,
    interrupter: Interrupter,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl LocalBus {
    pub fn open(options: &BusOptions<'_>, receiver: Arc<dyn BusReceiver>) -> Result<LocalBus, BusError> {
        let folder_options = Options {
            log_messages: options.bounds.messages,
            log_bytes: options.bounds.bytes,
            log_age: Duration::from_millis(options.bounds.age_ms),
            message_bytes: options.bounds.message_bytes.max(tavern_local::MESSAGE_BYTES),
            echo: false,
            program: format!("node {}", options.node),
            ..Options::default()
        };
        let local = Local::open_with(options.folder, folder_options).map_err(writer::unavailable)?;
        let local = Arc::new(local);
        // With other processes present, subscribe by name from the start: two that subscribe to everything and
        // publish at the same time would each wait for the other to narrow.
        let is_wide = local.version_if_alone().map_err(writer::unavailable)?.is_some();
        let interests = match is_wide {
            true => name::everything().to_vec(),
            false => vec![name::loss_interest(options.prefix)],
        };
        local.add_interests(interests).map_err(writer::unavailable)?;
        let alone_at = local.version_if_alone().map_err(writer::unavailable)?.unwrap_or(NEVER);
        let shared = Arc::new(LocalShared::new(local.clone(), options.prefix, receiver));
        shared.alone_at.store(alone_at, Ordering::Release);
        shared.is_wide.store(is_wide, Ordering::SeqCst);
        let interrupter = local.interrupter();
        let (writing, reading) = (shared.clone(), shared.clone());
        let written = local.clone();
        let threads = vec![
            spawn("bus-out", move || writer::run(&writing, &written))?,
            spawn("bus-in", move || reader::run(&reading, &local))?,
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

impl Bus for LocalBus {
    fn publish(&self, mut batch: Vec<BusPacket>) {
        let shared = &self.shared;
        {
            let local = shared.local.read().unwrap_or_else(PoisonError::into_inner);
            let Some(local) = &*local else { return };
            batch.retain(|message| {
                let (space, name) = name::place(&shared.prefix, &message.subject);
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
        let mut state = self.shared.state();
        if interests.iter().all(|interest| state.subscribed.contains(interest)) {
            return true;
        }
        state.jobs.push_back(Job::Subscribe(interests, ticket));
        self.shared.changed.notify_one();
        false
    }

    fn unsubscribe(&self, mut interests: Vec<Interest>) {
        let mut state = self.shared.state();
        // From here on it does not count as subscribed, even before the folder is updated.
        interests.retain(|interest| state.subscribed.remove(interest));
        state.jobs.push_back(Job::Unsubscribe(interests));
        self.shared.changed.notify_one();
    }

    fn is_alone(&self) -> bool {
        self.shared.is_alone()
    }

    fn receives_everything(&self) -> bool {
        self.shared.is_wide()
    }

    fn is_full(&self) -> bool {
        self.shared.waiting.load(Ordering::Relaxed) >= limits::QUEUED_ITEMS
            || self.shared.waiting_bytes.load(Ordering::Relaxed) >= limits::QUEUED_BYTES
    }

    fn name(&self) -> &'static str {
        "local"
    }

    fn counts(&self) -> BusCounts {
        self.shared.counts.read()
    }

    fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.interrupter.interrupt();
        self.shared.add(Job::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("bus thread panicked");
            }
        }
        let local = self.shared.local.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = local.and_then(Arc::into_inner).map(Local::close) {
            tracing::warn!(%error, "cannot clean up the bus folder; the next process will");
        }
    }
}

impl Drop for LocalBus {
    fn drop(&mut self) {
        self.stop();
    }
}
