//! The outcome of an attempt to deliver a batch, and the endpoint's reply with its details.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Any 2xx.
    Delivered,
    /// A 2xx that names entries to send again; the others are delivered.
    Partly,
    /// 410: the endpoint wants no more events.
    Gone,
    /// 413: send less at once.
    TooLarge,
    /// 429 and 503: try later.
    Throttled,
    /// Any other 4xx.
    Refused,
    /// Everything else: 5xx, 3xx, no answer, no connection, an address that may not be called.
    Failed,
}

impl DeliveryOutcome {
    pub const ALL: [DeliveryOutcome; 7] = [
        DeliveryOutcome::Delivered,
        DeliveryOutcome::Partly,
        DeliveryOutcome::Gone,
        DeliveryOutcome::TooLarge,
        DeliveryOutcome::Throttled,
        DeliveryOutcome::Refused,
        DeliveryOutcome::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            DeliveryOutcome::Delivered => "delivered",
            DeliveryOutcome::Partly => "partly",
            DeliveryOutcome::Gone => "gone",
            DeliveryOutcome::TooLarge => "too_large",
            DeliveryOutcome::Throttled => "throttled",
            DeliveryOutcome::Refused => "refused",
            DeliveryOutcome::Failed => "failed",
        }
    }

    pub fn parse(text: &str) -> Option<DeliveryOutcome> {
        DeliveryOutcome::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// What an endpoint replied to an attempt. `Id` is how it names entries: by text on the wire, by seq in the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointReply<Id> {
    pub outcome: DeliveryOutcome,
    /// The entries to send again, of a batch that was delivered partly.
    pub failed: Vec<Id>,
    /// The `Retry-After` of an endpoint that throttles, if there was one.
    pub retry_after_ms: Option<u64>,
    /// Why the attempt failed, as text for the operator.
    pub error: Option<Arc<str>>,
}

impl<Id> EndpointReply<Id> {
    pub fn partly(failed: Vec<Id>) -> EndpointReply<Id> {
        EndpointReply { failed, ..DeliveryOutcome::Partly.into() }
    }

    pub fn throttled(retry_after_ms: Option<u64>) -> EndpointReply<Id> {
        EndpointReply { retry_after_ms, ..DeliveryOutcome::Throttled.into() }
    }

    /// Whether the endpoint accepted some of the batch, or all of it.
    pub fn is_taken(&self) -> bool {
        matches!(self.outcome, DeliveryOutcome::Delivered | DeliveryOutcome::Partly)
    }
}

impl<Id> From<DeliveryOutcome> for EndpointReply<Id> {
    fn from(outcome: DeliveryOutcome) -> EndpointReply<Id> {
        EndpointReply { outcome, failed: Vec::new(), retry_after_ms: None, error: None }
    }
}
