//! Reads events from the log for the machine, and for batches that another worker has sealed; sends batches.

use super::active::LogFetch;
use super::post::{AttemptRequest, DeliveryNotice};
use super::queue::{DeliveryQueue, DeliveryState};
use super::shared::{DeliveryRequest, DeliveryShared};
use crate::topics::LogReading;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{AttemptStart, DeliveryInput, DeliveryOutcome, EndpointReply, QueuedEvent};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Document, DocumentKey, LogEntry, LogPage, Read, Versioned, Work};
use tavern_wire::json::event::{BatchFormat, shown_id};
use tavern_wire::record::{self, CopiedEvent};

impl DeliveryQueue {
    /// Reads as many events as the machine wants, if there may be any.
    pub(super) fn read_more(&mut self, shared: &mut DeliveryShared, now: Time) {
        if !self.unread {
            return;
        }
        let name = self.name().clone();
        let Some(active) = self.active().filter(|active| !active.reads) else { return };
        let Some(want) = active.machine.want(now) else { return };
        if active.reading.as_ref().is_none_or(|reading| reading.at().seq != want.after.seq) {
            active.reading = Some(LogReading::new(active.marks.clone(), want.after));
        }
        let limit = want.events.clamp(1, PAGE_ROWS);
        if let Some(read) = active.reading.as_mut().and_then(|reading| reading.read(limit)) {
            active.reads = true;
            shared.ask(DeliveryRequest::Events(name, active.life), Work::Read(read));
        }
        // Events published from now on need another read.
        self.unread = false;
    }

    pub(super) fn read_events(&mut self, shared: &mut DeliveryShared, now: Time, stretch: LogPage) {
        let format = self.subscription.format;
        let Some(active) = self.active() else { return };
        active.reads = false;
        let Some(reading) = active.reading.as_mut() else { return };
        let took = reading.take(stretch);
        let items: Vec<QueuedEvent> =
            took.events.iter().map(|(seq, entry)| item(format, *seq, entry)).collect();
        let last = items.last().map(|item| item.seq);
        // An event that is already here belongs to a batch, or to a dead letter that is not saved yet: after a replay
        // both may be ahead of what is read.
        let is_new = |seq: &u64| !active.events.contains_key(seq);
        let read: Vec<u64> = items.iter().map(|item| item.seq).filter(is_new).collect();
        active.events.extend(took.events);
        // Disabled since: it is read again when it is enabled.
        self.unread |= took.more;
        self.give(shared, now, Some(DeliveryInput::Items(items)));
        let Some(active) = self.active() else { return };
        active.forget_ahead(now, &read);
        // A batch that reached its size limit had no room for all of them: no other wake-up announces the rest.
        let left = last.is_some_and(|last| active.machine.want(now).is_none_or(|want| want.after.seq < last));
        if left {
            self.unread = true;
            self.step(shared, now);
        }
    }

    /// Posts a batch. Reads its events first if they are not in memory.
    pub(super) fn send(&mut self, shared: &mut DeliveryShared, now: Time, sending: AttemptStart) {
        let subscription = self.subscription.clone();
        let Some(active) = self.active() else { return };
        let Some(batch) = active.machine.batch(sending.batch) else { return };
        match active.entries(batch) {
            Some(events) => {
                let AttemptStart { batch: number, attempt, reason } = sending;
                let accepted = batch.accepted;
                if attempt == 1 {
                    let (subscription, waited_ms) = (subscription.name.clone(), now.since(accepted));
                    shared.notify(DeliveryNotice::FirstAttempt { subscription, waited_ms });
                }
                self.posts.insert(number, None);
                shared.posts += 1;
                let post = AttemptRequest { subscription, batch: number, attempt, reason, accepted, events };
                shared.effects.posts.push(post);
            }
            None => {
                let runs = batch.ranges.iter().filter(|run| !run.gap).copied().collect();
                let (has_no_copy, checks) = (false, false);
                let fetch = LogFetch { sending, runs, reading: None, has_no_copy, checks };
                active.fetches.insert(sending.batch, fetch);
                self.fetch(shared, now, sending.batch);
            }
        }
    }

    fn fetch(&mut self, shared: &mut DeliveryShared, now: Time, batch: u64) {
        let name = self.name().clone();
        let Some(active) = self.active() else { return };
        let marks = active.marks.clone();
        let Some(fetch) = active.fetches.get_mut(&batch) else { return };
        let Some(run) = fetch.runs.front() else {
            if fetch.has_no_copy && !fetch.checks {
                return self.check_fetch(shared, batch);
            }
            let sending = fetch.sending;
            active.fetches.remove(&batch);
            return self.send(shared, now, sending);
        };
        let left = run.last.saturating_sub(fetch.reading.as_ref().map_or(run.after.seq, |r| r.at().seq));
        let reading = fetch.reading.get_or_insert_with(|| LogReading::new(marks, run.after));
        match reading.read(u32::try_from(left).unwrap_or(PAGE_ROWS).clamp(1, PAGE_ROWS)) {
            Some(read) => shared.ask(DeliveryRequest::Fetch(name, active.life, batch), Work::Read(read)),
            // The subscription has no topics after this position.
            None => self.check_fetch(shared, batch),
        }
    }

