//! Pulling: a client without an endpoint requests events, and acknowledges the previous ones with its next request.
//! Must hold: unacknowledged events are returned again, with the same numbers; dropped events are reported as a gap.

use super::command::{Pulled, TopicCaller};
use super::load::{LoadStop, SubscriptionRows, log_ends, peek, read_on, version};
use super::outcome::{Edit, NextStep, PulledPage, TopicDecided, TopicOutcome, TopicStep};
use super::position::{self, Forward};
use super::progress::unseal;
use super::reading::LogReading;
use crate::transaction::{DecisionContext, Facts};
use std::sync::Arc;
use tavern_domain::delivery::{DeliveryProgress, LogMark};
use tavern_domain::topic::SubscriptionMarks;
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{BatchEvent, BatchFormat, entry, gap_entry, shown_id};
use tavern_wire::record::{self, DELIVERY, MARKS};

#[derive(Clone)]
pub(super) struct Pull {
    pub name: Arc<str>,
    /// Everything up to this number is acknowledged.
    pub after: Option<u64>,
    limit: u32,
    /// The end of the last reply, and the version of the marks: its acknowledgement needs no read.
    last_reply: Option<(u64, LogMark)>,
    reads: PullReads,
}

/// How far the log was read. Restarts with the transaction.
#[derive(Clone, Default)]
struct PullReads {
    acknowledged: Option<Forward>,
    search: Option<Forward>,
    gathered: Option<(LogReading, PulledEvents)>,
    /// The log starts after the position from which it was read.
    cut: bool,
}

/// Events in the form of a reply.
#[derive(Clone)]
struct PulledEvents {
    entries: Vec<u8>,
    count: u32,
    first: u64,
    /// Their end position.
    last: LogMark,
}

