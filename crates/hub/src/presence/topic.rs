//! Users who connect and disconnect, as events of the topic `tavern.presence`. Each event is appended in the commit
//! of the change, so each transition is published once, by one node. Must hold: without a subscription nothing is
//! written.

use super::change::PresenceChange;
use crate::core::Core;
use crate::transaction::DecisionContext;
use tavern_domain::presence::AttendanceChange;
use tavern_domain::topic::PRESENCE;
use tavern_store::{Append, Receipt};
use tavern_wire::json::event::{stored, transition};

pub(super) fn transitions(
    context: &DecisionContext<'_>,
    change: &PresenceChange,
    changes: &[AttendanceChange],
) -> Vec<Append> {
    if !context.publishes_presence || !change.is_own_channel() {
        return Vec::new();
    }
    let transitions = changes.iter().filter_map(|change| match change {
        AttendanceChange::UserOnline => Some(("online", None)),
        AttendanceChange::UserOffline { last_seen, reason } => Some(("offline", Some((last_seen, reason)))),
        _ => None,
    });
    transitions
        .map(|(kind, left)| {
            let left = left.map(|(seen, reason)| (seen.ms(), reason.as_str()));
            let data = transition(&change.key.user, change.name.as_deref(), left);
            let body = stored(kind, None, context.now.ms(), &String::from_utf8_lossy(&data));
            Append { topic: PRESENCE.into(), id: None, body: body.into() }
        })
        .collect()
}

/// Wakes the deliveries of the topic if a commit has appended to it.
pub(super) fn wake_topic(core: &mut Core, receipt: &Receipt) {
    if !receipt.appended.is_empty() {
        core.effects.topics.push(PRESENCE);
    }
}
