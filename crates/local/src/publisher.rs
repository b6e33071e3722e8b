//! Publishing: one transaction, then the wake-ups. Must hold: a message is counted for and queued to exactly the living
//! processes that were subscribed when it was committed; no process sees it before the commit.

use crate::audience::Audience;
use crate::database::{FolderCounters, bound, is_sweep_due, now_ms};
use crate::error::Error;
use crate::limits;
use crate::message::{ChannelNamespace, Draft};
use crate::open_folder::OpenFolder;
use crate::options::Options;
use crate::routing::Matches;
use crate::waker::WakeSignal;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// One handle that publishes.
#[derive(Clone, Copy)]
pub struct Publisher<'a> {
    pub folder: &'a OpenFolder,
    pub subscriber: u64,
    pub options: &'a Options,
}

/// What one transaction wrote.
#[derive(Default)]
struct WrittenBatch {
    /// How many subscriptions received each message.
    recipients: Vec<u64>,
    /// The processes in the audiences, and whether they are alive.
    seen: BTreeMap<i64, bool>,
    /// The processes that got something into their queues.
    queued: BTreeSet<i64>,
    sweep_due: bool,
}

/// The result of one attempt to write a batch.
enum BatchAttempt {
    Written(WrittenBatch),
    /// Nothing was written: these processes subscribe to everything and must first name what they want. It is done
    /// when the version of the subscriptions has changed.
    MustNarrow {
        processes: BTreeSet<i64>,
        version: u64,
    },
}

