//! What the server itself publishes about deliveries, on `tavern.deliveries`.

use serde_json::json;
use tavern_domain::delivery::Why;
use tavern_domain::topic::DELIVERIES;
use tavern_store::Append;
use tavern_wire::json::event::stored;

/// Events were dropped before they were delivered.
pub fn shed(subscription: &str, first: u64, last: u64, now_ms: u64) -> Append {
    let data = json!({"subscription": subscription, "first_seq": first, "last_seq": last}).to_string();
    Append { topic: DELIVERIES.into(), id: None, body: stored("shed", None, now_ms, &data).into() }
}

/// Nothing is sent to a subscription any more.
pub fn disabled(subscription: &str, why: Why, now_ms: u64) -> Append {
    let data = json!({"subscription": subscription, "why": why.as_str()}).to_string();
    Append { topic: DELIVERIES.into(), id: None, body: stored("disabled", None, now_ms, &data).into() }
}
