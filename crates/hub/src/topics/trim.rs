//! Trims the log: events that are too old or too many are dropped, oldest first, and old ids are deleted. Must hold:
//! a subscription that had not received dropped events gets a gap in their place, in the same commit or before it;
//! batches in progress are copied first.

use super::announcement;
use super::id_marks::{ID_MS, IdMarks};
use super::load::{Listing, LoadStop, document, log_ends, log_page, parse, peek, read_on};
use super::outcome::{Edit, LostEvents, NextStep, Retained, TopicDecided, TopicOutcome, TopicStep, TrimPlan};
use super::position;
use super::reading::LogReading;
use crate::settings::RetentionRules;
use crate::transaction::{DecisionContext, Facts};
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{Batch, DeliveryProgress, EntryRange};
use tavern_domain::topic::{DELIVERIES, SubscriptionMarks};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Document, Trim, Versioned};
use tavern_wire::json::event::shown_id;
use tavern_wire::record::{self, COPY, CopiedEvent, DELIVERY, EVENT_IDS, EVENTS, LOG, MARKS, TOPIC};

/// The limits of one commit: subscriptions that are behind, each a few rows, and bytes of copied batches.
const SUBSCRIPTIONS_PER_COMMIT: usize = 200;
const COPIED_BYTES: usize = 4 << 20;

/// Checks whether any events are too old or too many.
#[derive(Clone)]
pub(super) struct RetentionCheck {
    rules: RetentionRules,
    /// The time by which ages are judged. None: only the bytes are checked.
    deletion_time: Option<Time>,
    /// How far the log was read to find the excess: the bytes that would stay, and where they start.
    excess: Option<(u64, u64)>,
}

impl RetentionCheck {
    pub fn new(rules: RetentionRules, deletion_time: Option<Time>) -> RetentionCheck {
        RetentionCheck { rules, deletion_time, excess: None }
    }

    pub fn decide(&mut self, facts: &Facts) -> TopicDecided {
        let ends = log_ends(facts)?;
        let (mut before, mut ids_before, mut id_marks) = (ends.first, 0, None);
        if let Some(time) = self.deletion_time {
            before = before.max(position::first_since(facts, ends, time, self.rules.retention_ms)?);
            let marks = IdMarks::load(facts)?;
            let by_age = match position::first_since(facts, ends, time, ID_MS)? {
                // The log does not go back that far: ids are kept longer than their events.
                position if position == ends.first => marks.kept_from(time),
                position => position,
            };
            ids_before = by_age.max((ends.head + 1).saturating_sub(self.rules.dedupe_max));
            id_marks = marks.with(time, ends.head);
        }
        if ends.bytes > self.rules.max_bytes {
            let (bytes, first) = self.excess.get_or_insert((ends.bytes, ends.first));
            while *bytes > self.rules.low_bytes {
                let page = log_page(facts, *first - 1)?;
                if page.log.first != ends.first {
                    // Another node has trimmed the log since its size was read.
                    return Err(LoadStop::Again);
                }
                if page.page.rows.is_empty() {
                    break;
                }
                for entry in &page.page.rows {
                    if *bytes <= self.rules.low_bytes {
                        break;
                    }
                    *bytes = bytes.saturating_sub(entry.body.len() as u64);
                    *first = entry.position + 1;
                }
            }
            before = before.max(*first);
        }
        let before = if before > ends.first { before } else { 0 };
        let plan = TrimPlan { before, ids_before, id_marks };
        Ok(TopicStep::Done(TopicOutcome::of(NextStep::Retain(Retained::Checked(plan)))))
    }
}

/// Drops everything before a position.
#[derive(Clone)]
pub(super) struct Cut {
    plan: TrimPlan,
    listing: Listing,
    /// Progress documents that were not checked yet.
    unseen: VecDeque<Versioned<Document>>,
    behind: Vec<Behind>,
    copying: Copying,
}

/// A subscription that loses events, or whose batches are copied.
#[derive(Clone)]
struct Behind {
    name: Arc<str>,
    version: u64,
    progress: DeliveryProgress,
    lost: Option<(u64, u64)>,
    copies: Vec<(u64, Vec<CopiedEvent>)>,
}