impl Pull {
    pub fn new(name: Arc<str>, after: Option<u64>, limit: u32, last_reply: Option<(u64, LogMark)>) -> Pull {
        Pull { name, after, limit: limit.clamp(1, PAGE_ROWS), last_reply, reads: PullReads::default() }
    }

    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        let pulled = rows.subscription.row.pull;
        let mut progress = rows.delivery.row.clone();
        if let Some(why) = progress.disabled.filter(|_| pulled) {
            let message = format!(
                "the subscription is disabled ({}): POST /v1/subscriptions/{}/enable; no events are lost",
                why.as_str(),
                self.name
            );
            return Err(Refusal::new(Code::Conflict, message).into());
        }
        let mut changed = false;
        if pulled && !progress.batches.is_empty() {
            // A worker sealed them before it knew that the subscription is now pulled.
            unseal(&mut progress, log_ends(facts)?.first)?;
            changed = true;
        }
        if let Some(after) = self.after.filter(|&after| after > progress.sealed.seq) {
            let through = self.locate(facts, &rows, &progress, after)?;
            // Events for a callback are acknowledged only by the replies of the endpoint.
            changed |= pulled && progress.acknowledge(through);
        }
        self.gather(facts, &rows, &progress)?;
        self.check_cut(facts, &rows)?;
        let Some((_, events)) = self.reads.gathered.take() else { return Err(LoadStop::Again) };
        let hands_out = events.count > 0 && events.last.seq > progress.sealed.seq;
        let meaning = TopicOutcome::of(NextStep::Pull(events.page(&rows)));
        if !pulled || !(changed || hands_out) {
            return Ok(TopicStep::Done(meaning));
        }
        // The progress is written even when nothing was acknowledged: a change of topics expects the progress from
        // before it read the log, so a number that is returned now is never given to another event.
        let mut edit = Edit::new(context);
        edit.put(DELIVERY, &self.name, record::write_progress(&progress));
        let mut marks = SubscriptionMarks::clone(&rows.marks.row);
        if marks.note(progress.sealed) {
            edit.put(MARKS, &self.name, record::write_marks(&marks));
        }
        edit.commit(meaning)
    }

    /// If the log was trimmed where it was read, the progress must be as new as that: it has the new start.
    fn check_cut(&self, facts: &Facts, rows: &SubscriptionRows) -> Result<(), LoadStop> {
        if self.reads.cut && version(peek(facts, DELIVERY, &self.name)?) != rows.delivery.version {
            return Err(LoadStop::Again);
        }
        Ok(())
    }

    /// The position of the event with this number, which is after the acknowledged ones.
    fn locate(
        &mut self,
        facts: &Facts,
        rows: &SubscriptionRows,
        progress: &DeliveryProgress,
        seq: u64,
    ) -> Result<LogMark, LoadStop> {
        if let Some(shed) = progress.dropped.filter(|shed| seq <= shed.through.seq) {
            // In the middle of a gap there is no event: reading continues after it anyway.
            let position =
                if seq == shed.through.seq { shed.through.position } else { progress.sealed.position };
            return Ok(LogMark { seq, position });
        }
        let last_reply =
            self.last_reply.filter(|(version, mark)| *version == rows.marks.version && mark.seq == seq);
        if let Some((_, mark)) = last_reply {
            return Ok(mark);
        }
        let marks = &rows.marks.row;
        let forward = self.reads.acknowledged.get_or_insert_with(|| {
            let (reached, near) = (progress.reached(), marks.before(seq.saturating_add(1)));
            let from = if near.seq <= seq && near.position > reached.position { near } else { reached };
            Forward::new(marks, from)
        });
        let found = forward.to(facts, seq)?;
        self.reads.cut |= forward.cut;
        let Some(found) = found else {
            self.check_cut(facts, rows)?;
            let message =
                format!("`after` is {seq}, but this subscription has no event with that number yet");
            return Err(Refusal::new(Code::BadRequest, message).into());
        };
        Ok(found)
    }

    /// Reads the next events until the reply is full or there are no more.
    fn gather(
        &mut self,
        facts: &Facts,
        rows: &SubscriptionRows,
        progress: &DeliveryProgress,
    ) -> Result<(), LoadStop> {
        let after = self.after.unwrap_or(progress.sealed.seq);
        let limit = match progress.sealed.seq.checked_sub(after).filter(|again| *again > 0) {
            // Acknowledged events are read again, but only up to the last of them, because a gap may follow.
            Some(again) => u32::try_from(again).unwrap_or(self.limit).min(self.limit),
            None => self.limit,
        };
        if self.reads.gathered.is_none() {
            let events = self.begin(facts, rows, progress, after)?;
            self.reads.gathered = Some((LogReading::new(rows.marks.row.clone(), events.last), events));
        }
        let Some((reading, events)) = &mut self.reads.gathered else { return Ok(()) };
        let room = usize::try_from(rows.subscription.row.max_bytes).unwrap_or(usize::MAX);
        while events.count < limit {
            let begun = reading.at();
            let Some((log, took)) = read_on(facts, reading, limit - events.count)? else { break };
            self.reads.cut |= log.first > begun.position + 1;
            for (seq, event) in &took.events {
                let id = shown_id(event.id.as_deref(), event.position, event.at.ms());
                let bytes = BatchFormat::Standard.bytes_of(&id, &event.topic, &event.body);
                if events.count > 0 && events.entries.len() + bytes > room {
                    return Ok(());
                }
                events.push(LogMark { seq: *seq, position: event.position }, |out| {
                    entry(out, BatchEvent { seq: *seq, id: &id, topic: &event.topic, body: &event.body });
                });
            }
            if !took.more {
                break;
            }
        }
        Ok(())
    }

    /// The start of the reply, with a gap if one comes first.
    fn begin(
        &mut self,
        facts: &Facts,
        rows: &SubscriptionRows,
        progress: &DeliveryProgress,
        after: u64,
    ) -> Result<PulledEvents, LoadStop> {
        if after < progress.sealed.seq {
            return self.look_back(facts, &rows.marks.row, after);
        }
        let mut events = PulledEvents::after(LogMark { seq: after, ..progress.sealed });
        if let Some(shed) = progress.dropped.filter(|shed| shed.through.seq > after) {
            gap_entry(&mut events.entries, after + 1, shed.through.seq);
            (events.count, events.first, events.last) = (1, after + 1, shed.through);
        } else if after > progress.sealed.seq {
            // The subscription has a callback: events are read and not acknowledged.
            events.last = self.locate(facts, rows, progress, after)?;
        }
        Ok(events)
    }

    fn look_back(
        &mut self,
        facts: &Facts,
        marks: &Arc<SubscriptionMarks>,
        after: u64,
    ) -> Result<PulledEvents, LoadStop> {
        let gone = || {
            let message = format!(
                "the event after {after} is no longer in the log; omit `after` to continue with the oldest event"
            );
            LoadStop::from(Refusal::new(Code::Gone, message))
        };
        let forward = match &mut self.reads.search {
            Some(forward) => forward,
            None => {
                let from = position::before(facts, marks, after)?.ok_or_else(gone)?;
                self.reads.search.insert(Forward::new(marks, from))
            }
        };
        Ok(PulledEvents::after(forward.to(facts, after)?.ok_or_else(gone)?))
    }
}

impl PulledEvents {
    fn after(last: LogMark) -> PulledEvents {
        PulledEvents { entries: Vec::new(), count: 0, first: 0, last }
    }

    fn push(&mut self, at: LogMark, write: impl FnOnce(&mut Vec<u8>)) {
        match self.count {
            0 => self.first = at.seq,
            _ => self.entries.push(b','),
        }
        write(&mut self.entries);
        self.count += 1;
        self.last = at;
    }

    fn page(self, rows: &SubscriptionRows) -> PulledPage {
        let PulledEvents { entries, count, first, last } = self;
        PulledPage {
            pulled: Pulled { entries, count, first_seq: first, last_seq: last.seq },
            last,
            marks_version: rows.marks.version,
            topics: rows.topics(),
        }
    }
}
