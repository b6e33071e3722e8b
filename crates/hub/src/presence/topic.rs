//! Users who come and go, as events of topics of the server: who connects and disconnects in `tavern.presence`, and what an
//! observer of channels wants. Each event is appended in the commit of the change, so each transition is published once, by
//! one node. Must hold: without a subscription nothing is written.

use super::change::PresenceChange;
use crate::core::Core;
use crate::transaction::DecisionContext;
use std::sync::Arc;
use tavern_domain::presence::AttendanceChange;
use tavern_domain::topic::PRESENCE;
use tavern_store::{Append, Receipt};
use tavern_wire::json::event::{stored, transition};

pub(super) fn transitions(
    context: &DecisionContext<'_>,
    change: &PresenceChange,
    changes: &[AttendanceChange],
) -> Vec<Append> {
    let mut appends = Vec::new();
    let publishes = context.publishes_presence && change.is_own_channel();
    let observer = context.observer.filter(|_| !change.anonymous);
    for attendance in changes {
        let (kind, left) = match attendance {
            AttendanceChange::UserOnline => ("online", None),
            AttendanceChange::UserOffline { last_seen, reason } => {
                ("offline", Some((last_seen.ms(), reason.as_str())))
            }
            _ => continue,
        };
        if publishes {
            let data = transition(&change.key.user, change.name.as_deref(), left);
            let body = stored(kind, None, context.now.ms(), &String::from_utf8_lossy(&data));
            appends.push(Append { topic: PRESENCE.into(), id: None, body: body.into() });
        }
        if let Some(observer) = observer {
            appends.extend(observer.appends(&change.key, left.is_none(), context.now));
        }
    }
    appends
}

/// Wakes the deliveries of the topics to which a commit of this channel may have appended.
pub(super) fn wake_topics(core: &mut Core, channel: &str, receipt: &Receipt) {
    if receipt.appended.is_empty() {
        return;
    }
    let observed = core.node.presence_observer().map(|observer| observer.topics(channel)).unwrap_or_default();
    core.effects.topics.extend(observed.into_iter().chain([Arc::from(PRESENCE)]));
}