impl Behind {
    fn bytes(&self) -> usize {
        self.copies.iter().flat_map(|(_, events)| events).map(|copied| copied.event.len()).sum()
    }
}

impl Cut {
    pub fn new(plan: TrimPlan) -> Cut {
        Cut {
            plan,
            listing: Listing::all(DELIVERY),
            unseen: VecDeque::new(),
            behind: Vec::new(),
            copying: Copying::default(),
        }
    }

    pub fn decide(&mut self, context: &DecisionContext<'_>, facts: &Facts) -> TopicDecided {
        // A concurrent replay is a conflict, because its subscription may then be behind.
        document(facts, EVENTS, LOG)?;
        let first = log_ends(facts)?.first;
        let drops = self.plan.before > first;
        let all = !drops || self.find_behind(context, facts, first)?;
        let announces = !self.behind.is_empty() && peek(facts, TOPIC, DELIVERIES)?.is_some();
        let mut edit = Edit::new(context);
        let (mut changed, mut lost) = (Vec::new(), Vec::new());
        for one in &self.behind {
            edit.expect(DELIVERY, &one.name, one.version);
            edit.put(DELIVERY, &one.name, record::write_progress(&one.progress));
            for (batch, copies) in &one.copies {
                edit.put(COPY, &record::copy_name(&one.name, *batch), record::write(copies));
            }
            if let Some((first, last)) = one.lost {
                if announces {
                    edit.0.appends.push(announcement::shed(&one.name, first, last, context.now.ms()));
                }
                lost.push(LostEvents { name: one.name.clone(), first, last });
            }
            changed.push(one.name.clone());
        }
        let next = if all {
            if drops {
                edit.put(EVENTS, LOG, *b"{}");
            }
            if let Some(marks) = &self.plan.id_marks {
                edit.put(EVENTS, EVENT_IDS, marks.write());
            }
            let before = self.plan.before.max(first);
            edit.0.trim = Some(Trim { before, ids_before: self.plan.ids_before });
            NextStep::Retain(Retained::Trimmed { from: first, before, subscriptions: self.behind.len() })
        } else {
            NextStep::Repeat
        };
        let announced = !edit.0.appends.is_empty();
        edit.commit(TopicOutcome { next, changed, announced, lost })
    }

    /// Checks the progress of all subscriptions. False: those that are behind already fill a commit.
    fn find_behind(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        log_first: u64,
    ) -> Result<bool, LoadStop> {
        loop {
            let copied: usize = self.behind.iter().map(Behind::bytes).sum();
            if self.behind.len() >= SUBSCRIPTIONS_PER_COMMIT || copied >= COPIED_BYTES {
                return Ok(false);
            }
            let Some(delivery) = self.unseen.front().cloned() else {
                match self.listing.next(facts)? {
                    Some(page) => self.unseen.extend(page),
                    None => return Ok(true),
                }
                continue;
            };
            let behind = self.find_loss(context, facts, &delivery, log_first)?;
            self.behind.extend(behind);
            self.copying = Copying::default();
            self.unseen.pop_front();
        }
    }

    /// The loss of one subscription.
    fn find_loss(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        delivery: &Versioned<Document>,
        log_first: u64,
    ) -> Result<Option<Behind>, LoadStop> {
        let name: Arc<str> = delivery.row.key.name().into();
        let Versioned { version, row: mut progress } = parse(delivery, record::read_progress)?;
        let begins_before = |run: &EntryRange| !run.gap && run.after.position + 1 < self.plan.before;
        let under_way = |batch: &&Batch| batch.ranges.iter().any(begins_before);
        let batches: Vec<Batch> = progress.batches.iter().filter(under_way).cloned().collect();
        if progress.reached().position + 1 >= self.plan.before && batches.is_empty() {
            return Ok(None);
        }
        let Some(marks) = document(facts, MARKS, &name)? else { return Ok(None) };
        let marks = Arc::new(parse(marks, record::read_marks)?.row);
        for batch in &batches {
            if document(facts, COPY, &record::copy_name(&name, batch.number))?.is_none() {
                self.copying.copy(facts, &marks, batch)?;
            }
        }
        let through = position::at(facts, &marks, self.plan.before - 1, log_first)?;
        let lost = match through.seq > progress.reached().seq {
            true => progress.shed(context.now, through),
            false => None,
        };
        let copies = std::mem::take(&mut self.copying.copies);
        if lost.is_none() && copies.is_empty() {
            return Ok(None);
        }
        Ok(Some(Behind { name, version, progress, lost, copies }))
    }
}

