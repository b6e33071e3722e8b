//! The courier's reading and sending: events from the log for the machine, and for batches that another worker has sealed.

use super::courier::{Asked, Courier};
use super::line::{Active, Fetch, Line};
use super::post::{Outcome, Post};
use super::reading::Reading;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{Input, Item, Mark, Sending};
use tavern_engine::limits::PAGE_ROWS;
use tavern_engine::{Answer, DocumentKey, Entry, Found, Read, Stretch, Work};
use tavern_wire::json::event::{Format, shown_id};
use tavern_wire::record::{self, Copied};

impl Courier {
    /// Reads as much as the machine wants, if there may be anything.
    pub(super) fn read_more(&mut self, now: Time, name: &Arc<str>) {
        let Some(line) = self.lines.get_mut(name).filter(|line| line.hungry) else { return };
        let Some(active) = line.active().filter(|active| !active.reads) else { return };
        let Some(want) = active.machine.want(now) else { return };
        if active.reading.as_ref().is_none_or(|reading| reading.at().seq != want.after.seq) {
            active.reading = Some(Reading::new(active.marks.clone(), want.after));
        }
        let limit = want.events.clamp(1, PAGE_ROWS);
        match active.reading.as_mut().and_then(|reading| reading.read(limit)) {
            Some(read) => {
                active.reads = true;
                let life = active.life;
                // Whatever is published from now on is news again.
                line.hungry = false;
                self.ask(Asked::Events(name.clone(), life), Work::Read(read));
            }
            None => line.hungry = false,
        }
    }

