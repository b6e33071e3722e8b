//! What other services hear of users who come and go: events of the topic `tavern.presence`, in the commit that decides it, so
//! that each transition is told once whatever the number of nodes. Must hold: without a subscriber nothing is written.

use super::change::PresenceChange;
use crate::core::Core;
use tavern_domain::presence::Change;
use tavern_domain::topic::PRESENCE;
use tavern_engine::{Append, Receipt};
use tavern_wire::json::event::stored;
use tavern_wire::json::string;

pub(super) fn transitions(core: &Core, change: &PresenceChange, changes: &[Change]) -> Vec<Append> {
    if !core.node.tells_presence() || !change.is_own_channel() {
        return Vec::new();
    }
    let told = changes.iter().filter_map(|change| match change {
        Change::UserOnline => Some(("online", None)),
        Change::UserOffline { last_seen, reason } => Some(("offline", Some((last_seen, reason)))),
        _ => None,
    });
    told.map(|(kind, left)| {
        let mut data = b"{\"user\":".to_vec();
        string(&mut data, &change.key.user);
        if let Some(name) = &change.name {
            data.extend_from_slice(b",\"name\":");
            string(&mut data, name);
        }
        if let Some((seen, reason)) = left {
            let more = format!(",\"last_seen\":{},\"reason\":\"{}\"", seen.ms(), reason.as_str());
            data.extend_from_slice(more.as_bytes());
        }
        data.push(b'}');
        let body = stored(kind, None, core.now.ms(), &String::from_utf8_lossy(&data));
        Append { topic: PRESENCE.into(), id: None, body: body.into() }
    })
    .collect()
}

/// Somebody may wait for what a commit has added.
pub(super) fn tell_topic(core: &mut Core, receipt: &Receipt) {
    if !receipt.appended.is_empty() {
        core.effects.topics.push(PRESENCE);
    }
}