/// The events of one subscription's batches, as the log has them.
#[derive(Clone, Default)]
struct Copying {
    copies: Vec<(u64, Vec<CopiedEvent>)>,
    /// The batch that is copied now: which range, how far it was read, what was found.
    run: usize,
    reading: Option<LogReading>,
    events: Vec<CopiedEvent>,
}

impl Copying {
    fn copy(&mut self, facts: &Facts, marks: &Arc<SubscriptionMarks>, batch: &Batch) -> Result<(), LoadStop> {
        if self.copies.iter().any(|(number, _)| *number == batch.number) {
            return Ok(());
        }
        let runs: Vec<&EntryRange> = batch.ranges.iter().filter(|run| !run.gap).collect();
        while let Some(run) = runs.get(self.run) {
            let reading = self.reading.get_or_insert_with(|| LogReading::new(marks.clone(), run.after));
            while reading.at().seq < run.last {
                let left = run.last - reading.at().seq;
                let limit = u32::try_from(left).unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
                let Some((_, took)) = read_on(facts, reading, limit)? else { break };
                let wanted = took.events.iter().filter(|(seq, _)| (run.first..=run.last).contains(seq));
                self.events.extend(wanted.map(|(seq, entry)| CopiedEvent {
                    seq: *seq,
                    id: shown_id(entry.id.as_deref(), entry.position, entry.at.ms()).into(),
                    topic: entry.topic.clone(),
                    event: String::from_utf8_lossy(&entry.body).into(),
                }));
                if !took.more && reading.at().seq < run.last {
                    break;
                }
            }
            (self.run, self.reading) = (self.run + 1, None);
        }
        self.copies.push((batch.number, std::mem::take(&mut self.events)));
        self.run = 0;
        Ok(())
    }
}

/// Deletes the copies of settled batches.
#[derive(Clone)]
pub(super) struct SweepCopies {
    listing: Listing,
    unseen: VecDeque<Versioned<Document>>,
    settled: Vec<Versioned<Document>>,
}

impl SweepCopies {
    pub fn new() -> SweepCopies {
        SweepCopies { listing: Listing::all(COPY), unseen: VecDeque::new(), settled: Vec::new() }
    }

    pub fn decide(&mut self, context: &DecisionContext<'_>, facts: &Facts) -> TopicDecided {
        // The rest is swept at the next check.
        while self.settled.len() < SUBSCRIPTIONS_PER_COMMIT {
            let Some(copy) = self.unseen.front() else {
                match self.listing.next(facts)? {
                    Some(page) => self.unseen.extend(page),
                    None => break,
                }
                continue;
            };
            let settled = is_settled(facts, copy)?;
            self.settled.extend(self.unseen.pop_front().filter(|_| settled));
        }
        let meaning = TopicOutcome::of(NextStep::Retain(Retained::SweptPresence));
        if self.settled.is_empty() {
            return Ok(TopicStep::Done(meaning));
        }
        let mut edit = Edit::new(context);
        for copy in &self.settled {
            edit.expect(COPY, copy.row.key.name(), copy.version);
            edit.delete(COPY, copy.row.key.name());
        }
        edit.commit(meaning)
    }
}

fn is_settled(facts: &Facts, copy: &Versioned<Document>) -> Result<bool, LoadStop> {
    let Some((name, batch)) = copy.row.key.name().rsplit_once('/') else { return Ok(false) };
    let Some(delivery) = peek(facts, DELIVERY, name)? else { return Ok(true) };
    let progress = parse(delivery, record::read_progress)?.row;
    let number: Option<u64> = batch.parse().ok();
    Ok(!progress.batches.iter().any(|batch| Some(batch.number) == number))
}
