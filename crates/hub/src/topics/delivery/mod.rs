//! The delivery of all subscriptions by one node: `DeliveryWorker` schedules them, a `DeliveryQueue` is one of them,
//! with an `Active` machine while there is work, and a `HeldLease` on it. Must hold: the reply of an endpoint is
//! durable before anything that depends on it is sent.

mod active;
mod attempts;
mod events;
mod lease;
mod post;
mod queue;
mod save;
mod shared;
mod subscriptions;
mod worker;

pub use lease::DELIVERY;
pub use post::{AttemptAnswer, AttemptEntry, AttemptRequest, DeliveryNotice, HttpExchange, batch_body};
pub use shared::{DeliveryEffects, DeliverySettings};
pub use worker::DeliveryWorker;

use tavern_domain::delivery::DeliveryRules;
use tavern_wire::record::SubscriptionSettings;

/// The settings of a subscription as the rules of its delivery need them.
pub fn rules(subscription: &SubscriptionSettings) -> DeliveryRules {
    let envelope = subscription.format.envelope_bytes(&subscription.name);
    DeliveryRules {
        timeout_ms: subscription.timeout_ms,
        max_events: subscription.max_events,
        max_bytes: subscription.max_bytes,
        envelope_bytes: u32::try_from(envelope).unwrap_or(u32::MAX),
        concurrency: subscription.concurrency,
    }
}
