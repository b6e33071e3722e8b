//! Requests to endpoints, and notices for the operator. Nothing here decides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{BatchReason, DeliveryEffect, DeliveryOutcome, DisabledReason, EndpointReply};
use tavern_store::LogEntry;
use tavern_wire::json::event::{BatchEntry, BatchEvent, BatchFormat, shown_id};
use tavern_wire::record::{AttemptRecord, SentRequest, SubscriptionSettings};

/// An attempt that the driver must make and answer exactly once.
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

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptAnswer {
    pub reply: EndpointReply<String>,
    pub exchange: HttpExchange,
}

/// What the sender sent and saw of the endpoint, for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpExchange {
    /// Scheme, host and path.
    pub url: Arc<str>,
    pub status: Option<u16>,
    pub duration_ms: u64,
    /// Response headers that help with debugging.
    pub headers: BTreeMap<String, String>,
    /// The start of the response body.
    pub body: String,
    pub body_truncated: bool,
    /// Without the entries of the body.
    pub request: SentRequest,
}

impl From<EndpointReply<String>> for AttemptAnswer {
    fn from(reply: EndpointReply<String>) -> AttemptAnswer {
        AttemptAnswer { reply, exchange: HttpExchange::default() }
    }
}

impl HttpExchange {
    /// The record of an attempt that ended now, without its batch.
    pub fn record<Id>(&self, now: Time, reply: &EndpointReply<Id>) -> AttemptRecord {
        AttemptRecord {
            at: now.ms().saturating_sub(self.duration_ms),
            duration_ms: self.duration_ms,
            url: self.url.clone(),
            outcome: reply.outcome.as_str().into(),
            status: self.status,
            error: reply.error.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            body_truncated: self.body_truncated,
            request: self.request.clone(),
            ..AttemptRecord::default()
        }
    }
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
    /// The first attempt to deliver a batch starts, this long after its first event was accepted.
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
    /// The first attempt that failed after successful ones.
    Failing {
        subscription: Arc<str>,
        error: Arc<str>,
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
    /// Unique to this batch of this subscription.
    pub fn id(&self) -> String {
        format!("msg_{}_{:x}_{}", self.subscription.name, self.subscription.created_at, self.batch)
    }

    /// The body; identical at every attempt.
    pub fn body(&self) -> Vec<u8> {
        batch_body(&self.subscription.name, self.subscription.format, &self.events)
    }
}

/// The body of a batch of these entries.
pub fn batch_body(subscription: &str, format: BatchFormat, events: &[AttemptEntry]) -> Vec<u8> {
    let ids: Vec<Cow<'_, str>> = events.iter().map(AttemptEntry::id).collect();
    let pieces: Vec<BatchEntry<'_>> = events.iter().zip(&ids).map(|(event, id)| event.piece(id)).collect();
    format.batch(subscription, &pieces)
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
