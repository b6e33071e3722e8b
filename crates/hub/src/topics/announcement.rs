//! Events that the server publishes about deliveries on its own topic, `tavern.deliveries`.

use tavern_domain::delivery::DisabledReason;
use tavern_domain::topic::DELIVERIES;
use tavern_store::Append;
use tavern_wire::json::event::stored;

/// A subscription was disabled: nothing more is sent to it.
pub fn disabled(subscription: &str, why: DisabledReason, now_ms: u64) -> Append {
    announcement("disabled", subscription, &format!(",\"why\":\"{}\"", why.as_str()), now_ms)
}

/// The endpoint accepts events again.
pub fn recovered(subscription: &str, now_ms: u64) -> Append {
    announcement("recovered", subscription, "", now_ms)
}

/// Events were dropped before they were delivered.
pub fn shed(subscription: &str, first: u64, last: u64, now_ms: u64) -> Append {
    let more = format!(",\"first_seq\":{first},\"last_seq\":{last}");
    announcement("shed", subscription, &more, now_ms)
}

/// Events were refused and became dead letters.
pub fn dead_lettered(subscription: &str, events: u64, now_ms: u64) -> Append {
    announcement("dead_lettered", subscription, &format!(",\"events\":{events}"), now_ms)
}

/// The name of a subscription needs no quoting.
fn announcement(kind: &str, subscription: &str, more: &str, now_ms: u64) -> Append {
    let data = format!("{{\"subscription\":\"{subscription}\"{more}}}");
    Append { topic: DELIVERIES.into(), id: None, body: stored(kind, None, now_ms, &data).into() }
}
