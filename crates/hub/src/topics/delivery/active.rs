//! The state of a subscription while there is work: the delivery machine, the events it needs, the reads and saves
//! in progress. Decides nothing: the machine does.

use super::attempts::UnsavedAttempts;
use super::lease::HeldLease;
use super::post::AttemptEntry;
use crate::topics::LogReading;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{
    AttemptStart, Batch, BatchReason, Delivery, DeliveryEffect, EndpointReply, EntryRange, LogMark,
};
use tavern_domain::topic::SubscriptionMarks;
use tavern_store::{DocumentKey, Expect, LogEntry, RowKey};
use tavern_wire::json::event::shown_id;
use tavern_wire::record::{self, CopiedEvent, DeadLetterRecord};

pub(super) struct ActiveDelivery {
    /// Answers to requests of an earlier activation are ignored.
    pub life: u64,
    pub machine: Delivery,
    pub marks: Arc<SubscriptionMarks>,
    pub marks_version: u64,
    /// The version of the document that holds the progress.
    pub version: u64,
    pub lease: HeldLease,
    pub reading: Option<LogReading>,
    pub reads: bool,
    /// By number: the events that are not sealed and those of unsettled batches.
    pub events: BTreeMap<u64, LogEntry>,
    /// The batches that were cut from another and have a copy.
    pub copies: BTreeSet<u64>,
    /// Batches whose events are read before they are posted.
    pub fetches: BTreeMap<u64, LogFetch>,
    /// Batches that this machine has started to send.
    pub started: BTreeSet<u64>,
    /// The batches in the save in progress.
    pub saved: Option<BTreeSet<u64>>,
    /// What is announced in the next save, which waits while another one is in progress.
    pub unannounced: Vec<DeliveryEffect>,
    /// Attempts that ended since the last save.
    pub attempts: UnsavedAttempts,
    /// It is in the queue of subscriptions that may send.
    pub queued: bool,
    /// Since when there is nothing to do.
    pub idle_since: Option<Time>,
}

/// The events of a sealed batch that are being read from the log.
pub(super) struct LogFetch {
    pub sending: AttemptStart,
    pub runs: VecDeque<EntryRange>,
    pub reading: Option<LogReading>,
    /// The batch has no copy: the log has all its events, if the progress is as it was when it was loaded.
    pub has_no_copy: bool,
    /// The progress is read to confirm that.
    pub checks: bool,
}

impl ActiveDelivery {
    pub fn new(
        life: u64,
        machine: Delivery,
        lease: HeldLease,
        marks: (SubscriptionMarks, u64),
        version: u64,
    ) -> ActiveDelivery {
        let cut = machine.progress().batches.iter().filter(|batch| batch.reason == BatchReason::Recut);
        let copies = cut.map(|batch| batch.number).collect();
        ActiveDelivery {
            life,
            machine,
            marks: Arc::new(marks.0),
            marks_version: marks.1,
            version,
            lease,
            reading: None,
            reads: false,
            events: BTreeMap::new(),
            copies,
            fetches: BTreeMap::new(),
            started: BTreeSet::new(),
            saved: None,
            unannounced: Vec::new(),
            attempts: UnsavedAttempts::default(),
            queued: false,
            idle_since: None,
        }
    }

    /// The rows that a commit of this worker expects.
    pub fn expects(&self, name: &str) -> Vec<Expect> {
        let document =
            |kind, version| Expect { key: RowKey::Document(DocumentKey::new(kind, name)), version };
        let mut expects =
            vec![document(record::DELIVERY, self.version), document(record::MARKS, self.marks_version)];
        expects.extend(self.lease.expect(name));
        expects
    }

    /// Nothing is in progress or queued.
    pub fn is_done(&self, unread: bool) -> bool {
        let progress = self.machine.progress();
        let nothing =
            progress.batches.is_empty() && progress.dropped.is_none() && self.machine.oldest().is_none();
        let disabled = progress.disabled.is_some();
        (disabled || nothing && !unread) && self.machine.is_at_rest() && !self.reads && !self.lease.taking
    }

    /// Events wait for the first batch to fill, and nothing else is in progress.
    pub fn is_filling(&self) -> bool {
        let progress = self.machine.progress();
        let fails = progress.failure.is_some() || progress.disabled.is_some();
        !fails && progress.batches.is_empty() && self.saved.is_none() && self.machine.oldest().is_some()
    }