    fn read_events(&mut self, now: Time, name: &Arc<str>, stretch: Stretch) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let format = line.subscription.format;
        let Some(active) = line.active() else { return };
        active.reads = false;
        let Some(reading) = active.reading.as_mut() else { return };
        let took = reading.take(stretch);
        let items: Vec<Item> = took.events.iter().map(|(seq, entry)| item(format, *seq, entry)).collect();
        let last = items.last().map(|item| item.seq);
        active.events.extend(took.events);
        // Disabled meanwhile: it is read again when it is enabled.
        line.hungry |= took.more;
        self.give(now, name, Some(Input::Items(items)));
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        forget_ahead(now, active);
        // A batch that is full of bytes had no room for all of them: nobody else will say that there are more.
        let left = last.is_some_and(|last| active.machine.want(now).is_none_or(|want| want.after.seq < last));
        if left && let Some(line) = self.lines.get_mut(name) {
            line.hungry = true;
            self.step(now, name);
        }
    }

    /// Posts a batch, after its events were read if they are not here.
    pub(super) fn send(&mut self, now: Time, name: &Arc<str>, sending: Sending) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let subscription = line.subscription.clone();
        let Some(active) = line.active() else { return };
        let Some(batch) = active.machine.batch(sending.batch) else { return };
        match active.entries(batch) {
            Some(events) => {
                let Sending { batch: number, attempt, reason } = sending;
                let accepted = batch.accepted;
                self.fly(name, Post { subscription, batch: number, attempt, reason, accepted, events });
            }
            None => {
                let runs = batch.runs.iter().filter(|run| !run.gap).copied().collect();
                active.fetches.insert(sending.batch, Fetch { sending, runs, reading: None });
                self.fetch(now, name, sending.batch);
            }
        }
    }

    fn fetch(&mut self, now: Time, name: &Arc<str>, batch: u64) {
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        let marks = active.marks.clone();
        let Some(fetch) = active.fetches.get_mut(&batch) else { return };
        let Some(run) = fetch.runs.front() else {
            let sending = fetch.sending;
            active.fetches.remove(&batch);
            return self.send(now, name, sending);
        };
        let left = run.last.saturating_sub(fetch.reading.as_ref().map_or(run.after.seq, |r| r.at().seq));
        let reading = fetch.reading.get_or_insert_with(|| Reading::new(marks, run.after));
        match reading.read(u32::try_from(left).unwrap_or(PAGE_ROWS).clamp(1, PAGE_ROWS)) {
            Some(read) => self.ask(Asked::Fetch(name.clone(), self.life(name), batch), Work::Read(read)),
            None => self.lost(now, name, batch),
        }
    }

    fn fetched(&mut self, now: Time, name: &Arc<str>, batch: u64, stretch: Stretch) {
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        let Some(fetch) = active.fetches.get_mut(&batch) else { return };
        let (Some(run), Some(reading)) = (fetch.runs.front().copied(), fetch.reading.as_mut()) else {
            return;
        };
        if stretch.log.first > reading.at().position + 1 && reading.at().seq < run.last {
            // The log has been cut here: the batch was copied before.
            let key = DocumentKey::new(record::COPY, &record::copy_name(name, batch));
            return self
                .ask(Asked::Fetch(name.clone(), self.life(name), batch), Work::Read(Read::Document(key)));
        }
        let took = reading.take(stretch);
        let (seq, more) = (reading.at().seq, took.more);
        let wanted = took.events.into_iter().filter(|(seq, _)| (run.first..=run.last).contains(seq));
        active.events.extend(wanted);
        if seq >= run.last {
            fetch.runs.pop_front();
            fetch.reading = None;
        } else if !more {
            return self.lost(now, name, batch);
        }
        self.fetch(now, name, batch);
    }

    fn copied(&mut self, now: Time, name: &Arc<str>, batch: u64, body: &[u8]) {
        let Ok(copies) = record::read::<Vec<Copied>>(body) else { return self.lost(now, name, batch) };
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        for copy in copies {
            let entry = Entry {
                // Where it stood is of no use any more.
                position: 0,
                topic: copy.topic,
                count: 0,
                at: now,
                id: Some(copy.id),
                body: Arc::from(copy.event.as_bytes()),
            };
            active.copied.insert(copy.seq);
            active.events.insert(copy.seq, entry);
        }
        active.copies.insert(batch);
        let Some(fetch) = active.fetches.remove(&batch) else { return };
        let whole = active.machine.batch(batch).is_some_and(|batch| active.entries(batch).is_some());
        match whole {
            true => self.send(now, name, fetch.sending),
            false => self.lost(now, name, batch),
        }
    }

    /// The events of a batch cannot be found: tried again like a failed attempt, and said.
    fn lost(&mut self, now: Time, name: &Arc<str>, batch: u64) {
        self.trouble(name, format!("the events of batch {batch} are not in the log"));
        if let Some(active) = self.lines.get_mut(name).and_then(Line::active) {
            active.fetches.remove(&batch);
        }
        self.fail(now, name, batch);
    }

    fn fail(&mut self, now: Time, name: &Arc<str>, batch: u64) {
        let roll = self.dice.roll() as u64;
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        active.started.remove(&batch);
        let outcome = active.outcome(batch, Outcome::Failed);
        self.give(now, name, Some(Input::Answered { batch, outcome, roll }));
    }

    /// What the store has answered, and what that was for.
    pub(super) fn heard(&mut self, now: Time, asked: Asked, answer: Answer) {
        match (asked, answer) {
            (Asked::Look, answer) => self.looked(answer),
            (Asked::List { version, names }, answer) => self.listed(now, version, names, answer),
            (Asked::One(name), answer) => self.read_one(now, &name, answer),
            (Asked::Progress(name), Answer::Read(Found::Document(found))) => {
                self.loaded(now, &name, |load| load.progress = Some(found));
            }
            (Asked::Marks(name), Answer::Read(Found::Document(found))) => {
                self.loaded(now, &name, |load| load.marks = Some(found));
            }
            (Asked::Progress(name) | Asked::Marks(name), Answer::Failed(error)) => {
                self.unloaded(now, &name, &error);
            }
            (Asked::Check(name), Answer::Read(Found::Document(found))) => {
                self.checked(&name, found.map_or(0, |found| found.version));
            }
            (
                Asked::Events(name, life)
                | Asked::Fetch(name, life, _)
                | Asked::Take(name, life)
                | Asked::Save(name, life),
                _,
            ) if life != self.life(&name) => {}
            (Asked::Events(name, _), Answer::Read(Found::Log(stretch))) => {
                self.read_events(now, &name, stretch);
            }
            (Asked::Fetch(name, _, batch), Answer::Read(Found::Log(stretch))) => {
                self.fetched(now, &name, batch, stretch);
            }
            (Asked::Fetch(name, _, batch), Answer::Read(Found::Document(Some(copy)))) => {
                self.copied(now, &name, batch, &copy.row.body);
            }
            (Asked::Fetch(name, _, batch), Answer::Read(_)) => self.lost(now, &name, batch),
            (Asked::Take(name, _), Answer::Committed(receipt)) => self.taken(now, &name, &receipt),
            (Asked::Save(name, _), Answer::Committed(receipt)) => self.saved(now, &name, &receipt),
            (
                Asked::Take(name, _) | Asked::Save(name, _) | Asked::Events(name, _) | Asked::Fetch(name, ..),
                Answer::Failed(error),
            ) => self.refused(now, &name, error),
            (Asked::Check(_) | Asked::Unwatch, _) => {}
            (asked, answer) => unreachable!("{asked:?} was answered with {answer:?}"),
        }
    }
}

fn item(format: Format, seq: u64, entry: &Entry) -> Item {
    let bytes = format.bytes_of(&shown_id(entry.id.as_deref(), entry.position), &entry.topic, &entry.body);
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Item { seq, position: entry.position, bytes, accepted: entry.at }
}

/// What the machine had no room for is read again when it has.
fn forget_ahead(now: Time, active: &mut Active) {
    let Some(want) = active.machine.want(now) else {
        // Full: what it took it holds; the reading goes on behind it.
        return;
    };
    let Mark { seq, .. } = want.after;
    active.events.retain(|held, _| *held <= seq);
}
