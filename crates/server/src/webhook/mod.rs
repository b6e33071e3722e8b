//! Outgoing webhooks: one signed POST to a URL that a subscriber chose, and the interpretation of its answer. Independent of
//! topics, subscriptions and stores; the caller decides about retries.
//! Must hold: only checked addresses are dialled, at every dial; no redirect is followed; every wait, every answer
//! and every queue has a bound; no secret reaches a log.

mod address;
mod answer;
mod dial;
#[cfg(test)]
mod endpoint;
mod failure;
mod resolve;
mod sender;
mod sign;
mod target;

pub use address::{Forbidden, Policy};
pub use answer::{KeptResponse, WebhookAnswer};
pub use resolve::{ResolvedAddresses, Resolver, SystemResolver};
pub use sender::{SenderError, SenderSettings, WebhookRequest, WebhookSender, may_send};
pub use sign::{
    ID, SIGNATURE, SecretError, SigningKeys, SigningSecret, TIMESTAMP, TOLERANCE_S, VerifyError, sign, verify,
};
pub use target::{TARGET_BYTES, TargetError, WebhookTarget};