    /// The entries of a batch. None: not all of its events are here.
    pub fn entries(&self, batch: &Batch) -> Option<Vec<AttemptEntry>> {
        let mut entries = Vec::new();
        for run in &batch.ranges {
            if run.gap {
                entries.push(AttemptEntry::Gap { first: run.first, last: run.last });
                continue;
            }
            for seq in run.first..=run.last {
                entries.push(AttemptEntry::Event { seq, entry: self.events.get(&seq)?.clone() });
            }
        }
        Some(entries)
    }

    /// The dead letters for a range of entries.
    pub fn dead_letters(&self, run: &EntryRange, now: Time) -> Vec<DeadLetterRecord> {
        let letter = |seq: u64, gap_through: Option<u64>, entry: Option<&LogEntry>| DeadLetterRecord {
            seq,
            gap_through,
            after: (run.after.seq, run.after.position),
            id: entry.map_or("".into(), |entry| {
                shown_id(entry.id.as_deref(), entry.position, entry.at.ms()).into()
            }),
            topic: entry.map_or("".into(), |entry| entry.topic.clone()),
            parked_at: now.ms(),
            reason: "refused".into(),
            event: entry.map_or("".into(), |entry| String::from_utf8_lossy(&entry.body).into()),
        };
        match run.gap {
            true => vec![letter(run.first, Some(run.last), None)],
            false => (run.first..=run.last).map(|seq| letter(seq, None, self.events.get(&seq))).collect(),
        }
    }

    /// Copies for batches that were cut from another since the last save. The log may have dropped their events: the
    /// other batch was copied before that, and this worker does not know it.
    pub fn new_copies(&mut self) -> Vec<(u64, Vec<CopiedEvent>)> {
        let mut made = Vec::new();
        for batch in &self.machine.progress().batches {
            let is_new = batch.reason == BatchReason::Recut && !self.copies.contains(&batch.number);
            if !is_new || self.entries(batch).is_none() {
                continue;
            }
            let runs = || batch.ranges.iter().filter(|run| !run.gap);
            let events = runs().flat_map(|run| self.events.range(run.first..=run.last));
            let copied = |(seq, entry): (&u64, &LogEntry)| CopiedEvent {
                seq: *seq,
                id: shown_id(entry.id.as_deref(), entry.position, entry.at.ms()).into(),
                topic: entry.topic.clone(),
                event: String::from_utf8_lossy(&entry.body).into(),
            };
            made.push((batch.number, events.map(copied).collect()));
        }
        self.copies.extend(made.iter().map(|(number, _)| *number));
        made
    }

    /// The batches that have a copy and are settled: their copies are deleted.
    pub fn settled_copies(&mut self) -> BTreeSet<u64> {
        let batches = &self.machine.progress().batches;
        let is_settled = |number: &u64| !batches.iter().any(|batch| batch.number == *number);
        let (settled, unsettled) = std::mem::take(&mut self.copies).into_iter().partition(is_settled);
        self.copies = unsettled;
        settled
    }

    /// Drops the events that are in no batch any more.
    pub fn prune(&mut self) {
        let progress = self.machine.progress();
        let reached = progress.reached().seq;
        let batches = &progress.batches;
        self.events.retain(|seq, _| {
            *seq > reached
                || batches
                    .iter()
                    .flat_map(|batch| &batch.ranges)
                    .any(|run| run.first <= *seq && *seq <= run.last)
        });
    }

    /// Drops those of the events just read that did not fit into the machine: they are read again when it has room.
    pub fn forget_ahead(&mut self, now: Time, read: &[u64]) {
        let Some(want) = self.machine.want(now) else {
            // Full: the machine holds what it accepted; the next read continues after it.
            return;
        };
        let LogMark { seq, .. } = want.after;
        for ahead in read.iter().filter(|read| **read > seq) {
            self.events.remove(ahead);
        }
    }

    /// The endpoint's reply to a batch, with the entries that it named by number.
    pub fn numbered(&self, batch: u64, reply: EndpointReply<String>) -> EndpointReply<u64> {
        let EndpointReply { outcome, failed, retry_after_ms, error } = reply;
        if failed.is_empty() {
            return EndpointReply { outcome, failed: Vec::new(), retry_after_ms, error };
        }
        let entries = self.machine.batch(batch).and_then(|batch| self.entries(batch)).unwrap_or_default();
        let failed: HashSet<String> = failed.into_iter().collect();
        let named = |entry: &&AttemptEntry| failed.contains(&*entry.id());
        let failed = entries.iter().filter(named).map(AttemptEntry::seq).collect();
        EndpointReply { outcome, failed, retry_after_ms, error }
    }
}
