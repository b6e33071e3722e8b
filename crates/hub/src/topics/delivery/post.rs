//! Requests to endpoints, and notices for the operator. Nothing here decides.

use std::borrow::Cow;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{BatchReason, DeliveryEffect, DeliveryOutcome, DisabledReason};
use tavern_store::LogEntry;
use tavern_wire::json::event::{BatchEntry, BatchEvent, shown_id};
use tavern_wire::record::SubscriptionSettings;

/// An attempt that the driver must make, and answer once by subscription and number.
#[derive(Clone, Debug)]
pub struct AttemptRequest {
    pub subscription: Arc<SubscriptionSettings>,
    /// The number of the batch.
    pub batch: u64,
    pub attempt: u32,
    pub reason: BatchReason,
    /// When the first event was accepted.
    pub accepted: Time,
    pub events: Vec<AttemptEntry>,
}

/// One entry of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum AttemptEntry {
    Event {
        seq: u64,
        entry: LogEntry,
    },
    /// A gap: these events were dropped.
    Gap {
        first: u64,
        last: u64,
    },
}

/// A notice for the operator, for metrics and the log.
#[derive(Clone, Debug)]
pub enum DeliveryNotice {
    /// An attempt has ended; its batch was cut this long after its first event was accepted.
    Attempted {
        subscription: Arc<str>,
        reason: BatchReason,
        outcome: DeliveryOutcome,
        events: u64,
        waited_ms: u64,
    },
    /// The first attempt to deliver a batch begins, this long after its first event was accepted.
    FirstAttempt {
        subscription: Arc<str>,
        waited_ms: u64,
    },
    /// The subscription was deleted.
    Deleted {
        subscription: Arc<str>,
    },
    Disabled {
        subscription: Arc<str>,
        why: DisabledReason,
    },
    Recovered {
        subscription: Arc<str>,
    },
    /// Events that will never be delivered.
    Lost {
        subscription: Arc<str>,
        first: u64,
        last: u64,
    },
    Parked {
        subscription: Arc<str>,
        events: u64,
    },
    /// This node took over from another node's worker.
    TookOver {
        subscription: Arc<str>,
    },
    /// An error that the operator must fix.
    Trouble {
        subscription: Arc<str>,
        what: String,
    },
}

impl DeliveryNotice {
    /// The notice for an effect of the machine.
    pub(super) fn of(name: &Arc<str>, effect: &DeliveryEffect) -> Option<DeliveryNotice> {
        let subscription = name.clone();
        Some(match effect {
            DeliveryEffect::Disabled(why) => DeliveryNotice::Disabled { subscription, why: *why },
            DeliveryEffect::Recovered => DeliveryNotice::Recovered { subscription },
            DeliveryEffect::Lost { first, last } => {
                DeliveryNotice::Lost { subscription, first: *first, last: *last }
            }
            DeliveryEffect::Save { .. } => return None,
        })
    }
}

impl AttemptRequest {
    /// Identifies this batch of this subscription, and never another.
    pub fn id(&self) -> String {
        format!("msg_{}_{:x}_{}", self.subscription.name, self.subscription.created_at, self.batch)
    }

    /// The body: the same at every attempt.
    pub fn body(&self) -> Vec<u8> {
        let ids: Vec<Cow<'_, str>> = self.events.iter().map(AttemptEntry::id).collect();
        let pieces: Vec<BatchEntry<'_>> =
            self.events.iter().zip(&ids).map(|(event, id)| event.piece(id)).collect();
        self.subscription.format.batch(&self.subscription.name, &pieces)
    }
}

impl AttemptEntry {
    pub fn seq(&self) -> u64 {
        match self {
            AttemptEntry::Event { seq, .. } => *seq,
            AttemptEntry::Gap { first, .. } => *first,
        }
    }

    fn piece<'a>(&'a self, id: &'a str) -> BatchEntry<'a> {
        match self {
            AttemptEntry::Event { seq, entry } => {
                BatchEntry::Event(BatchEvent { seq: *seq, id, topic: &entry.topic, body: &entry.body })
            }
            AttemptEntry::Gap { first, last } => BatchEntry::Gap { first: *first, last: *last },
        }
    }

    /// The id in the body. A gap has none.
    pub(super) fn id(&self) -> Cow<'_, str> {
        match self {
            AttemptEntry::Event { entry, .. } => shown_id(entry.id.as_deref(), entry.position, entry.at.ms()),
            AttemptEntry::Gap { .. } => Cow::Borrowed(""),
        }
    }
}