    pub(super) fn fetched(&mut self, shared: &mut DeliveryShared, now: Time, batch: u64, stretch: LogPage) {
        let name = self.name().clone();
        let Some(active) = self.active() else { return };
        let Some(fetch) = active.fetches.get_mut(&batch) else { return };
        let (Some(run), Some(reading)) = (fetch.runs.front().copied(), fetch.reading.as_mut()) else {
            return;
        };
        let trimmed = stretch.log.first > reading.at().position + 1 && reading.at().seq < run.last;
        if trimmed && !fetch.has_no_copy {
            // The log was trimmed here: the batch was copied before that, unless only other events were dropped.
            let key = DocumentKey::new(record::COPY, &record::copy_name(&name, batch));
            let request = DeliveryRequest::Fetch(name, active.life, batch);
            return shared.ask(request, Work::Read(Read::Document(key)));
        }
        let took = reading.take(stretch);
        let (seq, more) = (reading.at().seq, took.more);
        let wanted = took.events.into_iter().filter(|(seq, _)| (run.first..=run.last).contains(seq));
        active.events.extend(wanted);
        if seq >= run.last {
            fetch.runs.pop_front();
            fetch.reading = None;
        } else if !more {
            return self.check_fetch(shared, batch);
        }
        self.fetch(shared, now, batch);
    }

    /// Reads the progress: whether the batch was settled or copied since it was loaded.
    fn check_fetch(&mut self, shared: &mut DeliveryShared, batch: u64) {
        let name = self.name().clone();
        let Some(active) = self.active() else { return };
        let life = active.life;
        let Some(fetch) = active.fetches.get_mut(&batch) else { return };
        fetch.checks = true;
        let key = DocumentKey::new(record::DELIVERY, &name);
        shared.ask(DeliveryRequest::Fetch(name, life, batch), Work::Read(Read::Document(key)));
    }

    /// The copy of a batch, or the progress that confirms that it needs none.
    pub(super) fn fetched_document(
        &mut self,
        shared: &mut DeliveryShared,
        now: Time,
        batch: u64,
        found: Option<&Versioned<Document>>,
    ) {
        let Some(active) = self.active() else { return };
        let known = active.version;
        let Some(fetch) = active.fetches.get_mut(&batch) else { return };
        match found {
            Some(copy) if !fetch.checks => self.fetched_copy(shared, now, batch, &copy.row.body),
            None if !fetch.checks => {
                // The log was trimmed before the batch was sealed, or the batch is settled.
                fetch.has_no_copy = true;
                self.fetch(shared, now, batch);
            }
            Some(progress) if progress.version == known => match fetch.runs.is_empty() {
                true => self.fetch(shared, now, batch),
                false => self.events_missing(shared, now, batch),
            },
            _ => {
                self.state = DeliveryState::Idle;
                self.unread = true;
                self.wait_for_load(shared);
            }
        }
    }

    /// The copy of a batch whose events the log has dropped.
    fn fetched_copy(&mut self, shared: &mut DeliveryShared, now: Time, batch: u64, body: &[u8]) {
        let Ok(copies) = record::read::<Vec<CopiedEvent>>(body) else {
            return self.events_missing(shared, now, batch);
        };
        let Some(active) = self.active() else { return };
        for copy in copies {
            let entry = LogEntry {
                // Its position is not needed.
                position: 0,
                topic: copy.topic,
                count: 0,
                at: now,
                id: Some(copy.id),
                body: Arc::from(copy.event.as_bytes()),
            };
            active.events.insert(copy.seq, entry);
        }
        let Some(fetch) = active.fetches.remove(&batch) else { return };
        let whole = active.machine.batch(batch).is_some_and(|batch| active.entries(batch).is_some());
        match whole {
            true => self.send(shared, now, fetch.sending),
            false => self.events_missing(shared, now, batch),
        }
    }

    /// The events of a batch cannot be found: retried like a failed attempt, and reported.
    pub(super) fn events_missing(&mut self, shared: &mut DeliveryShared, now: Time, batch: u64) {
        shared.failure(self.name(), format!("the events of batch {batch} are not in the log"));
        let roll = shared.roll();
        let Some(active) = self.active() else { return };
        active.fetches.remove(&batch);
        active.started.remove(&batch);
        let error = Some("the events of the batch are not in the log".into());
        let reply = EndpointReply { error, ..DeliveryOutcome::Failed.into() };
        self.give(shared, now, Some(DeliveryInput::Answered { batch, reply, random: roll }));
    }
}

fn item(format: BatchFormat, seq: u64, entry: &LogEntry) -> QueuedEvent {
    let bytes = format.bytes_of(
        &shown_id(entry.id.as_deref(), entry.position, entry.at.ms()),
        &entry.topic,
        &entry.body,
    );
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    QueuedEvent { seq, position: entry.position, bytes, accepted: entry.at }
}
