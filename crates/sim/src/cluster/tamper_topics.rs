//! Planted faults of topics, between the hub and the store.

use super::tamper::{claimed, is_document, puts_document};
use crate::planted::{Planted, PlantedFault};
use tavern_domain::Time;
use tavern_store::{Appended, Commit, Receipt, Row, RowKey, StoreAnswer};
use tavern_wire::record::{self, DELIVERY, MARKS, SUBSCRIPTION, TOPIC, TopicRecord};

/// How many events are trimmed in addition.
const GREED: u64 = 3;

/// A commit of a shard on its way to the store. Returns an answer that the store did not give.
pub fn commit(planted: &mut Planted, now: Time, commit: &mut Commit) -> Option<StoreAnswer> {
    match planted.fault() {
        Some(PlantedFault::LostAppend)
            if !commit.appends.is_empty() && planted.strikes(PlantedFault::LostAppend, 10) =>
        {
            let appended = Appended { position: 1, count: 1, duplicate: false };
            let appended = vec![appended; commit.appends.len()];
            let receipt = Receipt { time: now, appended, ..Receipt::default() };
            return Some(StoreAnswer::Committed(receipt));
        }
        Some(PlantedFault::LostReplay)
            if is_replay(commit) && planted.strikes(PlantedFault::LostReplay, 50) =>
        {
            return Some(claimed(now, commit));
        }
        Some(PlantedFault::ForgottenId) => {
            for append in &mut commit.appends {
                planted.strike();
                append.id = append.id.as_ref().map(|id| format!("{id}-{}", planted.rng.number()).into());
            }
        }
        Some(PlantedFault::UntoldLoss) if commit.trim.is_some() => hide_losses(planted, commit),
        Some(PlantedFault::GreedyRetention) => {
            // The log is trimmed, not only the ids of events.
            let drops = puts_document(commit, record::EVENTS);
            if let Some(trim) = commit.trim.as_mut().filter(|_| drops) {
                planted.strike();
                trim.before += GREED;
            }
        }
        Some(PlantedFault::KeptTopic) if deletes_topic(commit) && puts_document(commit, SUBSCRIPTION) => {
            planted.strike();
            commit
                .puts
                .retain(|row| ![SUBSCRIPTION, MARKS, DELIVERY].iter().any(|kind| is_document(row, kind)));
        }
        Some(PlantedFault::ForgottenTopic) => forget_past_events(planted, commit),
        Some(PlantedFault::LostSettings)
            if puts_document(commit, SUBSCRIPTION)
                && !deletes_topic(commit)
                && planted.strikes(PlantedFault::LostSettings, 50) =>
        {
            return Some(claimed(now, commit));
        }
        Some(PlantedFault::LostRetry) if deletes(commit, record::DEAD) && puts_document(commit, DELIVERY) => {
            planted.strike();
            commit.puts.retain(|row| !is_document(row, DELIVERY));
        }
        _ => {}
    }
    None
}

/// The cursors move over what is dropped, without a gap.
fn hide_losses(planted: &mut Planted, commit: &mut Commit) {
    for row in &mut commit.puts {
        let Row::Document(document) = row else { continue };
        if document.key.kind() != DELIVERY {
            continue;
        }
        let Ok(mut progress) = record::read_progress(&document.body) else { continue };
        if let Some(dropped) = progress.dropped.take() {
            planted.strike();
            progress.sealed = dropped.through;
            document.body = record::write_progress(&progress).into();
        }
    }
}

fn forget_past_events(planted: &mut Planted, commit: &mut Commit) {
    for row in commit.puts.iter_mut().filter(|row| is_document(row, TOPIC)) {
        let Row::Document(document) = row else { continue };
        let Ok(topic) = record::read::<TopicRecord>(&document.body) else { continue };
        if topic.past_events > 0 {
            planted.strike();
            document.body = record::write(&TopicRecord { past_events: 0, ..topic }).into();
        }
    }
}

fn deletes(commit: &Commit, kind: &str) -> bool {
    let is_kind = |key: &RowKey| matches!(key, RowKey::Document(key) if key.kind() == kind);
    commit.deletes.iter().any(is_kind)
}

fn deletes_topic(commit: &Commit) -> bool {
    deletes(commit, TOPIC)
}

/// The commit of a replay: the new progress of a subscription, and the document that keeps the log from being trimmed.
fn is_replay(commit: &Commit) -> bool {
    let created = puts_document(commit, record::SUBSCRIPTION);
    puts_document(commit, record::DELIVERY) && puts_document(commit, record::EVENTS) && !created
}

/// A commit of a delivery worker on its way to the store.
pub fn delivery_commit(planted: &mut Planted, commit: &mut Commit) {
    match planted.fault() {
        Some(PlantedFault::LostProgress) => {
            let progress = puts_document(commit, record::DELIVERY);
            if progress && planted.strikes(PlantedFault::LostProgress, 30) {
                commit.puts.retain(|row| !is_document(row, record::DELIVERY));
            }
        }
        Some(PlantedFault::LostDeadLetter) if puts_document(commit, record::DEAD) => {
            planted.strike();
            commit.puts.retain(|row| !is_document(row, record::DEAD));
        }
        Some(PlantedFault::NoDeliveryLease) => {
            planted.strike();
            (commit.writer, commit.expects) = (None, Vec::new());
            commit.takes.clear();
        }
        _ => {}
    }
}