impl Publisher<'_> {
    /// Publishes in order. Returns how many subscriptions received each message.
    pub fn publish(self, drafts: &[Draft<'_>]) -> Result<Vec<u64>, Error> {
        self.folder.process.check()?;
        drafts.iter().try_for_each(|draft| check_size(draft, self.options.message_bytes))?;
        let own = self.own_matches(drafts);
        if self.has_no_audience(drafts) {
            return Ok(vec![0; drafts.len()]);
        }
        let mut recipients = Vec::with_capacity(drafts.len());
        let mut from = 0;
        while from < drafts.len() {
            let to = from + batch_length(&drafts[from..]);
            let part = &own[from.min(own.len())..to.min(own.len())];
            recipients.extend(self.publish_batch(&drafts[from..to], part)?);
            from = to;
        }
        Ok(recipients)
    }

    /// The publisher's own subscriptions that match each message and do not count: all of them without echo, else those
    /// to everything. Empty if there are none at all.
    fn own_matches(self, drafts: &[Draft<'_>]) -> Vec<Matches> {
        if self.options.echo {
            let Some(receiver) = self.folder.try_receiver() else { return Vec::new() };
            let routes = &receiver.subscribers.routes;
            let everything =
                ChannelNamespace::ALL.map(|namespace| routes.count_everything(self.subscriber, namespace));
            let own = |draft: &Draft<'_>| Matches {
                subscriptions: everything[draft.namespace as usize],
                recipients: 0,
            };
            return if everything == [0, 0] { Vec::new() } else { drafts.iter().map(own).collect() };
        }
        let receiver = self.folder.receiver();
        let routes = &receiver.subscribers.routes;
        drafts.iter().map(|draft| routes.matches(self.subscriber, draft.namespace, draft.channel)).collect()
    }

    /// Whether the cache shows that no process receives any of these.
    fn has_no_audience(self, drafts: &[Draft<'_>]) -> bool {
        let version = self.folder.version();
        let audiences = self.folder.audiences();
        let is_empty = |draft: &Draft<'_>| {
            audiences.get(version, draft.namespace, draft.channel).is_some_and(|audience| audience.is_empty())
        };
        drafts.iter().all(is_empty)
    }

    fn publish_batch(self, drafts: &[Draft<'_>], own: &[Matches]) -> Result<Vec<u64>, Error> {
        let began = Instant::now();
        let batch = loop {
            match self.try_batch(drafts, own, began)? {
                BatchAttempt::Written(batch) => break batch,
                BatchAttempt::MustNarrow { processes, version } => {
                    self.await_narrowing(&processes, version, began);
                }
            }
        };
        self.signal_all(&batch.queued, WakeSignal::Read);
        let dead: Vec<i64> = batch.seen.iter().filter(|(_, alive)| !**alive).map(|(id, _)| *id).collect();
        let database = &self.folder.process.database;
        // The messages are published even if this fails. A later publish or sweep retries.
        let _ = database.remove_dead(&dead, self.options.busy_timeout);
        if batch.sweep_due {
            // Finds dead processes that no publish meets: those without a matching subscription.
            let _ = database.sweep(self.options.busy_timeout);
        }
        Ok(batch.recipients)
    }

    /// Writes the batch in one transaction, unless a process that subscribes to everything must narrow first.
    fn try_batch(self, drafts: &[Draft<'_>], own: &[Matches], began: Instant) -> Result<BatchAttempt, Error> {
        let mut cache = self.folder.audiences();
        let own = |at: usize| own.get(at).copied().unwrap_or_default();
        self.folder.process.database.write(self.options.busy_timeout, |database, counters| {
            let mut batch = WrittenBatch { sweep_due: is_sweep_due(counters), ..WrittenBatch::default() };
            cache.refresh(database, counters)?;
            let mut audiences = Vec::with_capacity(drafts.len());
            for draft in drafts {
                audiences.push(cache.load(database, draft.namespace, draft.channel)?);
            }
            if began.elapsed() < Duration::from_millis(limits::NARROW_MS) && cache.may_ask_to_narrow() {
                let all = audiences.iter().enumerate();
                let processes: BTreeSet<i64> = all
                    .flat_map(|(at, audience)| self.subscribing_to_everything(audience, own(at)))
                    .collect();
                if !processes.is_empty() {
                    return Ok(BatchAttempt::MustNarrow {
                        processes,
                        version: counters.subscriptions_version,
                    });
                }
            }
            for (at, (draft, audience)) in drafts.iter().zip(&audiences).enumerate() {
                self.write_one(database, counters, &mut batch, draft, audience, own(at))?;
            }
            if !batch.queued.is_empty() {
                bound(database, counters, self.options)?;
            }
            Ok(BatchAttempt::Written(batch))
        })
    }

    fn signal_all(self, processes: &BTreeSet<i64>, signal: WakeSignal) {
        let process = &self.folder.process;
        let (waker, here) = (process.waker(), process.number());
        for &other in processes {
            if other != here {
                waker.wake(other, signal);
                continue;
            }
            if signal == WakeSignal::Narrow {
                self.folder.receiver().subscribers.request_narrow();
                process.woken.notify_all();
            }
            // Without checking whether a thread sleeps there: that needs the receiver, which it may be waiting for.
            waker.wake_own();
        }
    }

    /// Living processes with subscriptions to everything, except the publisher's own.
    fn subscribing_to_everything(self, audience: &Audience, own: Matches) -> impl Iterator<Item = i64> {
        let process = &self.folder.process;
        let here = process.number();
        audience.iter().filter_map(move |recipient| {
            let own = if recipient.process == here { own.subscriptions - own.recipients } else { 0 };
            let everything = recipient.subscriptions - recipient.recipients;
            (everything > own && process.database.is_alive(recipient.process)).then_some(recipient.process)
        })
    }

    /// Asks the processes to narrow until the subscriptions have changed. If they do not answer in time, they are not
    /// asked again for a while.
    fn await_narrowing(self, processes: &BTreeSet<i64>, version: u64, began: Instant) {
        let mut asked: Option<Instant> = None;
        while self.folder.version() == version {
            if asked.is_none_or(|at| at.elapsed() >= Duration::from_millis(limits::NARROW_REPEAT_MS)) {
                self.signal_all(processes, WakeSignal::Narrow);
                asked = Some(Instant::now());
            }
            if began.elapsed() >= Duration::from_millis(limits::NARROW_MS) {
                self.folder.audiences().narrow_timed_out();
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Writes one message to the log and to the queues of its audience.
    fn write_one(
        self,
        database: &Connection,
        counters: &mut FolderCounters,
        batch: &mut WrittenBatch,
        draft: &Draft<'_>,
        audience: &Audience,
        own: Matches,
    ) -> rusqlite::Result<()> {
        let process = &self.folder.process;
        let here = process.number();
        let mut recipients = 0;
        let mut logged = false;
        for recipient in audience.iter() {
            let alive = *batch
                .seen
                .entry(recipient.process)
                .or_insert_with(|| process.database.is_alive(recipient.process));
            let is_own = recipient.process == here && !self.options.echo;
            let own = if is_own { own } else { Matches::default() };
            if !alive || recipient.subscriptions <= own.subscriptions {
                continue;
            }
            recipients += u64::from(recipient.recipients.saturating_sub(own.recipients));
            if !logged {
                logged = true;
                self.append(database, counters, draft)?;
            }
            let sql = "INSERT INTO queue (process, id) VALUES (?1, ?2)";
            database.prepare_cached(sql)?.execute([recipient.process, counters.last_id])?;
            batch.queued.insert(recipient.process);
        }
        batch.recipients.push(recipients);
        Ok(())
    }

    fn append(
        self,
        database: &Connection,
        counters: &mut FolderCounters,
        draft: &Draft<'_>,
    ) -> rusqlite::Result<()> {
        let size = size(draft) as i64;
        counters.last_id += 1;
        let sql = "INSERT INTO log (id, at, process, subscriber, namespace, size, channel, header, payload) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        database.prepare_cached(sql)?.execute(params![
            counters.last_id,
            now_ms(),
            self.folder.process.number(),
            self.subscriber as i64,
            draft.namespace as i64,
            size,
            draft.channel,
            draft.header,
            draft.payload,
        ])?;
        counters.log_messages += 1;
        counters.log_bytes += size;
        Ok(())
    }
}

fn size(draft: &Draft<'_>) -> usize {
    draft.channel.len() + draft.header.len() + draft.payload.len()
}

fn check_size(draft: &Draft<'_>, limit: usize) -> Result<(), Error> {
    let parts = [("channel", draft.channel), ("payload", draft.payload), ("header", draft.header)];
    for (what, bytes) in parts {
        if bytes.len() > limit {
            return Err(Error::TooLarge { what, bytes: bytes.len(), limit });
        }
    }
    Ok(())
}

/// How many drafts go into one transaction.
fn batch_length(drafts: &[Draft<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |draft: &&Draft<'_>| {
        bytes += size(draft);
        bytes <= limits::BATCH_BYTES
    };
    drafts.iter().take(limits::BATCH).take_while(fits).count().max(1)
}
