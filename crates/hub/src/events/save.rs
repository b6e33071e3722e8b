//! What the courier commits: leases, progress, dead letters, and what is said about deliveries on their own topic.
//! Must hold: every save expects the progress, the marks and the lease as this node knows them, so that a late worker's save
//! is refused; whoever was refused reads everything anew.

use super::courier::{Asked, Courier};
use super::line::{Active, Line, State};
use super::post::Notice;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{Effect, Input, Run};
use tavern_domain::topic::DELIVERIES;
use tavern_engine::{
    Append, Commit, Document, DocumentKey, Entry, Expect, Receipt, Row, RowKey, StoreError, Take, Work,
};
use tavern_wire::json::event::{shown_id, stored};
use tavern_wire::record::{self, Dead};

/// When to try again after something that only a human can mend.
const HOPELESS_MS: u64 = 30_000;
/// After another node's lease has ended by its own words.
const AFTERWARDS_MS: u64 = 100;

/// The lease of one subscription.
fn lease_of(name: &str) -> Arc<str> {
    format!("delivery/{name}").into()
}

impl Courier {
    /// What this node takes for known.
    fn expected(&self, name: &Arc<str>) -> Option<Vec<Expect>> {
        let State::Active(active) = &self.lines.get(name)?.state else { return None };
        let document =
            |kind, version| Expect { key: RowKey::Document(DocumentKey::new(kind, name)), version };
        let mut expects =
            vec![document(record::DELIVERY, active.version), document(record::MARKS, active.marks_version)];
        expects.extend(
            active.lease.map(|(number, _)| Expect { key: RowKey::Lease(lease_of(name)), version: number }),
        );
        Some(expects)
    }

    /// Takes the lease, or keeps it for longer.
    pub(super) fn take(&mut self, now: Time, name: &Arc<str>) {
        let Some(expects) = self.expected(name) else { return };
        let takes = vec![Take { name: lease_of(name), lease_ms: self.rules.lease_ms }];
        let deadlines = self.watch(now, name).into_iter().collect();
        let commit = Commit { writer: Some(self.writer()), expects, takes, deadlines, ..Commit::default() };
        self.ask(Asked::Take(name.clone(), self.life(name)), Work::Commit(commit));
    }

    pub(super) fn taken(&mut self, now: Time, name: &Arc<str>, receipt: &Receipt) {
        let lease_ms = self.rules.lease_ms;
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        active.takes = false;
        if let Some(number) = receipt.taken.first() {
            let begun = active.lease.replace((*number, receipt.time + lease_ms)).is_none();
            self.has_taken(name, begun);
        }
        self.give(now, name, None);
    }

    /// The lease is this node's now. When it begins to work the others are told: they see the lease, and look again when it
    /// has ended. Who did not hear it finds the deadline overdue (`watch`).
    fn has_taken(&mut self, name: &Arc<str>, begun: bool) {
        if begun {
            self.errands.nudges.push(name.clone());
        }
        if self.lines.get_mut(name).is_some_and(|line| std::mem::take(&mut line.follows)) {
            self.errands.notices.push(Notice::TookOver { subscription: name.clone() });
        }
    }

    pub(super) fn save(
        &mut self,
        now: Time,
        name: &Arc<str>,
        parked: &[Run],
        retried: &[u64],
        said: &[Effect],
    ) {
        let Some(expects) = self.expected(name) else { return };
        let heard = self.is_heard(DELIVERIES);
        let lease_ms = self.rules.lease_ms;
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        let document = |key, body: Vec<u8>| Row::Document(Document { key, body: body.into() });
        let progress = record::write_progress(active.machine.progress());
        let mut puts = vec![document(DocumentKey::new(record::DELIVERY, name), progress)];
        // A place to which a replay can go without reading everything.
        active.notes = Arc::make_mut(&mut active.marks).note(active.machine.progress().sealed);
        if active.notes {
            puts.push(document(DocumentKey::new(record::MARKS, name), record::write_marks(&active.marks)));
        }
        for letter in parked.iter().flat_map(|run| letters(active, run, now)) {
            let key = DocumentKey::new(record::DEAD, &record::dead_name(name, letter.seq));
            puts.push(document(key, record::write(&letter)));
        }
        for (number, copies) in active.new_copies() {
            let key = DocumentKey::new(record::COPY, &record::copy_name(name, number));
            puts.push(document(key, record::write(&copies)));
        }
        active.saved = Some(active.machine.progress().batches.iter().map(|batch| batch.number).collect());
        // Not before: what is parked waits for its save.
        active.prune();
        let parked: u64 = parked.iter().map(Run::entries).sum();
        let deletes = retried
            .iter()
            .map(|seq| RowKey::Document(DocumentKey::new(record::DEAD, &record::dead_name(name, *seq))))
            .collect();
        let fresh = active.lease.is_some_and(|(_, until)| until.since(now) > lease_ms / 3 * 2);
        // Who has to wait longer than the lease says so, or the others would look for nothing.
        let waits =
            active.machine.next_wake().is_some_and(|wake| active.watched.is_none_or(|due| wake > due));
        let takes = if fresh { Vec::new() } else { vec![Take { name: lease_of(name), lease_ms }] };
        let appends = if heard { announcements(name, now, parked, said) } else { Vec::new() };
        if parked > 0 {
            self.errands.notices.push(Notice::Parked { subscription: name.clone(), events: parked });
        }
        let watched = (waits || !takes.is_empty()).then(|| self.watch(now, name)).flatten();
        let deadlines = watched.into_iter().collect();
        let commit = Commit {
            writer: Some(self.writer()),
            expects,
            puts,
            deletes,
            takes,
            deadlines,
            appends,
            ..Commit::default()
        };
        self.ask(Asked::Save(name.clone(), self.life(name)), Work::Commit(commit));
    }

