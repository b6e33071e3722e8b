//! Publishing: one transaction, then the signals. Must hold: a message is counted for and queued to exactly those who
//! were subscribed when it was committed and live; nobody hears of it before it is committed.

use crate::error::Error;
use crate::handle::Options;
use crate::limits;
use crate::message::{Draft, Space};
use crate::process::{Process, lock};
use crate::reach::Audience;
use crate::roster::Own;
use crate::sweep;
use crate::table::{Head, now_ms};
use crate::wake::Signal;
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Who publishes.
#[derive(Clone, Copy)]
pub struct Speaker<'a> {
    pub subscriber: u64,
    pub options: &'a Options,
}

/// What a batch has met on its way.
#[derive(Default)]
struct Batch {
    recipients: Vec<u64>,
    /// Processes, and whether they live.
    met: BTreeMap<i64, bool>,
    told: BTreeSet<i64>,
    /// Nobody has looked for the dead for a while.
    unswept: bool,
}

impl Process {
    pub fn publish(&self, speaker: Speaker<'_>, drafts: &[Draft<'_>]) -> Result<Vec<u64>, Error> {
        self.check()?;
        drafts.iter().try_for_each(|draft| check_size(draft, speaker.options.message_bytes))?;
        let own = self.own(speaker, drafts);
        if self.is_unheard(drafts) {
            return Ok(vec![0; drafts.len()]);
        }
        let mut recipients = Vec::with_capacity(drafts.len());
        let mut from = 0;
        while from < drafts.len() {
            let to = from + batch_length(&drafts[from..]);
            let part = &own[from.min(own.len())..to.min(own.len())];
            recipients.extend(self.publish_batch(speaker, &drafts[from..to], part)?);
            from = to;
        }
        Ok(recipients)
    }

    /// How often the speaker itself would hear each message without being counted: all of it if it wants no echo, else
    /// as one who hears everything. Nothing if that is never.
    fn own(&self, speaker: Speaker<'_>, drafts: &[Draft<'_>]) -> Vec<Own> {
        if speaker.options.echo {
            let Ok(state) = self.try_state() else { return Vec::new() };
            let wide = Space::ALL.map(|space| state.roster.wide(speaker.subscriber, space));
            let own = |draft: &Draft<'_>| Own { listeners: wide[draft.space as usize], recipients: 0 };
            return if wide == [0, 0] { Vec::new() } else { drafts.iter().map(own).collect() };
        }
        let state = self.state();
        let own = |draft: &Draft<'_>| state.roster.own(speaker.subscriber, draft.space, draft.channel);
        drafts.iter().map(own).collect()
    }

    /// Known without asking the database: there is nobody.
    fn is_unheard(&self, drafts: &[Draft<'_>]) -> bool {
        let version = self.page.version();
        let reach = lock(&self.reach);
        let unheard = |draft: &Draft<'_>| {
            reach.remembered(version, draft.space, draft.channel).is_some_and(|audience| audience.is_empty())
        };
        drafts.iter().all(unheard)
    }

    fn publish_batch(
        &self,
        speaker: Speaker<'_>,
        drafts: &[Draft<'_>],
        own: &[Own],
    ) -> Result<Vec<u64>, Error> {
        let began = Instant::now();
        let batch = loop {
            match self.try_batch(speaker, drafts, own, began)? {
                Ok(batch) => break batch,
                Err((wide, version)) => self.await_change(&wide, version, began),
            }
        };
        self.ring_all(&batch.told, Signal::Look);
        let dead: Vec<i64> = batch.met.iter().filter(|(_, alive)| !**alive).map(|(id, _)| *id).collect();
        // It is published, whatever becomes of the dead. Somebody else will meet those who stay.
        let _ = self.bury(&dead, speaker.options.patience);
        if batch.unswept {
            // Those who listen to something else, or to nothing yet, are met by nobody.
            let _ = self.sweep(speaker.options.patience);
        }
        Ok(batch.recipients)
    }

    /// Writes the batch, unless somebody hears everything: then those must be asked to say what they really want to
    /// hear, and the version that must change is given with them.
    fn try_batch(
        &self,
        speaker: Speaker<'_>,
        drafts: &[Draft<'_>],
        own: &[Own],
        began: Instant,
    ) -> Result<Result<Batch, (BTreeSet<i64>, u64)>, Error> {
        let mut reach = lock(&self.reach);
        let own = |at: usize| own.get(at).copied().unwrap_or_default();
        self.write(speaker.options.patience, |database, head| {
            let mut batch = Batch { unswept: sweep::is_due(head), ..Batch::default() };
            reach.refresh(database, head)?;
            let mut audiences = Vec::with_capacity(drafts.len());
            for draft in drafts {
                audiences.push(reach.audience(database, draft.space, draft.channel)?);
            }
            if began.elapsed() < Duration::from_millis(limits::NARROW_MS) && reach.may_ask() {
                let wide = audiences.iter().enumerate().flat_map(|(at, all)| self.wide(all, own(at)));
                let wide: BTreeSet<i64> = wide.collect();
                if !wide.is_empty() {
                    return Ok(Err((wide, head.roster)));
                }
            }
            for (at, (draft, audience)) in drafts.iter().zip(&audiences).enumerate() {
                self.write_one(database, head, &mut batch, speaker, draft, audience, own(at))?;
            }
            if !batch.told.is_empty() {
                sweep::bound(database, head, speaker.options)?;
            }
            Ok(Ok(batch))
        })
    }

    fn ring_all(&self, processes: &BTreeSet<i64>, signal: Signal) {
        let (bell, here) = (self.bell(), self.number());
        for &process in processes {
            if process != here {
                bell.ring(process, signal);
                continue;
            }
            if signal == Signal::Narrow {
                self.state().narrow += 1;
                self.stirred.notify_all();
            }
            // Without a look at who sleeps there: that would take the state, which the one who sleeps may want.
            bell.ring_home();
        }
    }

    /// Processes with somebody who hears everything, beside the speaker itself.
    fn wide<'a>(&'a self, audience: &'a Audience, own: Own) -> impl Iterator<Item = i64> + 'a {
        let here = self.number();
        audience.iter().filter_map(move |hearer| {
            let own = if hearer.process == here { own.listeners - own.recipients } else { 0 };
            let wide = hearer.listeners - hearer.recipients > own && self.locks.is_alive(hearer.process);
            wide.then_some(hearer.process)
        })
    }

    /// Asks until the roster has changed. Whoever does not answer in time is not asked again for a while.
    fn await_change(&self, wide: &BTreeSet<i64>, version: u64, began: Instant) {
        let mut asked: Option<Instant> = None;
        while self.page.version() == version {
            if asked.is_none_or(|asked| asked.elapsed() >= Duration::from_millis(limits::NARROW_ASK_MS)) {
                self.ring_all(wide, Signal::Narrow);
                asked = Some(Instant::now());
            }
            if began.elapsed() >= Duration::from_millis(limits::NARROW_MS) {
                lock(&self.reach).asked_in_vain();
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one transaction, borrowed apart")]
    fn write_one(
        &self,
        database: &Connection,
        head: &mut Head,
        batch: &mut Batch,
        speaker: Speaker<'_>,
        draft: &Draft<'_>,
        audience: &Audience,
        own: Own,
    ) -> rusqlite::Result<()> {
        let here = self.number();
        let mut recipients = 0;
        let mut queued = false;
        for hearer in audience.iter() {
            let alive =
                *batch.met.entry(hearer.process).or_insert_with(|| self.locks.is_alive(hearer.process));
            let own = if hearer.process == here && !speaker.options.echo { own } else { Own::default() };
            if !alive || hearer.listeners <= own.listeners {
                continue;
            }
            recipients += u64::from(hearer.recipients.saturating_sub(own.recipients));
            if !queued {
                queued = true;
                head.last_id += 1;
                append(database, head, here, speaker, draft)?;
            }
            let sql = "INSERT INTO queue (process, id) VALUES (?1, ?2)";
            database.prepare_cached(sql)?.execute([hearer.process, head.last_id])?;
            batch.told.insert(hearer.process);
        }
        batch.recipients.push(recipients);
        Ok(())
    }
}

fn append(
    database: &Connection,
    head: &mut Head,
    process: i64,
    speaker: Speaker<'_>,
    draft: &Draft<'_>,
) -> rusqlite::Result<()> {
    let size = (draft.channel.len() + draft.note.len() + draft.payload.len()) as i64;
    let sql = "INSERT INTO log (id, at, process, subscriber, space, size, channel, note, payload) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    database.prepare_cached(sql)?.execute(params![
        head.last_id,
        now_ms(),
        process,
        speaker.subscriber as i64,
        draft.space as i64,
        size,
        draft.channel,
        draft.note,
        draft.payload,
    ])?;
    head.log_messages += 1;
    head.log_bytes += size;
    Ok(())
}

fn check_size(draft: &Draft<'_>, most: usize) -> Result<(), Error> {
    let parts = [("channel", draft.channel), ("payload", draft.payload), ("note", draft.note)];
    for (what, bytes) in parts {
        if bytes.len() > most {
            return Err(Error::TooLarge { what, bytes: bytes.len(), most });
        }
    }
    Ok(())
}

/// How many drafts go into one transaction.
fn batch_length(drafts: &[Draft<'_>]) -> usize {
    let mut bytes = 0;
    let fits = |draft: &&Draft<'_>| {
        bytes += draft.payload.len() + draft.channel.len() + draft.note.len();
        bytes <= limits::PUMP_BYTES
    };
    drafts.iter().take(limits::BATCH).take_while(fits).count().max(1)
}
