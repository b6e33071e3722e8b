//! The commits of a queue: its lease, progress, dead letters, and announcements on the topic of deliveries.
//! Must hold: every save expects the progress, the marks and the lease that this node knows, so that the save of a
//! replaced worker is refused; a worker whose save was refused loads everything again.

use super::lease;
use super::post::DeliveryNotice;
use super::queue::DeliveryQueue;
use super::shared::{DeliveryRequest, DeliveryShared};
use crate::topics::announcement;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{DeliveryEffect, DeliveryInput, EntryRange};
use tavern_store::{Append, Commit, Deadline, Document, DocumentKey, Receipt, Row, RowKey, Work};
use tavern_wire::record;

impl DeliveryQueue {
    /// The deadline that is stored with a lease taken now.
    pub(super) fn watch(&mut self, shared: &DeliveryShared, now: Time) -> Option<Deadline> {
        let lease_ends = now + shared.settings.lease_ms;
        let name = self.name().clone();
        let active = self.active()?;
        Some(active.lease.watch(&name, lease_ends, active.machine.next_wake()))
    }

    /// Takes the lease, or renews it.
    pub(super) fn take_lease(&mut self, shared: &mut DeliveryShared, now: Time) {
        let deadlines = self.watch(shared, now).into_iter().collect();
        let name = self.name().clone();
        let Some(active) = self.active() else { return };
        let (expects, life) = (active.expects(&name), active.life);
        let takes = vec![lease::take(&name, shared.settings.lease_ms)];
        let commit = Commit { writer: Some(shared.writer()), expects, takes, deadlines, ..Commit::default() };
        shared.ask(DeliveryRequest::Take(name, life), Work::Commit(commit));
    }

    pub(super) fn lease_taken(&mut self, shared: &mut DeliveryShared, now: Time, receipt: &Receipt) {
        let Some(active) = self.active() else { return };
        active.lease.taking = false;
        self.lease_granted(shared, receipt);
        self.give(shared, now, None);
    }

    /// When a node starts to deliver, it notifies the others: they see the lease, and check again when it has ended.
    /// A node that missed the message finds the deadline overdue.
    fn lease_granted(&mut self, shared: &mut DeliveryShared, receipt: &Receipt) {
        let lease_ms = shared.settings.lease_ms;
        let Some(begun) = self.active().and_then(|active| active.lease.granted(receipt, lease_ms)) else {
            return;
        };
        let name = self.name().clone();
        if begun {
            shared.effects.nudges.push(name.clone());
        }
        if std::mem::take(&mut self.follows) {
            shared.notify(DeliveryNotice::TookOver { subscription: name });
        }
    }

    pub(super) fn save(
        &mut self,
        shared: &mut DeliveryShared,
        now: Time,
        parked: &[EntryRange],
        retried: &[u64],
    ) {
        let lease_ms = shared.settings.lease_ms;
        let name = self.name().clone();
        let Some(active) = self.active() else { return };
        let (expects, life) = (active.expects(&name), active.life);
        let document = |key, body: Vec<u8>| Row::Document(Document { key, body: body.into() });
        let progress = record::write_progress(active.machine.progress());
        let mut puts = vec![document(DocumentKey::new(record::DELIVERY, &name), progress)];
        // A position from which a replay can start without reading everything.
        if Arc::make_mut(&mut active.marks).note(active.machine.progress().sealed) {
            puts.push(document(DocumentKey::new(record::MARKS, &name), record::write_marks(&active.marks)));
        }
        for letter in parked.iter().flat_map(|run| active.dead_letters(run, now)) {
            let key = DocumentKey::new(record::DEAD, &record::dead_name(&name, letter.seq));
            puts.push(document(key, record::write(&letter)));
        }
        let settled = active.settled_copies();
        for (number, copies) in active.new_copies() {
            let key = DocumentKey::new(record::COPY, &record::copy_name(&name, number));
            puts.push(document(key, record::write(&copies)));
        }
        puts.extend(active.attempts.take(&name, shared.attempts_kept()));
        active.saved = Some(active.machine.progress().batches.iter().map(|batch| batch.number).collect());
        // Not earlier: parked events wait for their save.
        active.prune();
        let effects = std::mem::take(&mut active.unannounced);
        let parked: u64 = parked.iter().map(EntryRange::entries).sum();
        let retried = retried.iter().map(|seq| (record::DEAD, record::dead_name(&name, *seq)));
        let deletes = retried
            .chain(settled.iter().map(|number| (record::COPY, record::copy_name(&name, *number))))
            .map(|(kind, name)| RowKey::Document(DocumentKey::new(kind, &name)))
            .collect();
        let fresh = active.lease.is_fresh(now, lease_ms);
        // A queue that has to wait longer than its lease stores a later deadline; otherwise other nodes would check
        // it needlessly.
        let waits = active.machine.next_wake().is_some_and(|wake| active.lease.is_beyond(wake));
        let takes = if fresh { Vec::new() } else { vec![lease::take(&name, lease_ms)] };
        let appends =
            if shared.announces { announcements(&name, now.ms(), parked, &effects) } else { Vec::new() };
        if parked > 0 {
            shared.notify(DeliveryNotice::Parked { subscription: name.clone(), events: parked });
        }
        let watched = (waits || !takes.is_empty()).then(|| self.watch(shared, now)).flatten();
        let deadlines = watched.into_iter().collect();
        let commit = Commit {
            writer: Some(shared.writer()),
            expects,
            puts,
            deletes,
            takes,
            deadlines,
            appends,
            ..Commit::default()
        };
        shared.ask(DeliveryRequest::Save(name, life), Work::Commit(commit));
    }

    pub(super) fn saved(&mut self, shared: &mut DeliveryShared, now: Time, receipt: &Receipt) {
        let [progress, marks] = [record::DELIVERY, record::MARKS]
            .map(|kind| receipt.version(&RowKey::Document(DocumentKey::new(kind, self.name()))));
        let Some(active) = self.active() else { return };
        active.version = progress.unwrap_or(active.version);
        // Written when a position was noted.
        active.marks_version = marks.unwrap_or(active.marks_version);
        let durable = active.saved.take().unwrap_or_default();
        self.lease_granted(shared, receipt);
        self.posts.retain(|batch, reply| reply.is_none() || durable.contains(batch));
        shared.announced |= !receipt.appended.is_empty();
        self.give(shared, now, Some(DeliveryInput::Saved));
    }
}

/// The announcements on the topic of deliveries.
fn announcements(name: &str, now_ms: u64, parked: u64, effects: &[DeliveryEffect]) -> Vec<Append> {
    let of_effect = |effect: &DeliveryEffect| match effect {
        DeliveryEffect::Disabled(why) => Some(announcement::disabled(name, *why, now_ms)),
        DeliveryEffect::Recovered => Some(announcement::recovered(name, now_ms)),
        DeliveryEffect::Lost { first, last } => Some(announcement::shed(name, *first, *last, now_ms)),
        DeliveryEffect::Save { .. } => None,
    };
    let parked = (parked > 0).then(|| announcement::dead_lettered(name, parked, now_ms));
    effects.iter().filter_map(of_effect).chain(parked).collect()
}
