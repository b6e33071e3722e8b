//! One subscription at this node: its settings, what is under way for it, and while there is work its machine with the events
//! that it needs. Decides nothing: the machine does.

use super::post::{Outcome, Posted};
use super::reading::Reading;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use tavern_domain::delivery::{Batch, Delivery, Rules, Run, Sending};
use tavern_domain::topic::Marks;
use tavern_domain::{Time, delivery};
use tavern_engine::{Document, Entry, Versioned};
use tavern_wire::json::event::shown_id;
use tavern_wire::record::{Copied, Subscription};

pub(super) struct Line {
    pub subscription: Arc<Subscription>,
    /// Of its document.
    pub version: u64,
    pub state: State,
    /// There may be events that nobody has read here.
    pub hungry: bool,
    /// Posts under way, with their answers once they are there: they may outlive the machine that began them. What was
    /// delivered stays until that is saved, so that it is not posted again.
    pub flights: BTreeMap<u64, Option<Outcome>>,
    /// Another node worked on it last.
    pub follows: bool,
    /// When it is looked at next.
    pub alarm: Option<Time>,
    /// The deadline of another worker, or of an earlier life of this one, that was found overdue.
    pub overdue: Option<Time>,
}

pub(super) enum State {
    /// Nothing to do.
    Idle,
    /// Waits for its turn to be loaded.
    Waits,
    Loads(Load),
    /// Another node works on it, until then at least.
    Elsewhere,
    Active(Box<Active>),
}

/// What was read of it so far.
#[derive(Default)]
pub(super) struct Load {
    /// Something has changed since it began.
    pub stale: bool,
    pub progress: Option<Option<Versioned<Document>>>,
    pub marks: Option<Option<Versioned<Document>>>,
}

pub(super) struct Active {
    /// What was asked for an earlier life of this line is not for this one.
    pub life: u64,
    pub machine: Delivery,
    pub marks: Arc<Marks>,
    pub marks_version: u64,
    /// Of the document that holds the progress.
    pub version: u64,
    /// The number of the lease, and until when it is held.
    pub lease: Option<(u64, Time)>,
    /// The deadline by which others look, if this one sleeps.
    pub watched: Option<Time>,
    /// A commit for the lease alone is under way.
    pub takes: bool,
    pub reading: Option<Reading>,
    pub reads: bool,
    /// By number: of what is not sealed and of unsettled batches.
    pub events: BTreeMap<u64, Entry>,
    /// Numbers of events that the log does not keep any more: a batch that is cut from them takes its copy along.
    pub copied: BTreeSet<u64>,
    /// The batches that have a copy.
    pub copies: BTreeSet<u64>,
    /// Batches whose events are read before they are posted.
    pub fetches: BTreeMap<u64, Fetch>,
    /// Batches that this machine has begun to send.
    pub started: BTreeSet<u64>,
    /// The save under way holds a note in the marks.
    pub notes: bool,
    /// The batches in the save under way.
    pub saved: Option<BTreeSet<u64>>,
    /// It stands in the queue of those who may send.
    pub queued: bool,
    /// Since when there is nothing to do.
    pub rests: Option<Time>,
}

/// The events of a sealed batch, on their way from the log.
pub(super) struct Fetch {
    pub sending: Sending,
    pub runs: VecDeque<Run>,
    pub reading: Option<Reading>,
}

impl Line {
    pub fn new(subscription: Arc<Subscription>, version: u64) -> Line {
        Line {
            subscription,
            version,
            state: State::Idle,
            hungry: true,
            flights: BTreeMap::new(),
            follows: false,
            alarm: None,
            overdue: None,
        }
    }

    pub fn active(&mut self) -> Option<&mut Active> {
        match &mut self.state {
            State::Active(active) => Some(active),
            _ => None,
        }
    }

    pub fn rules(&self) -> Rules {
        let of = &self.subscription;
        Rules {
            timeout_ms: of.timeout_ms,
            max_events: of.max_events,
            max_bytes: of.max_bytes,
            envelope_bytes: of.format.envelope_bytes(&of.name) as u32,
            concurrency: of.concurrency,
        }
    }
}

impl Active {
    pub fn holds_lease(&self, now: Time) -> bool {
        self.lease.is_some_and(|(_, until)| now < until)
    }

    /// Nothing is under way and nothing waits.
    pub fn is_done(&self, hungry: bool) -> bool {
        let progress = self.machine.progress();
        let nothing =
            progress.batches.is_empty() && progress.shed.is_none() && self.machine.oldest().is_none();
        let stuck = progress.disabled.is_some();
        (stuck || nothing && !hungry) && self.machine.is_at_rest() && !self.reads && !self.takes
    }

    /// The entries of a batch. None: not all of its events are here.
    pub fn entries(&self, batch: &Batch) -> Option<Vec<Posted>> {
        let mut entries = Vec::new();
        for run in &batch.runs {
            if run.gap {
                entries.push(Posted::Gap { first: run.first, last: run.last });
                continue;
            }
            for seq in run.first..=run.last {
                entries.push(Posted::Event { seq, entry: self.events.get(&seq)?.clone() });
            }
        }
        Some(entries)
    }

    /// Copies for batches that were cut from one that has a copy.
    pub fn new_copies(&mut self) -> Vec<(u64, Vec<Copied>)> {
        let mut made = Vec::new();
        for batch in &self.machine.progress().batches {
            let runs = || batch.runs.iter().filter(|run| !run.gap);
            let gone = |run: &Run| self.copied.range(run.first..=run.last).next().is_some();
            if self.copies.contains(&batch.number) || !runs().any(gone) {
                continue;
            }
            let events = runs().flat_map(|run| self.events.range(run.first..=run.last));
            let copied = |(seq, entry): (&u64, &Entry)| Copied {
                seq: *seq,
                id: shown_id(entry.id.as_deref(), entry.position).into(),
                topic: entry.topic.clone(),
                event: String::from_utf8_lossy(&entry.body).into(),
            };
            made.push((batch.number, events.map(copied).collect()));
        }
        self.copies.extend(made.iter().map(|(number, _)| *number));
        made
    }

    /// Forgets the events that no batch holds any more.
    pub fn prune(&mut self) {
        let progress = self.machine.progress();
        let reached = progress.reached().seq;
        let batches = &progress.batches;
        self.events.retain(|seq, _| {
            *seq > reached
                || batches
                    .iter()
                    .flat_map(|batch| &batch.runs)
                    .any(|run| run.first <= *seq && *seq <= run.last)
        });
    }

    /// The machine's answer for what the endpoint said of a batch.
    pub fn outcome(&self, batch: u64, outcome: Outcome) -> delivery::Outcome {
        match outcome {
            Outcome::Delivered => delivery::Outcome::Delivered,
            Outcome::Gone => delivery::Outcome::Gone,
            Outcome::TooLarge => delivery::Outcome::TooLarge,
            Outcome::Throttled { after_ms } => delivery::Outcome::Throttled { after_ms },
            Outcome::Refused => delivery::Outcome::Refused,
            Outcome::Failed => delivery::Outcome::Failed,
            Outcome::Partly { failed } => {
                let entries =
                    self.machine.batch(batch).and_then(|batch| self.entries(batch)).unwrap_or_default();
                let failed: HashSet<String> = failed.into_iter().collect();
                let named = |entry: &&Posted| failed.contains(&*entry.id());
                let failed: Vec<u64> = entries.iter().filter(named).map(Posted::seq).collect();
                delivery::Outcome::Partly { failed }
            }
        }
    }
}