    pub(super) fn saved(&mut self, now: Time, name: &Arc<str>, receipt: &Receipt) {
        let lease_ms = self.rules.lease_ms;
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        active.version = receipt.put.first().copied().unwrap_or(active.version);
        let durable = active.saved.take().unwrap_or_default();
        // The second row is the marks, when a place was noted.
        if let (Some(version), true) = (receipt.put.get(1), active.notes) {
            active.marks_version = *version;
        }
        active.notes = false;
        if let Some(number) = receipt.taken.first() {
            let begun = active.lease.replace((*number, receipt.time + lease_ms)).is_none();
            self.has_taken(name, begun);
        }
        if let Some(line) = self.lines.get_mut(name) {
            line.flights.retain(|batch, answer| answer.is_none() || durable.contains(batch));
        }
        let spoke = !receipt.appended.is_empty();
        self.give(now, name, Some(Input::Saved));
        if spoke {
            self.published(now, DELIVERIES);
        }
    }

    /// A commit was refused: what is known here is of no more use.
    pub(super) fn refused(&mut self, now: Time, name: &Arc<str>, error: StoreError) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if !matches!(line.state, State::Active(_)) {
            return;
        }
        match error {
            StoreError::Taken { until, .. } => {
                (line.state, line.follows) = (State::Elsewhere, true);
                self.set_alarm(name, until + AFTERWARDS_MS);
                self.errands.nudges.push(name.clone());
            }
            error => {
                line.state = State::Idle;
                self.again(now, name, &error);
            }
        }
    }

    /// When to load it again after an error.
    pub(super) fn again(&mut self, now: Time, name: &Arc<str>, error: &StoreError) {
        if let Some(line) = self.lines.get_mut(name) {
            line.hungry = true;
        }
        let wait_ms = match error {
            StoreError::Conflict { .. } => return self.queue(name),
            StoreError::Unavailable { retry_after_ms, .. } => *retry_after_ms,
            // The node begins a new life in a moment.
            StoreError::Fenced { .. } => 1_000,
            error => {
                self.trouble(name, error.to_string());
                HOPELESS_MS
            }
        };
        self.set_alarm(name, now + wait_ms);
    }
}

/// The dead letters that a run makes.
fn letters(active: &Active, run: &Run, now: Time) -> Vec<Dead> {
    let letter = |seq: u64, gap_through: Option<u64>, entry: Option<&Entry>| Dead {
        seq,
        gap_through,
        after: (run.after.seq, run.after.position),
        id: entry.map_or("".into(), |entry| shown_id(entry.id.as_deref(), entry.position).into()),
        topic: entry.map_or("".into(), |entry| entry.topic.clone()),
        parked_at: now.ms(),
        reason: "refused".into(),
        event: entry.map_or("".into(), |entry| String::from_utf8_lossy(&entry.body).into()),
    };
    match run.gap {
        true => vec![letter(run.first, Some(run.last), None)],
        false => (run.first..=run.last).map(|seq| letter(seq, None, active.events.get(&seq))).collect(),
    }
}

/// What is said on the topic of deliveries.
fn announcements(name: &str, now: Time, parked: u64, said: &[Effect]) -> Vec<Append> {
    let append = |kind: &str, more: String| Append {
        topic: DELIVERIES.into(),
        id: None,
        body: stored(kind, None, now.ms(), &format!("{{\"subscription\":\"{name}\"{more}}}")).into(),
    };
    let mut appends: Vec<Append> = said
        .iter()
        .filter_map(|effect| match effect {
            Effect::Disabled(why) => Some(append("disabled", format!(",\"why\":\"{}\"", why.as_str()))),
            Effect::Recovered => Some(append("recovered", String::new())),
            Effect::Lost { first, last } => {
                Some(append("shed", format!(",\"first_seq\":{first},\"last_seq\":{last}")))
            }
            Effect::Save { .. } => None,
        })
        .collect();
    if parked > 0 {
        appends.push(append("dead_lettered", format!(",\"events\":{parked}")));
    }
    appends
}
